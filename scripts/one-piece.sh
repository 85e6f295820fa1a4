#!/usr/bin/env bash
# Checks that the sources of the device's extension compile as one file, in one order or the other. setup.py joins them in as many
# pieces as there are processors, the largest first. Any two may meet in one piece, so their names must differ. The other
# order, with CHORUS_TEST_LONG=1, finds uses of what another source declares.
set -euo pipefail
python=$(realpath -s "${PYTHON:-python3}")
cd "$(dirname "$0")/../python/device/csrc"
command -v "${CXX:-c++}" >/dev/null || exit 0
torch=$("$python" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')/include
flags=(-x c++ -std=c++20 -fsyntax-only -I. -I../../../capi -isystem"$torch" -isystem"$torch/torch/csrc/api/include"
	-I"$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')")
orders=("" ${CHORUS_TEST_LONG:+-r})
for order in "${orders[@]}"; do
	printf '#include "%s"\n' "$PWD"/*.cpp | sort $order | ${CXX:-c++} "${flags[@]}" - &
done
for order in "${orders[@]}"; do wait -n; done
