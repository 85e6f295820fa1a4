#!/bin/bash
# What Chorus can do on the GPUs of this machine, in a report: bin/gpu-test.txt. It needs no more than Go and what the
# machine has; the binary, bin/gpu.test, can be taken to a machine that has no Go, and run there:
#
#	./gpu.test -test.v -test.run 'Devices$|Communicators$|Table$|RealLibraries|ByValue'
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p bin
export CUDA_DEVICE_MAX_CONNECTIONS=32 # queues for streams that wait for functions of the host; 8 otherwise
[ -n "${VIRTUAL_ENV:-}" ] || [ ! -d .venv ] || export VIRTUAL_ENV=$PWD/.venv # whose PyTorch brings compilers of kernels
CGO_ENABLED=0 ${GO:-go} test -c -trimpath -o bin/gpu.test ./comm/nccl
CGO_ENABLED=0 ${GO:-go} build -trimpath -o bin/chorus ./cmd/chorus
{
	date -u
	git log -1 --format='commit %H' 2>/dev/null || true
	uname -srm
	nvidia-smi -L 2>/dev/null || echo "no GPU of NVIDIA (nvidia-smi -L)"
	rocm-smi --showproductname 2>/dev/null || echo "no GPU of AMD (rocm-smi)"
	bin/chorus doctor | sed -n '/^libraries/,/^calibration/p' | sed '$d'
	(cd comm/nccl && ../../bin/gpu.test -test.v -test.timeout 8m -test.run 'Devices$|Communicators$|Table$|RealLibraries|ByValue')
} 2>&1 | tee bin/gpu-test.txt
