#!/usr/bin/env bash
# Functions that nobody may call, and floating point in the core. Prints file:line: what and why.
set -euo pipefail
cd "$(dirname "$0")/.."

folders=(base state fragmentation binpack policy kube extender enforcer replay bench test)
core='^(base|state|fragmentation|binpack|policy)/'
status=0

mapfile -t files < <(find "${folders[@]}" -name '*.[ch]' 2>/dev/null | sort)
code=$(awk -f test/strip.awk "${files[@]}")

forbid() { # forbid PATTERN WHY [ONLY_IN]
	local hits
	hits=$(grep -E "^[^:]*:[0-9]+:.*$1" <<<"$code" | grep -E "${3:-.}" || true)
	if [ -n "$hits" ]; then
		sed "s|\$|   <- $2|" <<<"$hits"
		status=1
	fi
}

call() { # the word as a function, not as a part of another name
	echo "(^|[^A-Za-z0-9_])($1)[ \t]*\\("
}

forbid "$(call 'atoi|atol|atoll|atof')" 'no error report: integer_parse(), quantity_parse()'
forbid "$(call 'sprintf|vsprintf|gets')" 'no bound: snprintf(), buf_printf()'
forbid "$(call 'strcpy|strcat|stpcpy')" 'no bound: memcpy(), buf_puts()'
forbid "$(call 'strtok')" 'hidden state: strcspn(), strsep()'
forbid "$(call 'rand|srand|random')" 'not reproducible: base/rng.h'
forbid '(->|\.)valueint([^A-Za-z0-9_]|$)' 'saturates at INT_MAX: read valuedouble or the text'
forbid '(^|[^A-Za-z0-9_])(float|double)([^A-Za-z0-9_]|$)' 'the core uses scaled integers' "$core"
forbid '(^|[^A-Za-z0-9_.])([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?[fFlL]?([^A-Za-z0-9_.]|$)' \
	'the core uses scaled integers' "$core"

[ "$status" -eq 0 ] && echo "banned: none in ${#files[@]} files"
exit "$status"
