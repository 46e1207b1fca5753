#!/usr/bin/env bash
# Opens reports of tessera-replay in a headless Chromium and fails on anything its console says.
#   test/report_browser.sh      CHROMIUM=program names the browser, CHROMIUM_FLAGS=... more options for
#                               it; without one it is skipped (77)
set -euo pipefail
cd "$(dirname "$0")/.."
browser=${CHROMIUM:-}
for name in chromium-headless-shell chromium chromium-browser google-chrome; do
	[ -n "$browser" ] || browser=$(command -v "$name" || true)
done
if [ -z "$browser" ]; then
	echo "report in a browser: skipped, there is no Chromium (CHROMIUM=program names one)"
	exit 77
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for how in "--seed 1-3" "--time made --arrivals 500"; do
	# shellcheck disable=SC2086
	"${BUILD:-build}/release/tessera-replay" run --nodes test/golden/small/nodes.csv \
		--pods test/golden/small/pods.csv --policy ca-fgd,bestfit --quiet $how \
		--html "$dir/report.html" >"$dir/table"
	# shellcheck disable=SC2086
	timeout 180 "$browser" --headless --no-sandbox ${CHROMIUM_FLAGS:-} --disable-gpu --disable-dev-shm-usage --no-zygote \
		--user-data-dir="$dir/profile" --enable-logging=stderr --virtual-time-budget=2000 \
		--dump-dom "file://$dir/report.html" >"$dir/dom" 2>"$dir/log" || {
		tail -5 "$dir/log"
		echo "report in a browser: the browser failed"
		exit 1
	}
	if grep 'CONSOLE' "$dir/log"; then
		echo "report in a browser: the console is not empty"
		exit 1
	fi
	if [ "$(grep -c '<figure>' "$dir/dom")" -lt 5 ]; then
		echo "report in a browser: charts are missing"
		exit 1
	fi
done
echo "report in a browser: ok"
