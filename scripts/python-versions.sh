#!/usr/bin/env bash
# Passes the Python tests on other versions of PyTorch, in environments of their own:
#   bash scripts/python-versions.sh 2.6.0 2.15.0
# `make python-versions` runs this with the oldest and the newest. An environment takes about
# 5 GB and two minutes, in CHORUS_VENVS (default: .venvs); it stays, delete it when you like.
# CHORUS_PYTEST are arguments for pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { echo "usage: $0 VERSION..." >&2; exit 2; }
venvs=${CHORUS_VENVS:-.venvs}
read -ra arguments <<<"${CHORUS_PYTEST:--q}"

make --no-print-directory capi
failed=()
for version in "$@"; do
	venv=$venvs/torch-$version
	printf '\n== PyTorch %s\n' "$version"
	if [ ! -e "$venv/ok" ]; then
		"${PYTHON:-python3}" -m venv "$venv"
		"$venv/bin/pip" install -q --disable-pip-version-check "torch==$version" numpy 'setuptools>=77' 'pytest>=8' 'mypy>=1.15' expecttest
		touch "$venv/ok"
	fi
	# A copy of the package, not an editable one, which would share a directory with the others.
	CHORUS_LIBRARY=$PWD/bin/libchorus.so "$venv/bin/pip" install -q --disable-pip-version-check \
		--no-build-isolation --no-deps --force-reinstall ./python
	"$venv/bin/python" -m pytest -p no:cacheprovider "${arguments[@]}" python/tests || failed+=("$version")
	# torch.device("accinte") takes 2.9; the examples of a vendor and of NCCL build libraries of their own for the venv of make python.
	if [ "$(printf '%s\n' 2.9 "$version" | sort -V | head -1)" = 2.9 ]; then
		CHORUS_LIBRARY=$PWD/bin/libchorus.so "$venv/bin/pip" install -q --disable-pip-version-check \
			--no-build-isolation --no-deps --force-reinstall ./python/device ./python/accinte
		"$venv/bin/python" -m pytest -p no:cacheprovider "${arguments[@]}" python/device/tests \
			--ignore python/device/tests/test_mydevice.py --ignore python/device/tests/test_nccl.py || failed+=("$version")
	fi
done
[ ${#failed[@]} = 0 ] || { echo "failed with PyTorch ${failed[*]}" >&2; exit 1; }
