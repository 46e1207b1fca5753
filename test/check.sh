#!/usr/bin/env bash
# `make check`: every check of the tree, one after the other, going on after a failure. The last
# line is "N passed, N failed[, N skipped]" over all test cases and single checks.
# JOBS=2 sets the parallel jobs; what is built stays in build/check/ for the next run.
set -euo pipefail
cd "$(dirname "$0")/.."

BUILD=${BUILD:-build}
JOBS=${JOBS:-$(nproc)}
# Formatter and linter differ between versions; the tree is kept clean with this one.
CLANG_TOOLS_VERSION=14

out="$BUILD/check"
log="$out/stage.log"
mkdir -p "$out"
unset MAKEFLAGS MAKELEVEL MFLAGS BUILD # this is not part of the make that may have called us

gcc=(make --no-print-directory -k -j "$JOBS" --output-sync=target WERROR=1 CC=gcc BUILD="$out/gcc")
clang=(make --no-print-directory -k -j "$JOBS" --output-sync=target WERROR=1 CC=clang BUILD="$out/clang")

total_passed=0 total_failed=0 total_skipped=0
stage_number=0
stage_count=$(grep -cE '^stage ' "$0")

# Adds up lines "<what>: N passed, N failed[, N skipped]" of the log; a stage without one counts as
# one check by its exit status.
stage() { # stage NAME COMMAND...
	local name=$1 status=0 start=$SECONDS passed failed skipped summary
	shift
	stage_number=$((stage_number + 1))
	echo "[$stage_number/$stage_count] $name"
	("$@") >"$log" 2>&1 </dev/null || status=$?
	read -r passed failed skipped < <(sed -nE \
		's/^[^:]*: ([0-9]+) passed, ([0-9]+) failed(, ([0-9]+) skipped)?$/\1 \2 \4/p' "$log" |
		awk '{ p += $1; f += $2; s += $3; n++ }
			END { if (n) print p + 0, f + 0, s + 0; else print "none 0 0" }')
	if [ "$passed" = none ]; then
		passed=0
		case $status in
		0) passed=1 ;;
		77) skipped=1 ;;
		*) failed=1 ;;
		esac
	elif [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then
		failed=1
	fi
	summary="$passed passed"
	[ "$failed" -eq 0 ] || summary+=", $failed FAILED"
	[ "$skipped" -eq 0 ] || summary+=", $skipped skipped"
	if [ "$failed" -gt 0 ]; then
		sed 's/^/    /' "$log"
	elif [ "$skipped" -gt 0 ]; then
		tail -n 1 "$log" | sed 's/^/    /'
	fi
	echo "    $summary ($((SECONDS - start)) s)"
	total_passed=$((total_passed + passed))
	total_failed=$((total_failed + failed))
	total_skipped=$((total_skipped + skipped))
}

have_clang_tool() { # the tool in the version that counts; else says so and returns 77
	local version
	version=$("$1" --version 2>/dev/null | sed -nE 's/.*version ([0-9]+)\..*/\1/p' | head -n 1)
	if [ "$version" != "$CLANG_TOOLS_VERSION" ]; then
		echo "$1 $CLANG_TOOLS_VERSION is not here (found: ${version:-none})"
		return 77
	fi
}

check_format() {
	have_clang_tool clang-format && "${gcc[@]}" format-check
}

check_tidy() {
	have_clang_tool clang-tidy && "${gcc[@]}" tidy
}

build_clang() {
	if ! command -v clang >/dev/null; then
		echo "clang is not here"
		return 77
	fi
	"${clang[@]}" programs tests benches replays fuzzers VARIANT=release
}

test_clang() {
	if ! command -v clang >/dev/null; then
		echo "clang is not here"
		return 77
	fi
	"${clang[@]}" test VARIANT=release
}

stage "format" check_format
stage "clang-tidy" check_tidy
stage "include directions, symbols of the core" "${gcc[@]}" deps-check
stage "banned functions, floats in the core" "${gcc[@]}" banned
stage "headers stand alone" "${gcc[@]}" headers
stage "build (gcc, -Werror)" "${gcc[@]}" programs tests benches VARIANT=release
stage "build (clang, -Werror)" build_clang
stage "report in a headless browser" env BUILD="$out/gcc" test/report_browser.sh
stage "tests (release, gcc)" "${gcc[@]}" test VARIANT=release
stage "tests (release, clang)" test_clang
stage "tests (asan, ubsan)" "${gcc[@]}" test VARIANT=asan
stage "corpus replay (asan, ubsan)" "${gcc[@]}" corpus VARIANT=asan
stage "leak canary (asan)" "${gcc[@]}" canary-leak
stage "stress and race canary (tsan)" "${gcc[@]}" tsan
stage "images, in chroots" env BUILD="$out" test/images.sh

summary="$total_passed passed, $total_failed failed"
[ "$total_skipped" -eq 0 ] || summary+=", $total_skipped skipped"
echo "$summary"
[ "$total_failed" -eq 0 ]
