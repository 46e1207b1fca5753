#!/usr/bin/env bash
# End-to-end tests: the programs in build/ with a real etcd, kube-apiserver and kube-scheduler.
#
#   test/e2e/run.sh [GO TEST FLAGS...]     e.g. -run TestWire, -short
#
# Control plane and container runtime are built from their Go modules the first time (minutes) and kept in
# build/e2e/.
# E2E_SEED=N repeats a run's choices, E2E_KEEP=1 keeps the logs of the control plane, JOBS=2 sets how
# many compilers run at once. Ends with "N passed, N failed, N skipped"; without Go, or where the
# modules cannot be fetched, all of it is skipped.
set -euo pipefail
cd "$(dirname "$0")"

root=$(cd ../.. && pwd)
build=${BUILD:-build}
[[ $build = /* ]] || build=$root/$build
export BUILD=$build CGO_ENABLED=0
out=$build/e2e
kubernetes=$(sed -nE 's/^\tk8s.io\/kubernetes v([0-9.]+)$/\1/p' controlplane/go.mod)

skip() {
	echo "e2e: skipped: $1"
	echo "0 passed, 0 failed, 1 skipped"
	exit 0
}

fail() {
	echo "e2e: $1"
	echo "0 passed, 1 failed, 0 skipped"
	exit 1
}

# Prints what a folder's programs are made of: rebuilt when that changes.
fingerprint() { # fingerprint FOLDER
	{ go version && cat "$1"/{go.mod,go.sum,main.go} && { cat "$1"/*/main.go 2>/dev/null || true; }; } | sha256sum
}

is_built() { # is_built FOLDER PROGRAM
	[ -x "$out/$2" ] && [ "$(fingerprint "$1")" = "$(cat "$out/$1.stamp" 2>/dev/null)" ]
}

# Fetches the modules of packages; false where they cannot be had.
fetch() { # fetch FOLDER PACKAGE...
	local folder=$1 log="$out/build.log"
	shift
	(cd "$folder" && go list -deps "$@" >/dev/null 2>"$log") && return
	cat "$log"
	grep -qE 'dial|lookup|timeout|connect|EOF|disabled by|requires go|403|404|50[0-9]' "$log" && return 1
	fail "the modules of $folder do not load (above)"
}

build_control_plane() {
	local minor=${kubernetes#*.} start=$SECONDS
	if is_built controlplane controlplane && is_built controlplane render; then
		return
	fi
	echo "e2e: fetching the modules of kubernetes $kubernetes"
	fetch controlplane ./... || skip "the modules of the control plane cannot be had (above)"
	echo "e2e: building etcd, kube-apiserver and kube-scheduler (7 minutes of CPU when nothing is cached)"
	(cd controlplane && nice -n 10 go build -p "${JOBS:-2}" -trimpath -ldflags "-s -w
		-X k8s.io/component-base/version.gitVersion=v$kubernetes
		-X k8s.io/component-base/version.gitMajor=${kubernetes%%.*}
		-X k8s.io/component-base/version.gitMinor=${minor%%.*}" -o "$out/controlplane" .) ||
		fail "the control plane does not build (above)"
	# Most of it is compiled by now: the same modules with the same flags.
	(cd controlplane && nice -n 10 go build -p "${JOBS:-2}" -trimpath -ldflags "-s -w" -o "$out/render" ./render) ||
		fail "kustomize and Helm do not build (above)"
	fingerprint controlplane >"$out/controlplane.stamp"
	echo "e2e: built in $((SECONDS - start)) s"
}

# Without it the tests of the node agent are skipped, and no others.
build_runtime() {
	local start=$SECONDS containerd=github.com/containerd/containerd/v2/cmd
	if is_built runtime containerd; then
		return
	fi
	echo "e2e: fetching the modules of containerd"
	if ! fetch runtime "$containerd/containerd" "$containerd/containerd-shim-runc-v2" .; then
		echo "e2e: the modules of containerd cannot be had (above): its tests are skipped"
		return
	fi
	echo "e2e: building containerd (2 minutes of CPU when nothing is cached)"
	(cd runtime && nice -n 10 go build -p "${JOBS:-2}" -trimpath -ldflags "-s -w" \
		-tags "no_btrfs no_zfs no_devmapper no_tracing no_rdt no_systemd" -o "$out/" \
		"$containerd/containerd" "$containerd/containerd-shim-runc-v2" . &&
		mv "$out/runtime" "$out/cri") || fail "containerd does not build (above)"
	fingerprint runtime >"$out/runtime.stamp"
	echo "e2e: built in $((SECONDS - start)) s"
}

command -v go >/dev/null || skip "Go is not here"
[ -x "$build/tessera-extender" ] || echo "e2e: no extender in $build (make all): its tests are skipped"
mkdir -p "$out"
build_control_plane
build_runtime

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
go test -count=1 -timeout 60m -v "$@" ./... 2>&1 | tee "$log" |
	grep --line-buffered -vE '^ *=== (RUN|PAUSE|CONT|NAME)' || status=$?
[ "$status" -eq 0 ] || [ -s "$log" ] || fail "nothing ran"
# What failed is tried once more, alone: some expectations are times, and the machine may be busy.
again=$(sed -nE 's/^--- FAIL: ([A-Za-z0-9_]+).*/\1/p' "$log" | paste -sd '|')
if [ -n "$again" ] && ! grep -qE '^panic:' "$log"; then
	echo "e2e: once more: $again"
	second=$(mktemp)
	go test -count=1 -timeout 20m -v -run "^($again)\$" ./... 2>&1 | tee "$second" |
		grep --line-buffered -vE '^ *=== (RUN|PAUSE|CONT|NAME)' || true
	while read -r name; do
		grep -qE "^--- PASS: $name " "$second" && sed -i -E "s/^--- FAIL: $name /--- PASS: $name /" "$log"
	done < <(tr '|' '\n' <<<"$again")
	rm -f "$second"
	grep -qE '^--- FAIL' "$log" || { status=0; sed -i -E '/^FAIL/d' "$log"; }
fi
passed=$(grep -cE '^--- PASS' "$log" || true)
failed=$(grep -cE '^--- FAIL' "$log" || true)
skipped=$(grep -cE '^--- SKIP' "$log" || true)
# A package that does not build, or a test that ends the program, has no line of its own.
if [ "$failed" -eq 0 ] && { [ "$status" -ne 0 ] || grep -qE '^(FAIL|panic:)' "$log"; }; then
	failed=1
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
