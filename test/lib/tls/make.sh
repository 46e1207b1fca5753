#!/usr/bin/env bash
# Makes the certificates of the TLS tests again: keys for loopback only, valid for 100 years.
set -euo pipefail
cd "$(dirname "$0")"

ca() { # ca NAME SUBJECT: NAME.crt, and NAME.key in a temporary folder
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 36500 \
		-subj "/CN=$2" -keyout "$tmp/$1.key" -out "$1.crt" 2>/dev/null
}

leaf() { # leaf NAME SUBJECT EXTENSIONS
	openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$2" \
		-keyout "$1.key" -out "$tmp/$1.csr" 2>/dev/null
	openssl x509 -req -in "$tmp/$1.csr" -CA ca.crt -CAkey "$tmp/ca.key" -CAcreateserial \
		-CAserial "$tmp/serial" -days 36500 -out "$1.crt" -extfile <(printf '%s\n' "$3") \
		2>/dev/null
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
ca ca 'Tessera test CA'
ca other 'A CA that signed nothing'
leaf server 'tessera test server' 'subjectAltName=IP:127.0.0.1,DNS:api.test.internal'
leaf client 'tessera test client' 'extendedKeyUsage=clientAuth'
