#!/bin/sh
# Makes the root of an image: programs, the libraries they are linked with, and three small files.
#
#   deploy/docker/tree.sh DIR PROGRAM...     programs go to DIR/usr/bin
set -eu

dir=$1
shift
mkdir -p "$dir/usr/bin" "$dir/etc" "$dir/tmp"
chmod 1777 "$dir/tmp"
install -m 755 -s "$@" "$dir/usr/bin/"
for program; do
	# "name => /path (0x...)", and the loader as "/path (0x...)"; a static program has none.
	ldd "$program" 2>/dev/null | sed -nE 's#.*(=> |^[[:space:]]*)(/[^ ]+) \(0x.*#\2#p'
done | sort -u | while read -r library; do
	mkdir -p "$dir${library%/*}"
	cp -L "$library" "$dir$library"
done
# Names of hosts by DNS, and a name for the user.
echo 'hosts: files dns' >"$dir/etc/nsswitch.conf"
printf '%s\n' root:x:0:0::/:/none nonroot:x:65532:65532::/:/none >"$dir/etc/passwd"
printf '%s\n' root:x:0: nonroot:x:65532: >"$dir/etc/group"
