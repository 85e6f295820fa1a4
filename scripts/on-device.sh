#!/usr/bin/env bash
# Runs a program, or Python's suites of torch.device("zoom"), on a device of a kind whose memory the process can't touch,
# as a GPU's: docs/zoom.md.
#
#	scripts/on-device.sh buffers|cuda|hip [PROGRAM [ARGUMENTS]]
#
# buffers: OpenCL without shared memory, by the library of CHORUS_OPENCL_LIBRARY, else by PoCL (make opencl)
# cuda, hip: an emulated GPU, docs/emulated-gpu.md
set -euo pipefail
kind=${1:-} root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
case $kind in buffers | cuda | hip) shift ;; *)
	echo "usage: on-device.sh buffers|cuda|hip [PROGRAM [ARGUMENTS]]" >&2
	exit 2
	;;
esac
[ $# -gt 0 ] || set -- "${PYTHON:-$root/.venv/bin/python}" -m pytest -q "$root/python/zoom/tests"
[ "$kind" = buffers ] || exec "$root/scripts/on-emulated-gpu.sh" "$kind" "$@"
# The environment is where the library is looked for.
[ -n "${CHORUS_OPENCL_LIBRARY:-}" ] || [ ! -e "$root/.venvs/opencl" ] || export VIRTUAL_ENV=$root/.venvs/opencl
export CHORUS_OPENCL_SHARED_MEMORY=false CHORUS_ZOOM_DRIVER=opencl CHORUS_TORCH_DEVICE=zoom
export PYTHONPATH=$root/python/zoom${PYTHONPATH:+:$PYTHONPATH} # for import torch_zoom, where that isn't installed
exec "$@"
