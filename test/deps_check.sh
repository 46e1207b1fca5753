#!/usr/bin/env bash
# Who may include whom, and what the core may call. Usage: test/deps_check.sh [libtessera-core.a]
set -euo pipefail
cd "$(dirname "$0")/.."

# folder: folders whose headers it may include (its own is always allowed)
declare -A may_include=(
	[base]=""
	[state]="base"
	[fragmentation]="base state"
	[binpack]="base state fragmentation"
	[policy]="base state fragmentation binpack"
	[kube]="base state"
	[enforcer]="base state kube"
	[extender]="base state fragmentation binpack policy kube"
	[replay]="base state fragmentation binpack policy kube"
)
core="base state fragmentation binpack policy"
# System headers of the core: types, memory, strings, formatting into memory.
core_headers="assert.h errno.h inttypes.h limits.h stdarg.h stdbool.h stddef.h stdint.h stdio.h
	regex.h stdlib.h string.h uthash.h"
# Files of base/ that are not for the core: they do I/O or write for the shells; they are in the shell archive, not in the core's.
shell_files="base/log.c base/file.c base/listen.c base/option_table.c base/prom.c"

errors=0
complain() {
	echo "$*"
	errors=$((errors + 1))
}

has() { # has WORD LIST
	[[ " $(echo $2) " == *" $1 "* ]]
}

check_folder() {
	local folder=$1 file line text name target
	while IFS=: read -r file line text; do
		name=$(sed -E 's/^[^"<]*["<]([^">]*)[">].*/\1/' <<<"$text")
		if [[ $text == *\"* ]]; then
			target=${name%%/*}
			if [[ $name != */* ]] || ! [[ -d $target ]]; then
				complain "$file:$line: \"$name\": write it from the root, as \"$folder/$name\""
			elif [ "$target" != "$folder" ] && ! has "$target" "${may_include[$folder]}"; then
				complain "$file:$line: $folder may not include $name"
			fi
		elif has "$folder" "$core" && ! has "$file" "$shell_files" &&
			! has "$name" "$core_headers"; then
			complain "$file:$line: <$name> has no place in the core"
		fi
	done < <(grep -nHE '^[ \t]*#[ \t]*include' "$folder"/*.[ch] 2>/dev/null)
}

for folder in "${!may_include[@]}"; do
	[ -d "$folder" ] && check_folder "$folder"
done

if [ $# -gt 0 ]; then
	allowed=$(grep -vE '^(#|$)' test/core_symbols.txt | paste -sd '|')
	defined=$(nm -g --defined-only "$1" 2>/dev/null | awk 'NF == 3 { print $3 }' | sort -u)
	outside=$(nm -u "$1" 2>/dev/null | awk '$1 == "U" { print $2 }' | sort -u |
		comm -23 - <(echo "$defined") | grep -vxE "$allowed" || true)
	for symbol in $outside; do
		complain "$symbol is not in test/core_symbols.txt; wanted by:" \
			"$(nm -A -u "$1" 2>/dev/null | awk -v s="$symbol" '$NF == s { split($1, p, ":"); print p[2] }' |
				sort -u | paste -sd ' ')"
	done
fi

if [ "$errors" -gt 0 ]; then
	echo "deps-check: $errors violations"
	exit 1
fi
echo "deps-check: clean"
