#!/usr/bin/env bash
# The table of the README: mean GPU in use at 100 % and 130 % arrived load over the ten arrival orders.
#   test/openb_table.sh DIR [TRACE] [POLICY,...]    DIR has the CSV files and orders/TRACE_SEED.txt
set -euo pipefail
cd "$(dirname "$0")/.."
dir=${1:?usage: test/openb_table.sh DIR [TRACE] [POLICY,...]}
trace=${2:-default}
policies=${3:-ca-fgd,fgd,bid-price,bestfit,packing,clustering,dotprod}
for order in "$dir"/orders/"${trace}"_*.txt; do
	build/tessera-replay run --nodes "$dir/openb_node_list_gpu_node.csv" \
		--pods "$dir/openb_pod_list_$trace.csv" --order "$order" --policy "$policies" \
		--quiet | awk -v known=",$policies," '
			$1 == "policy" {head = 1; next}
			head && index(known, "," $1 ",") {print $1, $9, $12}'
done | awk '
	!($1 in n) {name[++names] = $1}
	{n[$1]++; a[$1] += $2; b[$1] += $3}
	END {
		printf "%-12s %8s %8s %6s\n", "policy", "@100 %", "@130 %", "orders"
		for (i = 1; i <= names; i++)
			printf "%-12s %8.2f %8.2f %6d\n", name[i], a[name[i]] / n[name[i]],
				b[name[i]] / n[name[i]], n[name[i]]
	}'
