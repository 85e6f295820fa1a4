#!/usr/bin/env bash
# Passes the tests: `make test` runs this. What a machine lacks is left out, and
# said at the end. CHORUS_TEST_PYTORCH=0 leaves out PyTorch, CHORUS_TEST_LONG=1
# runs the long forms of the suites.
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
skipped=()
step() { printf '\n== %s\n' "$*"; }

step "format and vet"
unformatted=$(gofmt -l $(git ls-files '*.go' 2>/dev/null || find . -name '*.go' -not -path './.venv/*'))
if [ -n "$unformatted" ]; then
	echo "gofmt: $unformatted"
	exit 1
fi
$GO vet ./...

step "build without cgo, for amd64 and arm64"
CGO_ENABLED=0 $GO build ./...
CGO_ENABLED=0 GOARCH=arm64 $GO build ./...
CGO_ENABLED=0 GOARCH=arm64 $GO vet ./...

step "build for macOS, and what is portable for Windows"
CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 $GO vet ./...
for arch in amd64 arm64; do CGO_ENABLED=0 GOOS=darwin GOARCH=$arch $GO build ./...; done
CGO_ENABLED=0 GOOS=windows $GO vet ./config ./dtype ./hostmem ./kern ./plan ./secure ./store ./tensor

if [ "${CHORUS_TEST_PYTORCH:-1}" = 0 ]; then
	skipped+=("PyTorch: CHORUS_TEST_PYTORCH=0")
elif ! command -v "${PYTHON:-python3}" >/dev/null; then
	export CHORUS_TEST_PYTORCH=0
	skipped+=("PyTorch: no python3 on this machine")
elif step "PyTorch for the interoperability checks" && ! make venv; then
	export CHORUS_TEST_PYTORCH=0
	skipped+=("PyTorch: .venv could not be made, see above")
fi

# One package at a time: many tests are worlds of processes that wait for each other, as many as there are cores or more.
step "tests"
$GO test -p 1 -timeout 20m ./...

if [ "${CHORUS_TEST_PYTORCH:-1}" = 0 ]; then
	skipped+=("the Python package: it needs PyTorch, see there")
elif ! command -v cc >/dev/null; then
	skipped+=("the Python package: no C compiler")
else
	step "the Python package"
	make python
	# Their ranks are forked off a process that has imported torch; with the device plugged in, the library would be in it.
	TORCH_DEVICE_BACKEND_AUTOLOAD=0 .venv/bin/python -m pytest -q python/tests
	TORCH_DEVICE_BACKEND_AUTOLOAD=0 .venv/bin/python -m pytest -q python/conformance
	if command -v "${CXX:-c++}" >/dev/null; then
		.venv/bin/python -m pytest -q python/device/tests
	else
		skipped+=("torch.device(\"accinte\"): no C++ compiler")
	fi
fi

step "tests without AVX-512, and without any vector instructions"
GODEBUG=cpu.avx512f=off,cpu.avx512bw=off $GO test ./kern ./tensor
GODEBUG=cpu.all=off $GO test ./dtype ./kern ./tensor
GODEBUG=cpu.all=off $GO test -run 'Mem' ./comm

if command -v gcc >/dev/null; then
	step "race detector, where all ranks are in one process"
	CGO_ENABLED=1 $GO test -race -short ./fabric/... ./store/...
	CGO_ENABLED=1 $GO test -race -short ./device ./device/accinte ./device/cpu ./device/internal/...
	CGO_ENABLED=1 $GO test -race -short -run "Mem|Example" ./comm
	step "race detector, from C"
	CGO_ENABLED=1 $GO test -race -short ./capi/test
else
	skipped+=("race detector, and the C ABI: no C compiler")
fi

if command -v qemu-aarch64-static >/dev/null; then
	step "arm64 under emulation"
	CGO_ENABLED=0 GOARCH=arm64 $GO test -exec qemu-aarch64-static ./dtype ./kern
	CGO_ENABLED=0 GOARCH=arm64 $GO test -short -exec qemu-aarch64-static -run 'Path|Lane|HotLine' ./observe
else
	skipped+=("arm64: qemu-aarch64-static is not installed")
fi

step "the modules beside the main one"
(cd internal/asmgen && $GO test ./...)
(cd examples/thirdparty && $GO test ./...)
(cd examples/gonum && $GO test ./...)

step "passed"
for s in "${skipped[@]+"${skipped[@]}"}"; do
	echo "left out: $s"
done
command -v mpirun >/dev/null || echo "left out: mpirun (Open MPI is not installed)"
