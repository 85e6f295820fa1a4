#!/usr/bin/env bash
# Passes the tests that a change needs most, in ten minutes on two cores: `make test` runs this. The rest is
# scripts/test-long.sh. Steps that need something that the machine lacks are skipped, and listed at the end.
# CHORUS_TEST_PYTORCH=0 leaves out PyTorch.
set -euo pipefail
. "$(dirname "$0")/steps.sh"
export CHORUS_TEST_SHORT=1

# beside runs a command beside the tests, in a process group of its own. When this script ends, the group does.
beside() {
	local log=$1
	shift
	set -m
	"$@" >"$log" 2>&1 </dev/null &
	set +m
}
trap 'for p in $(jobs -pr); do kill -- -"$p" 2>/dev/null || :; done; wait' EXIT

# Downloading and unpacking PyTorch takes a minute, in which the network and the disk are busy; what is compiled
# meanwhile is not waited for.
[ "${CHORUS_TEST_PYTORCH:-1}" = 0 ] || beside out/venv make venv

beside out/opencl make opencl # without it, the tests of device/opencl say that they are left out

# All is compiled here, as PyTorch's installation leaves cores idle, and nothing is linked.
step "format and build"
unformatted=$(gofmt -l $(git ls-files '*.go' 2>/dev/null || find . -name '*.go' -not -path './.venv/*'))
if [ -n "$unformatted" ]; then
	echo "gofmt: $unformatted"
	exit 1
fi
$GO list -export -test ./... >/dev/null

# Tests that use nothing of Python's environments run while those are being installed.
early=() late=()
while read -r package folder; do
	if grep -qsE 'testutil\.Python|glootest\.|\.venv' "$folder"/*.go; then late+=("$package"); else early+=("$package"); fi
done < <($GO list -f '{{.ImportPath}} {{.Dir}}' ./...)
step "tests without PyTorch, while it's being installed"
CHORUS_TEST_PYTORCH=0 tests "${early[@]}"
if [ "${CHORUS_TEST_PYTORCH:-1}" != 0 ] && grep -s 'CHORUS_TEST_PYTORCH=0' "$left"; then
	echo "these tests need PyTorch, which the pattern above doesn't see"
	exit 1
fi

step "PyTorch, for the package and for interoperability"
wait
pytorch # which is there by now; if not, it says why

# The package and the device's extension take minutes to compile: in the time that the tests of Go leave the cores idle.
making=
if package; then
	beside out/python env CGO_ENABLED=1 nice -n 19 make python # the command with cgo, too, for the same packages
	making=$!
fi

step "tests with PyTorch"
tests "${late[@]}"

if [ -n "$making" ]; then
	step "the Python package"
	wait "$making" || { cat out/python; exit 1; }
	python_tests -n 3 -m 'not long' python/tests # half of their time is that of other processes' starts
	if command -v "${CXX:-c++}" >/dev/null; then
		step "torch.device(\"zoom\"), through PoCL"
		python_tests -m 'not long' python/zoom/tests
		step "torch.device(\"accinte\"): a sample of its tests, on streams that are always busy"
		CHORUS_DEVICE_INLINE=false python_tests -m 'not long' python/device/tests/test_deferral.py
	else
		skipped+=("torch.device(\"accinte\"): no C++ compiler")
	fi
fi

passed
