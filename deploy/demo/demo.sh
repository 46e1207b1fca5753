#!/usr/bin/env bash
# The demo: an extender on a made-up cluster, 220 pods of all kinds through it over HTTP as a
# kube-scheduler would send them, the resulting map, and a comparison of policies on a trace.
#   demo.sh [--openb DIR]    DIR: the real openb trace; ../shared/traces/openb is used where present
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${BUILD:-build}
openb=../shared/traces/openb
wrong() {
	echo "demo: $1" >&2
	exit 2
}
if [ "${1:-}" = --openb ]; then
	[ $# -ge 2 ] || wrong "--openb needs a folder"
	openb=$2
	[ -f "$openb/openb_node_list_gpu_node.csv" ] ||
		wrong "$openb has no openb_node_list_gpu_node.csv"
	shift 2
fi
[ $# -eq 0 ] || wrong "$1: no such argument; usage: demo.sh [--openb DIR]"

tmp=$(mktemp -d)
pid=
stop() {
	[ -n "$pid" ] && kill "$pid" 2> /dev/null
	rm -rf "$tmp"
}
trap stop EXIT

say() {
	printf '\n\033[1m%s\033[0m\n' "$*"
}
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

start_extender() {
	"$bin/tessera-extender" --cluster deploy/demo/cluster.json --listen 127.0.0.1:0 \
		--journal "$tmp/journal" 2> "$tmp/log" &
	pid=$!
	disown "$pid" # killed below on purpose: no word of it from the shell
	url=
	for _ in $(seq 100); do
		url=$(sed -n 's/^listening on //p' "$tmp/log")
		[ -n "$url" ] && return
		kill -0 "$pid" 2> /dev/null || break
		sleep 0.05
	done
	cat "$tmp/log" >&2
	exit 1
}

say "1. An extender on 25 nodes: A100, H100, L40S, T4, one A100 node cut by MIG, two without GPU"
start_extender
echo "tessera-extender listens on $url"

say "2. 220 pods: shares by fraction and by MiB, two compute modes, several GPUs, MIG, whole GPUs"
"$bin/tessera-replay" drive --extender "$url" --nodes deploy/demo/cluster.json \
	--pods deploy/demo/pods.json --quiet

say "3. Every GPU of the cluster (the same as a page: $url)"
"$bin/tessera-replay" map --extender "$url"

say "4. Killed and started again: the journal brings back every allocation"
"$bin/tessera-replay" map --extender "$url" > "$tmp/before"
kill -9 "$pid"
while kill -0 "$pid" 2> /dev/null; do sleep 0.02; done
start_extender
"$bin/tessera-replay" map --extender "$url" > "$tmp/after"
if cmp -s "$tmp/before" "$tmp/after"; then
	echo "same map: $(tail -n 1 "$tmp/after")"
else
	echo "the maps differ" >&2
	diff "$tmp/before" "$tmp/after" >&2 || true
	exit 1
fi

say "5. A made-up trace of the size and mix of a real cluster: 1,213 nodes, 6,212 GPUs, 130 % load"
"$bin/tessera-replay" generate --kind nodes > "$tmp/nodes.csv"
"$bin/tessera-replay" generate --kind pods > "$tmp/pods.csv"
"$bin/tessera-replay" run --nodes "$tmp/nodes.csv" --pods "$tmp/pods.csv" \
	--policy bid-price,ca-fgd,fgd,bestfit,packing,clustering,dotprod,random

if [ -f "$openb/openb_node_list_gpu_node.csv" ]; then
	say "6. The real openb trace, arrivals as published"
	"$bin/tessera-replay" run --nodes "$openb/openb_node_list_gpu_node.csv" \
		--pods "$openb/openb_pod_list_default.csv" --order "$openb/orders/default_42.txt" \
		--policy bid-price,ca-fgd,fgd,bestfit,packing,clustering,dotprod
else
	say "6. The real openb trace is not here (README.md says where to get it); --openb DIR uses it"
fi
