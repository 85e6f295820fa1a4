#!/usr/bin/env bash
# Passes the tests that scripts/test.sh has no time for: `make test-long` runs this, on two cores in half an hour. Steps
# that need something that the machine lacks are skipped, and listed at the end. Some suites have forms that take hours:
# CHORUS_TEST_LONG=1 go test ./comm.
set -euo pipefail
. "$(dirname "$0")/steps.sh"

step "PyTorch, for the package and for interoperability"
pytorch

step "tests"
if [ -n "${CHORUS_TEST_LONG:-}" ]; then
	tests ./... # of packages whose tests are never brief, go test has the results of make test
else
	# These are the tests that make test leaves out. Suites of which it runs a sample are complete with CHORUS_TEST_LONG=1.
	sampled='^Test(Conformance.*|Grid|(With)?PyTorch|Torch|EachSplit|Scenarios|Slurm|NothingLeaks|Paths|Options|Programs)$'
	tests -skip "$sampled" $(grep -rlE --include='*_test.go' --exclude-dir={.venv,adapters,kernel,opencl} \
		'testutil\.(SkipIfShort|Short|Pick)\(' . | xargs -n1 dirname | sort -u)
	# Of package kernel the long form compiles for GPUs here; on an OpenCL device it's brief in make test, and below.
	tests -run Compile ./kernel
fi

step "OpenCL, on Intel's runtime for the processor"
if [ "$(uname -m)" != x86_64 ]; then
	skipped+=("OpenCL on Intel's runtime: it's for x86-64")
elif make opencl-intel; then
	export CHORUS_OPENCL_LIBRARY=$PWD/.venvs/opencl-intel/lib/libintelocl.so
	tests ./device/opencl
	CHORUS_TEST_SHORT=1 tests ./kernel
	unset CHORUS_OPENCL_LIBRARY
	intel=$PWD/.venvs/opencl-intel/lib/libintelocl.so
else
	skipped+=("OpenCL on Intel's runtime: it can't be installed, see above")
fi

step "tests without AVX-512, and without any vector instructions"
GODEBUG=cpu.avx512f=off,cpu.avx512bw=off tests ./kern ./tensor
GODEBUG=cpu.all=off tests ./dtype ./kern ./tensor
GODEBUG=cpu.all=off CHORUS_TEST_SHORT=1 tests -run 'Mem' ./comm

export GOFLAGS=$plain # from here on what is compiled is for other systems, or for users
if package; then
	step "the Python package"
	make python
	python_tests -n 3 -m long python/tests # half of their time is that of other processes' starts
	python_tests python/conformance
	if command -v "${CXX:-c++}" >/dev/null; then
		some=(-m long) # the others have run in make test, on PoCL
		[ -z "${CHORUS_TEST_LONG:-}" ] || some=()
		CHORUS_OPENCL_LIBRARY=${intel:-} python_tests "${some[@]}" python/zoom/tests
		# On memory that the process can't touch, as a GPU's, a sample; with CHORUS_TEST_LONG=1 all of them.
		some=(-k 'not deferred_calls and not autoload' python/zoom/tests/test_{indexes,linalg,names}.py)
		table=python/zoom/tests/test_table.py
		[ -z "${CHORUS_TEST_LONG:-}" ] || some=(python/zoom/tests) table=
		step "torch.device(\"zoom\"), on memory that the process can't touch"
		if make opencl; then
			scripts/on-device.sh buffers .venv/bin/python -m pytest -q -rs -n 2 --dist worksteal "${some[@]}"
			[ -z "$table" ] || scripts/on-device.sh buffers .venv/bin/python -m pytest -q -rs -m long $table
		else
			skipped+=("torch.device(\"zoom\") on memory that the process can't touch: PoCL can't be installed, see above")
		fi
		# On the emulated GPU likewise: a sample, or all of them.
		step "torch.device(\"zoom\"), on an emulated GPU"
		some=(-m 'not long' python/zoom/tests/test_{fft,kernels,calls}.py -k 'not training_step')
		long=() # the long ones among them that don't take hours there
		if [ -n "${CHORUS_TEST_LONG:-}" ]; then
			some=(-m 'not long' python/zoom/tests)
			long=(-m long python/zoom/tests/test_{encoder,indexes,linalg,zoom}.py
				-k 'encoder_layer or deterministic or linear_algebra or test_autocast')
		fi
		if command -v "${CXX:-g++}" >/dev/null; then # as on-emulated-gpu.sh has it
			for family in cuda hip; do
				scripts/on-device.sh $family .venv/bin/python -m pytest -q -rs -n 2 --dist worksteal "${some[@]}"
				[ ${#long[@]} = 0 ] ||
					scripts/on-device.sh $family .venv/bin/python -m pytest -q -rs -n 2 --dist worksteal "${long[@]}"
			done
		else
			skipped+=("torch.device(\"zoom\") on an emulated GPU: no ${CXX:-g++}")
		fi
		# With CHORUS_TEST_LONG=1 all of them, on idle streams and on streams that are always busy; it takes some ten minutes more.
		if [ -n "${CHORUS_TEST_LONG:-}" ]; then
			python_tests python/device/tests
			CHORUS_DEVICE_INLINE=false python_tests python/device/tests
		else
			python_tests -n 3 -k 'not test_one_name' python/device/tests # whose brief ones are below
			python_tests -m 'not long' python/device/tests/test_one_name.py
			CHORUS_DEVICE_INLINE=false python_tests -m 'not long' python/device/tests/test_{defects,graphs,operators,streams}.py
		fi
	else
		skipped+=("torch.device(\"accinte\"): no C++ compiler")
	fi
fi

if ! command -v "${CXX:-c++}" >/dev/null; then
	skipped+=("the extension with other versions of PyTorch: no C++ compiler")
elif package; then
	step "the extension as one piece, with the installed PyTorch, the oldest, and the newest of the index"
	PYTHON=.venv/bin/python bash scripts/one-piece.sh installed 2.9.0 newest
fi

# vet compiles the imported packages.
step "build without cgo, for arm64 and macOS, and what is portable for Windows"
CGO_ENABLED=0 $GO build -trimpath ./... # as the command of the package is
CGO_ENABLED=0 GOOS=linux GOARCH=arm64 $GO list -export ./... >/dev/null # compiled, and not linked
CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 $GO vet ./...
CGO_ENABLED=0 GOOS=windows $GO vet ./config ./dtype ./hostmem ./kern ./plan ./secure ./store ./tensor

if command -v gcc >/dev/null; then
	step "race detector, where all ranks are in one process" # and with CHORUS_TEST_LONG=1 from C
	export CGO_ENABLED=1
	[ -n "${CHORUS_TEST_LONG:-}" ] || export CHORUS_TEST_SHORT=1
	tests -race -short $($GO list ./fabric/... | grep -v ucx) ./store/... ./device ./device/accinte ./device/cpu ./device/internal/... \
		${CHORUS_TEST_LONG:+./capi/test}
	tests -race -short -run "Mem|Example" ./comm
	unset CGO_ENABLED CHORUS_TEST_SHORT
else
	skipped+=("race detector, and the C ABI: no C compiler")
fi

step "snapshots between any two stores of the flight recorder"
tests -tags steps -run Steps ./observe/record

if command -v qemu-aarch64-static >/dev/null; then
	step "arm64 under emulation"
	CGO_ENABLED=0 GOARCH=arm64 tests -exec qemu-aarch64-static ./dtype ./kern
	CGO_ENABLED=0 GOARCH=arm64 tests -short -exec qemu-aarch64-static -run 'Path|Lane|Steps|HotLine' ./observe/record
else
	skipped+=("arm64: qemu-aarch64-static is not installed")
fi

step "the modules beside the main one"
for module in internal/asmgen examples/thirdparty examples/gonum; do (cd $module && $GO test ./...); done
# Kubernetes' client takes a minute to compile.
for module in adapters/{etcd,prometheus,otel,arrow,gomlx} ${CHORUS_TEST_LONG:+adapters/kubernetes}; do
	if (cd $module && $GO list -deps -test ./... >/dev/null); then
		(cd $module && $GO test ${CHORUS_TEST_LONG:+-tags receiver} ./...)
	else
		skipped+=("$module: the modules that it needs can't be had, see above")
	fi
done

if package; then
	step "what users get: wheels, archives, and the pages that say how to begin" # and with CHORUS_TEST_LONG=1 the site
	if [ -n "${CHORUS_TEST_LONG:-}" ]; then make wheels; else MACHINES=$($GO env GOARCH):$(uname -m) make wheels; fi
	CHORUS_TEST_LONG=1 .venv/bin/python -m pytest -q -rs python/tests/test_dist.py ${CHORUS_TEST_LONG:+python/tests/test_site.py}
	# Three pages for a clone. With CHORUS_TEST_LONG=1 all of them, and those for a release. README's lines in an empty
	# environment, with the newest PyTorch of the index, are 3.0 GB and some seven minutes.
	pages='FollowClone/^(README|pytorch|launching)'
	[ -z "${CHORUS_TEST_LONG:-}" ] || pages='Follow|Install'
	CHORUS_TEST_LONG=1 tests -run $pages ./docs
fi

command -v mpirun >/dev/null || skipped+=("mpirun: Open MPI is not installed")
passed
