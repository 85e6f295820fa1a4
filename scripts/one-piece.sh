#!/usr/bin/env bash
# Checks that the sources of the device's extension compile as one file, in either order. setup.py joins them in as many
# pieces as there are processors, the largest first. Any two may meet in one piece, so their names must differ.
set -euo pipefail
python=$(realpath -s "${PYTHON:-python3}")
cd "$(dirname "$0")/../python/device/csrc"
command -v "${CXX:-c++}" >/dev/null || exit 0
torch=$("$python" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')/include
flags=(-x c++ -std=c++20 -fsyntax-only -I. -I../../../capi -isystem"$torch" -isystem"$torch/torch/csrc/api/include"
	-I"$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')")
for order in "" -r; do
	printf '#include "%s"\n' "$PWD"/*.cpp | sort $order | ${CXX:-c++} "${flags[@]}" - &
done
wait -n && wait -n
