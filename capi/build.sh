#!/bin/sh
# Builds the shared library:
#     [RELEASE=1.2.3] [PACKAGE=./mine] sh capi/build.sh OUTPUT [FLAGS OF go build]
# PACKAGE is a main package, of any module, that imports package capi and further packages for the library, such as a vendor's driver.
# Only the names in chorus.map are visible in it. libchorus/monitor.c creates its threads, and asks libdl for the system's pthread_create.
set -eu
out=$1
shift
case $out in /*) ;; *) out=$PWD/$out ;; esac
here=$(cd "$(dirname "$0")" && pwd)
[ -n "${PACKAGE:-}" ] || cd "$here"
link="-Wl,--version-script=$here/chorus.map -Wl,-soname,libchorus.so -Wl,-z,nodelete -ldl"
CGO_ENABLED=1 "${GO:-go}" build -buildmode=c-shared -trimpath \
	-ldflags "-s -w -X github.com/chorus-comms/chorus/internal/release.version=${RELEASE:-} -extldflags '$link'" \
	"$@" -o "$out" "${PACKAGE:-./libchorus}"
rm -f "${out%.so}.h" # cgo's own header, of the functions that stay inside
