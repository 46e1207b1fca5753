#!/usr/bin/env bash
# End-to-end tests: the programs in build/ with a real etcd, kube-apiserver and kube-scheduler.
#
#   test/e2e/run.sh [GO TEST FLAGS...]     e.g. -run TestWire, -short
#
# The control plane is built from its Go modules the first time (minutes) and kept in build/e2e/.
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

# Prints what the control plane is made of: rebuilt when that changes.
fingerprint() {
	{ go version && cat controlplane/{go.mod,go.sum,main.go,render/main.go}; } | sha256sum
}

build_control_plane() {
	local minor=${kubernetes#*.} start=$SECONDS log="$out/build.log"
	mkdir -p "$out"
	if [ -x "$out/controlplane" ] && [ -x "$out/render" ] && [ "$(fingerprint)" = "$(cat "$out/controlplane.stamp" 2>/dev/null)" ]; then
		return
	fi
	echo "e2e: fetching the modules of kubernetes $kubernetes"
	if ! (cd controlplane && go list -deps ./... >/dev/null 2>"$log"); then
		cat "$log"
		if grep -qE 'dial|lookup|timeout|connect|EOF|disabled by|requires go|403|404|50[0-9]' "$log"; then
			skip "the modules of the control plane cannot be had (above)"
		fi
		fail "the modules of the control plane do not load (above)"
	fi
	echo "e2e: building etcd, kube-apiserver and kube-scheduler (7 minutes of CPU when nothing is cached)"
	(cd controlplane && nice -n 10 go build -p "${JOBS:-2}" -trimpath -ldflags "-s -w
		-X k8s.io/component-base/version.gitVersion=v$kubernetes
		-X k8s.io/component-base/version.gitMajor=${kubernetes%%.*}
		-X k8s.io/component-base/version.gitMinor=${minor%%.*}" -o "$out/controlplane" .) ||
		fail "the control plane does not build (above)"
	# Most of it is compiled by now: the same modules with the same flags.
	(cd controlplane && nice -n 10 go build -p "${JOBS:-2}" -trimpath -ldflags "-s -w" -o "$out/render" ./render) ||
		fail "kustomize and Helm do not build (above)"
	fingerprint >"$out/controlplane.stamp"
	echo "e2e: built in $((SECONDS - start)) s"
}

command -v go >/dev/null || skip "Go is not here"
[ -x "$build/tessera-extender" ] || echo "e2e: no extender in $build (make all): its tests are skipped"
build_control_plane

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
