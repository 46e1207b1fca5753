#!/usr/bin/env bash
# Throughput through a real kube-scheduler, and the extender on a large cluster, each beside its target;
# needs Go and what test/e2e/run.sh builds. About 6 minutes on 2 cores; not part of `make bench`.
#
#   bench/scheduler.sh [rate|large|delay|memory ...]      default: all four
set -euo pipefail
cd "$(dirname "$0")/../test/e2e"
BUILD=${BUILD:-build}
[[ $BUILD = /* ]] || BUILD=$(cd ../.. && pwd)/$BUILD
export BUILD CGO_ENABLED=0
if [ ! -x "$BUILD/e2e/controlplane" ] || [ ! -x "$BUILD/tessera-extender" ]; then
	echo "not built: make all, and make e2e or test/e2e/run.sh -run TestControlPlane"
	exit 1
fi
missed=0

bench() { # bench NAME TEST TARGET-IN-WORDS AWK-CONDITION [VARIABLE=VALUE...]
	local name=$1 test=$2 target=$3 condition=$4 out line
	shift 4
	echo "== $name (target: $target)"
	out=$(env "$@" go test -tags bench -count=1 -timeout 20m -v -run "^$test\$" . 2>&1) || { echo "$out" | tail -n 30; missed=$((missed + 1)); return; }
	grep -E 'pods bound in|of CPU;|^ .*<= .* s:' <<<"$out" | sed -E 's/^ *[a-z_]*test.go:[0-9]+: /  /' || true
	line=$(grep '^BENCH' <<<"$out")
	echo "$line"
	awk "{ for (i = 1; i <= NF; i++) if (split(\$i, p, \"<?=\") > 1) v[p[1]] = p[2] + 0 } END { exit !($condition) }" <<<"$line" ||
		{ echo MISSED; missed=$((missed + 1)); }
}

[ $# -gt 0 ] || set -- rate large delay memory
for part; do
	case $part in
	rate) bench "1,000 nodes, filter + prioritize + bind" TestBenchScheduler \
		"0.6 of a scheduler without extender" 'v["tessera/none"] >= 0.6' BENCH_NODES=1000 BENCH_PODS=1000 ;;
	large) bench "5,000 nodes, all of them scored" TestBenchScheduler \
		"5 times a Go extender, or 0.9 of the scheduler's own limit: an extender that reads nothing" \
		'v["tessera/echo"] >= 5 || v["tessera/mirror"] >= 0.9' \
		BENCH_NODES=5000 BENCH_PODS=400 BENCH_ECHO_PODS=60 BENCH_ROUNDS=1 ;;
	delay) bench "from a bind to its POST, 300 in flight" TestBenchBindDelay "p99 1 ms" 'v["p99"] <= 0.001' ;;
	memory) bench "5,000 nodes and 150,000 pods" TestBenchMemory "300 MB, 10 s of CPU for a resync" \
		'v["peak"] < 300 && v["resync"] < 10' ;;
	*) echo "unknown: $part" >&2; exit 2 ;;
	esac
done
[ "$missed" -eq 0 ]
