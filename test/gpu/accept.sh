#!/usr/bin/env bash
# Acceptance on a real GPU: our probe, MPS supervisor, namespaces and memory limits against the real
# driver and the real MPS daemon, with two CUDA clients. `make gpu` runs it.
#
# Needs: root, an NVIDIA driver with a GPU that nobody uses and that has MIG off, its
# nvidia-cuda-mps-control and libcuda.so.1. What is missing is said in one word and the exit status is 77.
# Cgroup limits need driver 615 and cgroup v2; on older drivers the legacy protocol is tested instead.
#
# It changes no setting of the GPU: no MIG mode, compute mode, clocks, persistence or reset; it compares
# them before and after. What it makes (a folder below /run, two cgroups, one daemon, two clients) it
# removes, also when it is interrupted.
set -euo pipefail
cd "$(dirname "$0")/../.."

BUILD=${BUILD:-build}
bin="$BUILD/release/gpu"

skip() {
	echo "skipped: $*"
	exit 77
}

command -v nvidia-smi >/dev/null || skip "no nvidia-smi: no NVIDIA driver here"
nvidia-smi -L 2>/dev/null | grep -q '^GPU ' || skip "no GPU: nvidia-smi lists none"
command -v nvidia-cuda-mps-control >/dev/null || skip "no MPS: nvidia-cuda-mps-control is not here"
[ "$(id -u)" -eq 0 ] || skip "not root: limits and MPS need it"
pgrep -x -r D,R,S,T nvidia-cuda-mps >/dev/null && skip "an MPS daemon runs already: it is left alone"
[ -x "$bin/accept" ] && [ -x "$bin/client" ] || skip "not built: make gpu"

# What must be the same afterwards.
settings() {
	nvidia-smi --query-gpu=uuid,mig.mode.current,mig.mode.pending,compute_mode,persistence_mode,clocks.applications.graphics,power.limit \
		--format=csv,noheader 2>&1
}

# Short: the path of a socket has 107 bytes.
work=$(mktemp -d /run/tsa-XXXXXX)
pid=
# Everything that bears our folder's name: the daemon with its servers, then files and cgroups.
cleanup() {
	[ -z "$pid" ] || kill "$pid" 2>/dev/null || true
	for p in $(grep -lsz "^CUDA_MPS_PIPE_DIRECTORY=$work/p" /proc/[0-9]*/environ 2>/dev/null |
		cut -d/ -f3); do
		[ "$p" = $$ ] || kill -9 "$p" 2>/dev/null || true
	done
	[ -z "$pid" ] || for g in /sys/fs/cgroup/tessera-accept-"$pid"; do
		[ -d "$g" ] || continue
		for leaf in "$g"/*/; do
			[ -d "$leaf" ] || continue
			for p in $(cat "$leaf/cgroup.procs"); do kill -9 "$p" 2>/dev/null || true; done
			# Soft limits first: what the driver counted on the folders above would stay.
			for uuid in $(nvidia-smi --query-gpu=uuid --format=csv,noheader); do
				nvidia-smi memory-limits -i "$uuid" -n "${leaf%/}" \
					--soft-limit 0 --hard-limit max >/dev/null 2>&1 || true
			done
			rmdir "$leaf" 2>/dev/null || true
		done
		rmdir "$g" 2>/dev/null || true
	done
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

before=$(settings)
status=0
"$bin/accept" "$bin/client" "$work" &
pid=$!
wait "$pid" || status=$?
[ "$status" -ne 77 ] || skip "see above"

left=0
# A dead process that nobody has waited for holds nothing: not every machine's first process does.
if pgrep -x -r D,R,S,T nvidia-cuda-mps >/dev/null; then
	echo "FAIL  an MPS process is left"
	left=1
fi
if [ -e "/sys/fs/cgroup/tessera-accept-$pid" ]; then
	echo "FAIL  a cgroup is left"
	left=1
fi
if [ "$(settings)" != "$before" ]; then
	echo "FAIL  settings of the GPU changed:"
	diff <(echo "$before") <(settings) || true
	left=1
fi
[ "$left" -ne 0 ] || echo "ok    nothing is left, and no setting changed"
[ "$status" -eq 0 ] && [ "$left" -eq 0 ]
