#!/usr/bin/env bash
# Checks that the sources of the device's extension compile in any grouping. setup.py joins them in as many pieces as there
# are processors, the largest first. Any two may meet in one piece, so all must compile as one file. With CHORUS_TEST_LONG=1
# they compile in 16 pieces as well, which finds a source that relies on the headers of another.
set -euo pipefail
python=$(realpath -s "${PYTHON:-python3}")
cd "$(dirname "$0")/../python/device/csrc"
command -v "${CXX:-c++}" >/dev/null || exit 0
torch=$("$python" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')/include
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
flags=(-std=c++20 -fsyntax-only -I. -I../../../capi -isystem"$torch" -isystem"$torch/torch/csrc/api/include"
	-I"$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')")
pieces=1${CHORUS_TEST_LONG:+ 16}
for n in $pieces; do
	for i in $(seq "$n"); do
		ls -S *.cpp | awk -v n="$n" -v i="$i" -v dir="$PWD" 'NR % n == i % n { print "#include \"" dir "/" $0 "\"" }' >"$dir/$n-$i.cpp"
	done
done
# The one file is the longest, and the first.
printf '%s\0' "$dir"/*.cpp | sort -zV | xargs -0 -n 1 -P "$(nproc)" ${CXX:-c++} "${flags[@]}"
