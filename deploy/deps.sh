#!/usr/bin/env bash
# Installs what building and testing needs on Debian and Ubuntu; does nothing when all is there.
set -euo pipefail

packages=(
	build-essential pkg-config
	libmicrohttpd-dev libcjson-dev uthash-dev libcurl4-openssl-dev libyaml-dev zlib1g-dev
	libprotobuf-c-dev protobuf-c-compiler
	libcriterion-dev
	clang clang-format clang-tidy
)

# For the end-to-end tests of the node agent. Where another package brings the command, that one stays:
# Docker's containerd.io has its own runc, and busybox-static takes the place of busybox.
command -v runc >/dev/null || packages+=(runc)
command -v busybox >/dev/null || packages+=(busybox-static)

installed() {
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null || true)" = installed ]
}

# The sanitizer and fuzzer run-time of clang is a package with clang's own number; the "clang"
# package depends on that number ("clang-14"), installed or not.
clang_rt_package() {
	local version
	version=$(apt-cache depends clang 2>/dev/null |
		sed -n 's/.*Depends: clang-\([0-9][0-9]*\)$/\1/p' | head -n 1)
	[ -n "$version" ] || return 0
	if [ -n "$(apt-cache policy "libclang-rt-$version-dev" 2>/dev/null)" ]; then
		echo "libclang-rt-$version-dev"
	else
		echo "libclang-common-$version-dev" # before LLVM 14 the run-time came with it
	fi
}

if ! command -v dpkg-query >/dev/null; then
	echo "deps: this is not a Debian or Ubuntu system; install the counterparts of:" >&2
	printf '  %s\n' "${packages[@]}" >&2
	exit 1
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
	as_root=(sudo)
fi

missing_packages() {
	local p
	for p in "${packages[@]}" $(clang_rt_package); do
		installed "$p" || echo "$p"
	done
}

missing=$(missing_packages)
if [ -z "$missing" ]; then
	echo "deps: all packages are installed"
	exit 0
fi
echo "deps: apt-get update"
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q
missing=$(missing_packages) # the clang number is known for certain only now
echo "deps: apt-get install" $missing
# shellcheck disable=SC2086 # one word a package
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
	apt-get install -y -q --no-install-recommends $missing
