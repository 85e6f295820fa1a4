#!/usr/bin/env bash
# Prints the licences of what a built Chorus contains besides itself: Go, and the modules that the library and the command import.
#   bash scripts/licences.sh > LICENSE-THIRD-PARTY
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
one() { printf '%s\n%s\n\n' "$1" "$(printf '%*s' ${#1} '' | tr ' ' =)"; cat "$2"; echo; }
printf 'What is built from Chorus, the library and the command, contains these as well.\n\n'
one "Go, its runtime and standard library (https://go.dev)" "$($GO env GOROOT)/LICENSE"
CGO_ENABLED=1 $GO list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}' ./capi/libchorus ./cmd/chorus | sort -u |
	while read -r module dir; do one "$module" "$dir"/LICENSE*; done
