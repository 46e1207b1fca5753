#!/usr/bin/env bash
# Makes the certificates of an installation with openssl: an authority of its own, what the extender
# shows, and what the kube-scheduler shows the extender. `kubectl apply -k` puts them into Secrets and
# the authority into the webhook configurations.
#
#   deploy/certificates.sh [-n NAMESPACE] [-d DAYS] [DIR [NAME...]]
#
# DIR (default: tls/ beside this script) gets ca.crt, tls.crt, tls.key, client.crt and client.key. The
# authority's own key is deleted: a new certificate is a new authority, and all files are made together.
# NAME: more names for the extender, e.g. DNS:gpu.example.com or IP:10.96.0.7. Default: 730 days, kube-system.
set -euo pipefail

namespace=kube-system days=730
while getopts n:d: option; do
	case $option in
	n) namespace=$OPTARG ;;
	d) days=$OPTARG ;;
	*) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
	esac
done
shift $((OPTIND - 1))
dir=${1:-$(dirname "$0")/tls}
[ $# -eq 0 ] || shift

service=tessera-extender.$namespace
names="DNS:tessera-extender,DNS:$service,DNS:$service.svc,DNS:$service.svc.cluster.local"
for name in "$@"; do
	names+=",$name"
done

umask 077
mkdir -p "$dir"
work=$(mktemp -d "$dir/.new.XXXXXX")
trap 'rm -rf "$work"' EXIT

key() { # key FILE
	openssl ecparam -name prime256v1 -genkey -noout -out "$work/$1"
}

sign() { # sign NAME SUBJECT EXTENSIONS
	key "$1.key"
	openssl req -new -key "$work/$1.key" -subj "$2" -out "$work/$1.csr"
	openssl x509 -req -in "$work/$1.csr" -CA "$work/ca.crt" -CAkey "$work/ca.key" \
		-CAcreateserial -days "$days" -sha256 -out "$work/$1.crt" -extfile <(printf '%s\n' \
		'basicConstraints=critical,CA:FALSE' 'keyUsage=critical,digitalSignature' "$3") 2>/dev/null
}

key ca.key
openssl req -x509 -new -key "$work/ca.key" -sha256 -days "$days" -subj "/CN=tessera authority" \
	-addext "keyUsage=critical,keyCertSign,cRLSign" -out "$work/ca.crt"
sign tls "/CN=$service.svc" "extendedKeyUsage=serverAuth
subjectAltName=$names"
sign client "/CN=tessera-scheduler" "extendedKeyUsage=clientAuth"
for file in ca.crt tls.crt tls.key client.crt client.key; do
	mv "$work/$file" "$dir/$file"
done
echo "$dir: valid for $days days, for $names"
