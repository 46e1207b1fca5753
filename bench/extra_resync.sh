#!/usr/bin/env bash
# The resync of a large cluster, as a part of `make bench`; a tenth of it with BENCH_QUICK=1.
set -euo pipefail
printf '\n== resync from an API server (targets 10 s of CPU, 300 MB)\n'
if [ "${BENCH_QUICK:-0}" = 1 ]; then
	exec "${BUILD:-build}/release/bench/bench_resync" 500 15000
fi
exec "${BUILD:-build}/release/bench/bench_resync"
