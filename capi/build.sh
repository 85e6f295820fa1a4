#!/bin/sh
# Builds the shared library: sh capi/build.sh OUTPUT [FLAGS OF go build]
# Only what chorus.map lists is visible in it; its threads are created by monitor.c.
set -eu
out=$1
shift
case $out in /*) ;; *) out=$PWD/$out ;; esac
cd "$(dirname "$0")"
CGO_ENABLED=1 "${GO:-go}" build -buildmode=c-shared -trimpath \
	-ldflags "-s -w -extldflags '-Wl,--version-script=$PWD/chorus.map -Wl,--wrap=pthread_create -Wl,-soname,libchorus.so -Wl,-z,nodelete'" \
	"$@" -o "$out" .
rm -f "${out%.so}.h" # cgo's own header, of the functions that stay inside
