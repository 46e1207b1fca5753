#!/usr/bin/env bash
# Runs the steps of the Dockerfiles in chroots, as an image builder would, and looks at what comes out:
# it starts, as the user it is for, on a read-only root without network, and there is nothing else in it.
#
#   test/images.sh [NAME...]      default: all of deploy/docker/Dockerfile.NAME
#
# The base image's part is played by this machine's own root, read through an overlay; packages that are
# installed here are not fetched again. Needs root and a Debian; else skipped. BUILD (default build)
# keeps the objects for the next run.
set -euo pipefail
cd "$(dirname "$0")/.."
top=$PWD
cache=${BUILD:-build}/images
passed=0 failed=0

skip() {
	echo "images: skipped: $1"
	echo "images: 0 passed, 0 failed, 1 skipped"
	exit 77
}

if [ "${TESSERA_IMAGES_INSIDE:-}" = "" ]; then
	[ "$(id -u)" -eq 0 ] || skip "chroots are for root"
	[ -e /etc/debian_version ] || skip "this is no Debian"
	unshare -mn true 2>/dev/null || skip "no mount namespaces here"
	TESSERA_IMAGES_INSIDE=1 exec unshare -m --propagation private "$0" "$@"
fi

mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
work=$(mktemp -d)
mount -t tmpfs -o mode=755 images "$work"
trap 'umount -l "$work"; rmdir "$work" 2>/dev/null || true' EXIT

check() { # check WHAT COMMAND...
	local what=$1
	shift
	if "$@" >"$work/log" 2>&1; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "FAILED: $name: $what"
		sed 's/^/    /' "$work/log"
	fi
}

# ---- the builder ----

# The instructions of a Dockerfile, a line each, without comments.
instructions() {
	sed -E '/^[[:space:]]*#/d' "$1" | sed -e ':a' -e '/\\$/N; s/\\\n//; ta' | sed '/^[[:space:]]*$/d'
}

begin_stage() { # begin_stage IMAGE NAME
	stage=${2:-final}
	root=$work/$name/$stage
	workdir=/
	mkdir -p "$root"
	case $1 in
	scratch) return ;;
	debian:*) ;;
	*) echo "FROM $1: only Debian is known here"; return 1 ;;
	esac
	mkdir -p "$root.upper" "$root.work"
	mount -t overlay -o "lowerdir=/,upperdir=$root.upper,workdir=$root.work" base "$root"
	mount -t proc proc "$root/proc"
	mount --rbind /dev "$root/dev"
}

packages_of() { # the packages that an apt-get install names
	sed -E 's/.*apt-get install//' <<<"$1" | tr -s ' \t' '\n' | grep -E '^[a-z0-9]'
}

run_step() {
	local package
	if [[ $1 = apt-get\ update* ]]; then
		for package in $(packages_of "$1"); do
			[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || break
			package=
		done
		[ -n "${package:-}" ] || return 0
	fi
	chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
		/bin/sh -c "cd '$workdir' && $1"
}

copy() { # copy [--from=STAGE] FROM TO
	local from=$top
	if [[ $1 = --from=* ]]; then
		from=$work/$name/${1#--from=}
		shift
		cp -a "$from$1/." "$root$2"
		return
	fi
	[ "$1" = . ] || { echo "COPY $1: only . is known here"; return 1; }
	# The context: what .dockerignore leaves. The objects of the last run take the place of none.
	tar -C "$from" -c $(sed 's#^/#--exclude=./#' .dockerignore) . | tar -C "$root$workdir" -x
	mkdir -p "$root$workdir/build"
	mount --bind "$cache" "$root$workdir/build"
}

build_image() { # build_image DOCKERFILE; sets stage, root, user and entry of the last stage
	local line word rest base=
	user=0:0 entry=
	while read -r line; do
		word=${line%% *} rest=${line#* }
		case $word in
		ARG) base=${rest#BASE=} ;;
		FROM) rest=${rest/'${BASE}'/$base}; begin_stage "${rest%% *}" "$(sed -nE 's/.* AS (.*)/\1/p' <<<"$rest")" ;;
		RUN) run_step "$(tr -s '\t' ' ' <<<"$rest")" ;;
		WORKDIR) workdir=$rest; mkdir -p "$root$workdir" ;;
		COPY) copy $rest ;;
		USER) user=$rest ;;
		ENTRYPOINT) entry=$(tr -d '[]"' <<<"$rest") ;;
		EXPOSE | CMD) ;;
		*) echo "$word: not known here"; return 1 ;;
		esac || return 1
	done < <(instructions "$1")
}

# ---- the image ----

# start ARGUMENT...: the entry point as the image's user, root read-only, no network, nothing around it.
start() {
	unshare -mn --propagation private sh -c '
		root=$1 user=$2 files=$3; shift 3
		mount --bind "$root" "$root" && mount -o remount,bind,ro "$root"
		[ -z "$files" ] || mount --bind "$files" "$root/tmp"
		ip link set lo up 2>/dev/null || true
		exec timeout "$LIMIT" chroot --userspec="$user" "$root" "$@"' start "$root" "$user" "$files" "$entry" "$@"
}

says() { # says TEXT ARGUMENT...: it starts, and prints that
	local text=$1 out
	shift
	out=$(start "$@" 2>&1) || { echo "status $?: $out"; return 1; }
	grep -qF -- "$text" <<<"$out" || { echo "\"$text\" is not in: $out"; return 1; }
}

serves() { # serves TEXT ARGUMENT...: it runs until it is stopped, and prints that
	local text=$1 out
	shift
	out=$(LIMIT=2 start "$@" 2>&1 || true)
	grep -qF -- "$text" <<<"$out" || { echo "\"$text\" is not in: $out"; return 1; }
}

# Programs, libraries that one of them needs, and the files that tree.sh writes: nothing else.
nothing_else() {
	local file needed bad=0
	needed=$(for file in "$root"/usr/bin/*; do
		LC_ALL=C ldd "$work/$name/build/src/build/release/${file##*/}" 2>/dev/null
	done | sed -nE 's#.*(=> |^[[:space:]]*)(/[^ ]+) \(0x.*#\2#p')
	while read -r file; do
		case ${file#"$root"} in
		/usr/bin/tessera-* | /etc/passwd | /etc/group | /etc/nsswitch.conf) ;;
		*) grep -qxF "${file#"$root"}" <<<"$needed" || { echo "${file#"$root"}"; bad=1; } ;;
		esac
	done < <(find "$root" -type f -o -type l)
	return "$bad"
}

not_root() {
	[ "${user%%:*}" -ge 1000 ] || { echo "it is for user $user"; return 1; }
}

build_checked() {
	if build_image "deploy/docker/Dockerfile.$name" >"$work/log" 2>&1; then
		passed=$((passed + 1))
		return 0
	fi
	failed=$((failed + 1))
	echo "FAILED: $name does not build"
	sed 's/^/    /' "$work/log"
	return 1
}

export LIMIT=20
files=
all=("$@")
[ $# -gt 0 ] || all=($(ls deploy/docker | sed -n 's/^Dockerfile\.//p'))
version=$(sed -nE 's/.*TESSERA_VERSION "(.*)"/\1/p' base/version.h)
for name in "${all[@]}"; do
	build_checked || continue
	check "it prints its version" says "$version" --version
	check "nothing else is in it" nothing_else
	if [ "$name" = extender ]; then
		check "it is not for root" not_root
		files=$work/files
		mkdir -p "$files"
		deploy/certificates.sh "$files/tls" >/dev/null
		chmod -R a+rX "$files"
		cp deploy/demo/cluster.json "$files/"
		tls=(--tls-cert=/tmp/tls/tls.crt --tls-key=/tmp/tls/tls.key --tls-client-ca=/tmp/tls/ca.crt)
		check "--check-config" says "" --cluster=/tmp/cluster.json "${tls[@]}" --check-config
		check "it serves" serves "listening on https://" --cluster=/tmp/cluster.json "${tls[@]}" \
			--listen=127.0.0.1:8443
		files=
	fi
	echo "$name: $(du -sm --apparent-size "$root" | cut -f1) MB, $(find "$root" -type f | wc -l) files"
done
echo "images: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
