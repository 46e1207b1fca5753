#!/usr/bin/env bash
# Runs programs that were built by the Makefile and adds up their results.
#
#   test/run.sh suites VARIANT NAME...   Criterion programs build/VARIANT/NAME
#   test/run.sh corpus VARIANT FUZZER... replay test/corpus/<target>/ through fuzz_<target>
#   test/run.sh stress VARIANT NAME...   programs with their own main(), exit status counts
#   test/run.sh canary VARIANT NAME...   programs that must be caught by the sanitizer
#   test/run.sh fuzz FUZZER...           libFuzzer, FUZZ_SECONDS each
#
# Ends with "<what>: N passed, N failed[, N skipped]"; exit status 1 when something failed.
set -euo pipefail
cd "$(dirname "$0")/.."

BUILD=${BUILD:-build}
export ASAN_OPTIONS="abort_on_error=1:detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}"
export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1${TSAN_OPTIONS:+:$TSAN_OPTIONS}"

# The sanitizers of older compilers cannot map their shadow where the kernel randomises widely.
fixed_layout=()
if setarch "$(uname -m)" -R true 2>/dev/null; then
	fixed_layout=(setarch "$(uname -m)" -R)
fi

passed=0 failed=0 skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

finish() {
	local line="$1: $passed passed, $failed failed"
	[ "$skipped" -eq 0 ] || line+=", $skipped skipped"
	echo "$line"
	[ "$failed" -eq 0 ]
}

# run COMMAND...: its status; its output goes to $log.
run() {
	"${fixed_layout[@]}" "$@" >"$log" 2>&1
}

verdict() { # verdict STATUS NAME
	if [ "$1" -eq 0 ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		cat "$log"
		echo "FAILED: $2 (status $1)"
	fi
}

run_suite() {
	local status=0 tested good late
	run "$BUILD/$variant/$1" --color=never || status=$?
	tested=$(sed -n 's/.*Synthesis: Tested: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
	good=$(sed -n 's/.*Synthesis: .*Passing: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
	# Criterion counts a test as passed that leaks, or dies for another reason after its end.
	late=$(grep -c 'crashed during its setup or teardown' "$log" || true)
	tested=${tested:-0}
	good=$((${good:-0} > late ? good - late : 0))
	passed=$((passed + good))
	failed=$((failed + tested - good))
	if [ "$status" -ne 0 ] || [ "$tested" -eq 0 ] || [ "$late" -gt 0 ]; then
		cat "$log"
		# Once more at the end, where a reader of a long log looks first.
		grep -nE 'FAIL|crashed|Sanitizer|runtime error|Assertion|Unexpected signal' "$log" |
			tail -n 20 | cut -c 1-300 || true
		echo "FAILED: $1 ($variant), status $status"
		[ "$tested" -ne "$good" ] || failed=$((failed + 1)) # the suite as a whole
	fi
}

run_canary() { # passes when the program fails with the report that belongs to it
	local status=0 report
	case $1 in
	leak) report='LeakSanitizer: detected memory leaks' ;;
	race) report='ThreadSanitizer: data race' ;;
	*) echo "unknown canary $1" >&2; exit 2 ;;
	esac
	run "$BUILD/$variant/canary/$1" || status=$?
	if [ "$status" -ne 0 ] && grep -q "$report" "$log"; then
		verdict 0 "$1"
	else
		verdict 1 "canary $1: the sanitizer did not report it"
	fi
}

run_corpus() { # one check for each input
	local dir="test/corpus/${1#fuzz_}" status=0 count
	if [ ! -d "$dir" ]; then
		echo "FAILED: $1 has no corpus in $dir"
		failed=$((failed + 1))
		return
	fi
	count=$(find "$dir" -type f | wc -l)
	run "$BUILD/$variant/corpus/$1" "$dir" || status=$?
	if [ "$status" -eq 0 ]; then
		passed=$((passed + count))
	else
		verdict "$status" "$1 on $dir"
	fi
}

run_fuzz() { # new inputs stay in build/fuzz/corpus/, crashes in build/fuzz/crash/
	local target=${1#fuzz_} status=0 extra=()
	mkdir -p "$BUILD/fuzz/corpus/$target" "$BUILD/fuzz/crash" "test/corpus/$target"
	[ ! -f "test/fuzz/$1.dict" ] || extra+=("-dict=test/fuzz/$1.dict")
	run "$BUILD/fuzz/$1" -max_total_time="${FUZZ_SECONDS:-30}" -timeout=10 -print_final_stats=1 \
		-artifact_prefix="$BUILD/fuzz/crash/$target-" "${extra[@]}" \
		"$BUILD/fuzz/corpus/$target" "test/corpus/$target" || status=$?
	grep -E 'stat::number_of_executed_units' "$log" | sed "s/^/$target /" || true
	verdict "$status" "$1"
}

what=${1:?see the head of this file}
shift
if [ "$what" = fuzz ]; then
	variant=fuzz
else
	variant=${1:?variant}
	shift
fi
for name in "$@"; do
	status=0
	case $what in
	suites) run_suite "$name" ;;
	corpus) run_corpus "$name" ;;
	canary) run_canary "$name" ;;
	fuzz) run_fuzz "$name" ;;
	stress)
		run "$BUILD/$variant/$name" || status=$?
		verdict "$status" "$name ($variant)"
		;;
	*) echo "unknown: $what" >&2; exit 2 ;;
	esac
done
finish "$what ($variant)"
