#!/usr/bin/env bash
# Checks that the sources of the device's extension compile in any grouping, for the PyTorch that is installed:
#   bash scripts/one-piece.sh
# or for other versions, newest is the index's:
#   bash scripts/one-piece.sh 2.9.0 newest
# setup.py joins the sources in as many pieces as there are processors, the largest first. Any two may meet in one piece, so
# all must compile as one file. With CHORUS_TEST_LONG=1 they compile in 16 pieces as well, which finds a source that relies
# on the headers of another. Headers of other versions come from the wheels alone, and stay in .venvs/torch-headers (70 MB each).
set -euo pipefail
python=$(realpath -s "${PYTHON:-python3}")
root=$(realpath "$(dirname "$0")/..")
cd "$root/python/device/csrc"
command -v "${CXX:-c++}" >/dev/null || exit 0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# The folder with a version's headers.
headers() {
	local version=$1 kept wheel
	if [ "$version" = newest ]; then
		version=$("$python" -m pip install -q --disable-pip-version-check --dry-run --no-deps --ignore-installed --report - torch |
			"$python" -c 'import json, sys; print(json.load(sys.stdin)["install"][0]["metadata"]["version"])')
	fi
	kept=$root/.venvs/torch-headers/$version
	if [ ! -e "$kept" ]; then
		"$python" -m pip download -q --disable-pip-version-check --no-deps -d "$dir/$version" "torch==$version" >&2
		mkdir -p "$kept.part"
		wheel=("$dir/$version"/*.whl)
		"$python" -c 'import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
wheel.extractall(sys.argv[2], [f for f in wheel.namelist() if f.startswith("torch/include/")])' "${wheel[0]}" "$kept.part"
		rm -r "$dir/$version"
		mv "$kept.part" "$kept"
	fi
	echo "$kept/torch/include"
}

flags=(-std=c++20 -fsyntax-only -I. -I../../../capi -I"$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')")
jobs=() # the compiler's last three arguments
[ $# -gt 0 ] || set -- installed
for version in "$@"; do
	if [ "$version" = installed ]; then
		torch=$("$python" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')/include
	else
		torch=$(headers "$version")
	fi
	for n in 1 ${CHORUS_TEST_LONG:+16}; do
		for i in $(seq "$n"); do
			piece=$dir/torch-$version-$n-$i.cpp # errors name it
			ls -S *.cpp */*.cpp | awk -v n="$n" -v i="$i" -v dir="$PWD" 'NR % n == i % n { print "#include \"" dir "/" $0 "\"" }' >"$piece"
			jobs+=("-isystem$torch" "-isystem$torch/torch/csrc/api/include" "$piece")
		done
	done
done
printf '%s\0' "${jobs[@]}" | xargs -0 -n 3 -P "$(nproc)" ${CXX:-c++} "${flags[@]}"
