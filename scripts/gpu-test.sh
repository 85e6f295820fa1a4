#!/bin/bash
# Tries Chorus on the GPUs of this machine, and writes one page: bin/gpu-test.md. All that was printed is in bin/gpu-test.txt (from Go) and
# bin/gpu-test.log (from PyTorch). A machine that has no Go needs a clone whose bin has what this builds: make gpu-test, on any machine.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p bin
go=${GO:-go}
if command -v "$go" >/dev/null; then
	CGO_ENABLED=0 $go test -c -trimpath -o bin/gpu.test ./comm/nccl
	CGO_ENABLED=0 $go build -trimpath -o bin/chorus ./cmd/chorus
	GO=$go sh capi/build.sh bin/libchorus.so
fi
if [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ] && [ ! -e /dev/kfd ]; then
	echo "there is no GPU here (no /dev/nvidiactl, /dev/dxg or /dev/kfd): nothing was tested; what was built is in bin"
	exit 0
fi

export CUDA_DEVICE_MAX_CONNECTIONS=32 # queues for streams that wait for functions of the host; 8 otherwise
[ -n "${VIRTUAL_ENV:-}" ] || [ ! -d .venv ] || export VIRTUAL_ENV=$PWD/.venv # whose PyTorch brings NCCL, and compilers of kernels
python=${PYTHON:-python3}
[ ! -x .venv/bin/python ] || python=.venv/bin/python
# torch.device("zoom") has an extension, compiled against the PyTorch that it's for; without it the page says what is missing.
if [ ! -e .venv/torch-*.ok ] || ! command -v "$go" >/dev/null || ! make python; then echo 'torch.device("zoom") is not built anew'; fi
status=0
{
	date -u
	bin/chorus doctor | sed -n '/^libraries/,/^calibration/p' | sed '$d'
	cd comm/nccl
	../../bin/gpu.test -test.v -test.timeout 8m -test.run 'Devices$|Communicators$|Table$|OnGPUs$|RealLibraries|ByValue'
} 2>&1 | tee bin/gpu-test.txt || status=1
bin/chorus doctor --json >bin/doctor.json || true
commit=$(git log -1 --format=%h 2>/dev/null || echo unknown)
CHORUS_LIBRARY=$PWD/bin/libchorus.so PYTHONPATH=$PWD/python:$PWD/python/device:$PWD/python/zoom "$python" -m gputest --page bin/gpu-test.md --log bin/gpu-test.log \
	--go bin/gpu-test.txt --doctor bin/doctor.json --fact "date=$(date -u +%F)" --fact "commit=$commit" || status=1
exit $status
