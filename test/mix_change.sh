#!/usr/bin/env bash
# A mix that changes all at once: the pods of one openb trace, then those of another. Prints per policy
# and workload (given: the mean of both mixes; learned) the mean and the spread over ten seeds.
#   test/mix_change.sh fill DIR FROM TO [POLICY,...]    FROM until 50 % of the GPUs are asked for, then TO
#                                                       until 130 %: GPU in use at 100 and 130 %
#   test/mix_change.sh flow DIR FROM TO [POLICY,...]    30,000 pods of FROM, then as many of TO; they stay,
#                                                       95 % load; GPU-hours refused of those asked for
#   SEEDS="1 2 3" chooses other seeds, NODES=FILE another cluster, ARRIVALS=N another number for flow.
set -euo pipefail
cd "$(dirname "$0")/.."
usage='usage: test/mix_change.sh fill|flow DIR FROM TO [POLICY,...]'
kind=${1:?$usage} dir=${2:?$usage} from=${3:?$usage} to=${4:?$usage}
policies=${5:-bid-price,ca-fgd,fgd,bestfit,packing,clustering,dotprod}
nodes=${NODES:-$dir/openb_node_list_gpu_node.csv}
replay=${REPLAY:-build/tessera-replay}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# Pods drawn at random (test/lib/draw.awk). fill writes the pods once and an
# order file; flow a table of arrivals with their times.
cat >"$tmp/draw.awk" <<'AWK'
function pod(t, k,   row, f) { # the k-th pod of trace t; returns its GPU milli
	split(rows[t, k], f, ",")
	name = "t" t "-" f[1]
	rest = f[2] "," f[3] "," f[4] "," f[5] "," f[6] ",LS,Running,"
	return f[4] * f[5]
}
BEGIN {
	FS = ","
	state = seed * 7919 + 1
	for (k = 0; k < 20; k++)
		draw(2)
}
FNR == 1 {file++; next}
file == 1 {node[nodes++] = $1; gpus += $4; next}
{rows[file - 1, n[file - 1]++] = $0; milli[file - 1] += $4 * $5}
function fill(   t, k, asked, i, j, x, lines) {
	for (t = 1; t <= 2; t++)
		while (asked < gpus * (t == 1 ? 500 : 1300)) {
			asked += pod(t, draw(n[t]))
			line[lines++] = name
		}
	print "pods " lines " req " asked >order
	for (k = 0; k < lines; k++)
		print line[k] >order
	print "nodes " nodes >order
	for (i = 0; i < nodes; i++)
		rank[i] = i
	for (i = nodes - 1; i > 0; i--) {
		j = draw(i + 1)
		x = rank[i]
		rank[i] = rank[j]
		rank[j] = x
	}
	for (i = 0; i < nodes; i++)
		printf "%04d-%s\n", rank[i], node[i] >order
	pods_header()
	for (t = 1; t <= 2; t++)
		for (k = 0; k < n[t]; k++) {
			pod(t, k)
			print name "," rest "0,1,0"
		}
}
function flow(   t, k, now, stay, mean, gap) { # stays: log-normal, median 650 s, sigma 1
	pods_header()
	mean = 650 * exp(0.5)
	for (t = 1; t <= 2; t++) {
		gap = mean * milli[t] / n[t] / (0.95 * gpus * 1000)
		for (k = 0; k < arrivals; k++) {
			pod(t, draw(n[t]))
			now += -gap * log((draw(1000000) + 1) / 1000001)
			stay = 1 + int(650 * exp(gaussian()))
			printf "%s-%d,%s%d,%d,%d\n", name, k, rest, now, now + stay, now
		}
	}
}
END {if (order != "") fill(); else flow()}
AWK

one() { # SEED WORKLOAD
	local args=(--nodes "$nodes" --pods "$tmp/pods.csv" --workload "$2" --policy "$policies" --quiet)
	if [ "$kind" = fill ]; then
		"$replay" run "${args[@]}" --order "$tmp/order" --json
	else
		"$replay" run "${args[@]}" --time trace --queue none --json
	fi
}
for seed in ${SEEDS:-42 43 44 45 46 47 48 49 50 51}; do
	order=
	[ "$kind" = fill ] && order=$tmp/order
	awk -v seed="$seed" -v order="$order" -v arrivals="${ARRIVALS:-30000}" -f test/lib/draw.awk -f "$tmp/draw.awk" \
		"$nodes" "$dir/openb_pod_list_$from.csv" "$dir/openb_pod_list_$to.csv" >"$tmp/pods.csv"
	for workload in trace online; do
		one "$seed" "$workload" >"$tmp/$workload-$seed.json"
	done
done

for workload in trace online; do
	cat "$tmp/$workload"-*.json | tr -d '",' | awk -v kind="$kind" -v workload="$workload" '
		$1 == "policy:" {p = $2; if (!(p in n)) name[++names] = p; n[p]++; in_alloc = 0}
		$1 == "alloc_pct:" {in_alloc = 1}
		$1 == "frag_pct:" {in_alloc = 0}
		in_alloc && $1 == "100:" {add(p, $2)}
		in_alloc && $1 == "130:" {late[p] += $2}
		$1 == "asked_gpu_h:" {asked = $2}
		$1 == "refused_gpu_h:" {add(p, 100 * $2 / asked)}
		function add(p, v) {
			sum[p] += v
			low[p] = n[p] == 1 || v < low[p] ? v : low[p]
			high[p] = n[p] == 1 || v > high[p] ? v : high[p]
		}
		END {
			for (i = 1; i <= names; i++) {
				p = name[i]
				printf "%-6s %-10s %6.2f  %6.2f..%-6.2f", workload, p, sum[p] / n[p], low[p], high[p]
				printf kind == "fill" ? "  %6.2f\n" : "\n", late[p] / n[p]
			}
		}'
done
