#!/usr/bin/env bash
# A small cluster at 95 % load, pods that come and leave, what does not fit refused: GPU-hours refused, % of
# those asked for, mean and spread over ten seeds, beside what no placement can change.
#   test/small_cluster.sh DIR [TRACE] [POLICY,...]
# bound: at any time, what pods would run if none were refused, less the GPUs there are: refused by everybody.
# pool:  the GPUs and the CPU in one piece, first come, first served. No bound, but what is left without
#        fragmentation. pool-8: the same where pods of 8 GPUs are refused, as they are by every policy here: at
#        this load a whole node is never idle, and nothing that fits is refused to make it so.
#   SIZE=N is N times 64 GPUs (six nodes of 8 G2, six of 2 T4, two of 2 P100), ARRIVALS=N (8000 for each 64
#   GPUs), SEEDS="1 2 3".
set -euo pipefail
cd "$(dirname "$0")/.."
dir=${1:?usage: test/small_cluster.sh DIR [TRACE] [POLICY,...]}
trace=${2:-default}
policies=${3:-bid-price,ca-fgd,fgd,bestfit}
replay=${REPLAY:-build/tessera-replay}
size=${SIZE:-1}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

awk -F, -v k="$size" '
	NR == 1 {print; next}
	$5 == "G2" && $4 == 8 && g2++ < 6 * k {print}
	$5 == "T4" && $4 == 2 && t4++ < 6 * k {print}
	$5 == "P100" && $4 == 2 && p100++ < 2 * k {print}' \
	"$dir/openb_node_list_gpu_node.csv" >"$tmp/nodes.csv"

# Arrivals at random, stays log-normal with median 650 s and sigma 1 (test/lib/draw.awk).
cat >"$tmp/draw.awk" <<'AWK'
BEGIN {
	FS = ","
	state = seed * 7919 + 1
	for (i = 0; i < 20; i++)
		draw(2)
}
FNR == 1 {
	file++
	if (file == 2) # not the trace's: some have five columns
		pods_header()
	next
}
file == 1 {gpus += $4; next}
{pod[n++] = $0; milli += $4 * $5}
END {
	gap = 650 * exp(0.5) * milli / n / (0.95 * gpus * 1000)
	for (i = 0; i < arrivals; i++) {
		split(pod[draw(n)], f, ",")
		now += -gap * log((draw(1000000) + 1) / 1000001)
		stay = 1 + int(650 * exp(gaussian()))
		printf "p%d,%s,%s,%s,%s,%s,LS,Running,%d,%d,%d\n", i, f[2], f[3], f[4], f[5], f[6],
			now, now + stay, now
	}
}
AWK

# Both without a policy; one heap of departures each.
cat >"$tmp/pool.awk" <<'AWK'
function push(t, g, c,   i, p) {
	for (i = ++heap; i > 1 && at[p = int(i / 2)] > t; i = p)
		move(p, i)
	at[i] = t; milli[i] = g; cpu[i] = c
}
function move(from, to) {
	at[to] = at[from]; milli[to] = milli[from]; cpu[to] = cpu[from]
}
function pop(   t, g, c, i, k) {
	t = at[heap]; g = milli[heap]; c = cpu[heap]
	heap--
	for (i = 1; (k = 2 * i) <= heap; i = k) {
		if (k < heap && at[k + 1] < at[k])
			k++
		if (at[k] >= t)
			break
		move(k, i)
	}
	at[i] = t; milli[i] = g; cpu[i] = c
}
function pass(t) { # time goes on to t with `load` wanted
	over += load > gpus ? (load - gpus) * (t - now) : 0
	now = t
}
BEGIN {FS = ","}
FNR == 1 {file++; next}
file == 1 {gpus += $4 * 1000; cpus += $2; next}
{
	g = $4 * $5
	while (heap > 0 && at[1] <= $9) {
		pass(at[1])
		load -= milli[1]
		used -= cpu[1] < 0 ? 0 : milli[1]
		used_cpu -= cpu[1] < 0 ? 0 : cpu[1]
		pop()
	}
	pass($9)
	load += g
	asked += g * ($10 - $9)
	fits = $4 < most && used + g <= gpus && used_cpu + $2 <= cpus
	if (fits) {
		used += g
		used_cpu += $2
	} else {
		lost += g * ($10 - $9)
	}
	push($10, g, fits ? $2 : -1)
}
END {
	while (heap > 0) {
		pass(at[1])
		load -= milli[1]
		pop()
	}
	if (most > 8)
		printf "policy: bound\nvalue: %.4f\n", 100 * over / asked
	printf "policy: %s\nvalue: %.4f\n", (most > 8 ? "pool" : "pool-8"), 100 * lost / asked
}
AWK

for seed in ${SEEDS:-1 2 3 4 5 6 7 8 9 10}; do
	awk -v seed="$seed" -v arrivals="$((size * ${ARRIVALS:-8000}))" -f test/lib/draw.awk -f "$tmp/draw.awk" \
		"$tmp/nodes.csv" "$dir/openb_pod_list_$trace.csv" >"$tmp/pods.csv"
	for most in 9 8; do
		awk -v most="$most" -f "$tmp/pool.awk" "$tmp/nodes.csv" "$tmp/pods.csv"
	done
	"$replay" run --nodes "$tmp/nodes.csv" --pods "$tmp/pods.csv" --time trace --queue none \
		--policy "$policies" --json --quiet | tr -d '",' |
		awk '$1 == "policy:" {print}
			$1 == "asked_gpu_h:" {asked = $2}
			$1 == "refused_gpu_h:" {printf "value: %.4f\n", 100 * $2 / asked}'
done | awk '
	$1 == "policy:" {p = $2; if (!(p in n)) name[++names] = p}
	$1 == "value:" {
		n[p]++
		sum[p] += $2
		low[p] = n[p] == 1 || $2 < low[p] ? $2 : low[p]
		high[p] = n[p] == 1 || $2 > high[p] ? $2 : high[p]
	}
	END {
		for (i = 1; i <= names; i++) {
			p = name[i]
			printf "%-12s %6.2f  %6.2f..%.2f\n", p, sum[p] / n[p], low[p], high[p]
		}
	}'
