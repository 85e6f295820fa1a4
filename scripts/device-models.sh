#!/usr/bin/env bash
# Trains models of transformers, torchvision and timm on torch.device("accinte") and on the CPU: python/device/tests/test_models.py.
# It does so twice, the second time with streams that are always busy.
# The libraries go beside what `make python` has installed, into CHORUS_VENVS (default: .venvs)/models; it stays, delete it
# when you like. CHORUS_PYTEST are arguments for pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${CHORUS_VENVS:-.venvs}/models
read -ra arguments <<<"${CHORUS_PYTEST:--q}"
if [ ! -e "$venv/ok" ]; then
	.venv/bin/python -m venv "$venv"
	for folder in .venv/lib/python3*/site-packages python python/device python/accinte; do
		echo "$PWD/$folder"
	done >"$(echo "$venv"/lib/python3*/site-packages)/chorus.pth"
	torch=$(.venv/bin/python -c 'import torch; print(torch.__version__.partition("+")[0])')
	"$venv/bin/python" -m pip install -q --disable-pip-version-check "torch==$torch" transformers accelerate torchvision timm
	touch "$venv/ok"
fi
for inline in true false; do
	CHORUS_DEVICE_INLINE=$inline "$venv/bin/python" -m pytest -p no:cacheprovider "${arguments[@]}" python/device/tests/test_models.py
done
# Language models on torch.device("zoom"), if there is an OpenCL (docs/opencl.md), and on memory that the process can't touch.
zoom=("$venv/bin/python" -m pytest -p no:cacheprovider "${arguments[@]}" python/zoom/tests/test_models.py)
"${zoom[@]}"
scripts/on-device.sh buffers "${zoom[@]}"
