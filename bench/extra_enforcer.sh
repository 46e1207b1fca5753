#!/usr/bin/env bash
# The node agent against its targets, on the fake driver and MPS daemon of test/lib.
set -u
cd "$(dirname "$0")/.."
bin=$(realpath "${BUILD:-build}")/release
printf '\n== the node agent\n'
exec "$bin/bench/bench_enforcer" "$bin/tessera-enforcer" "$bin/tessera-hook" "$bin"
