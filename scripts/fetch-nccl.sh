#!/bin/bash
# Fetches versions of NCCL, as wheels from PyPI, into a cache outside of the tree, for the tests of comm/nccl that load
# real libraries. A version is about 300 MB to fetch and 400 MB on disk; what can't be had is left out with a word.
#
#	scripts/fetch-nccl.sh [version...]
set -u
cache=${CHORUS_TEST_NCCL:-${XDG_CACHE_HOME:-$HOME/.cache}/chorus-nccl}
[ $# -gt 0 ] || set -- 2.18.3 2.19.3 2.27.7 2.28.3 2.28.9 2.29.3 2.29.7 2.32.3
mkdir -p "$cache" || exit 1
for v; do
	to=$cache/NCCL-$v
	[ -e "$to/libnccl.so.2" ] && continue
	work=$(mktemp -d)
	if "${PYTHON:-python3}" -m pip download -q --disable-pip-version-check --no-deps -d "$work" \
		"nvidia-nccl-cu12==$v" 2>"$work/log" &&
		"${PYTHON:-python3}" -m zipfile -e "$work"/*.whl "$work/wheel" && mkdir -p "$to" &&
		mv "$work/wheel/nvidia/nccl/lib/libnccl.so.2" "$to/"; then
		echo "NCCL $v: $to"
	else
		echo "left out: NCCL $v: $(tail -1 "$work/log")"
	fi
	rm -rf "$work"
done
# Debian's RCCL, of this release or else of trixie, whose file can be looked into where its libraries aren't.
rccl() {
	apt-get download -q librccl1 >log 2>&1 && return
	mkdir -p lists/partial cache/archives/partial
	echo "deb https://deb.debian.org/debian trixie main" >list
	set -- -q -o Dir::Etc::SourceList="$PWD/list" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$PWD/lists" \
		-o Dir::Cache="$PWD/cache"
	apt-get "$@" update >log 2>&1 && apt-get "$@" download librccl1 >>log 2>&1
}
if [ ! -e "$cache/RCCL/librccl.so.1" ]; then
	work=$(mktemp -d)
	if (cd "$work" && rccl && dpkg-deb -x librccl1*.deb root) &&
		mkdir -p "$cache/RCCL" && find "$work/root" -name 'librccl.so.1*' -exec cp -P {} "$cache/RCCL/" \;; then
		echo "RCCL: $cache/RCCL"
	else
		echo "left out: RCCL: the package librccl1 can't be had here"
	fi
	rm -rf "$work"
fi
