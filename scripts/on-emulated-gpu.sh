#!/usr/bin/env bash
# Runs a program on an emulated GPU, whose libraries are found as CUDA's and HIP's are: docs/emulated-gpu.md.
#
#	scripts/on-emulated-gpu.sh cuda|hip PROGRAM [ARGUMENTS]
#
# The first run builds it with a C++ compiler, $CXX or g++, in out/emulated-gpu. Without a program it only builds, and
# prints the folder of the libraries.
set -euo pipefail
family=${1:-} root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
case $family in cuda) libraries=(cuda.so.1 nvrtc.so.13) ;; hip) libraries=(amdhip64.so.6 hiprtc.so.6) ;;
*) echo "usage: on-emulated-gpu.sh cuda|hip PROGRAM [ARGUMENTS]" >&2; exit 2 ;;
esac
shift
sources=$root/device/gpu/emulated cxx=${CXX:-g++}
# A build has the name of its sources: kernels that were compiled by another build are kept under another name.
hash=$( (cat "$sources"/*.h "$sources"/*.cpp "${BASH_SOURCE[0]}"; "$cxx" --version; uname -m) | sha256sum | cut -c 1-16)
to=$root/out/emulated-gpu/$hash/$family

build() {
	local work pids=() f p flags=(-std=c++20 -O2 -g1 -fPIC -fvisibility=hidden -Wall -Wextra -pthread "-I$sources"
		"-DEMULATED_SOURCES=\"$sources\"")
	work=$(mktemp -d "$root/out/emulated-gpu/build.XXXXXX")
	trap "wait; rm -rf '$work'" EXIT # of a build that fails
	[ "$family" = hip ] || flags+=(-DEMULATED_CUDA)
	for f in "$sources"/*.cpp; do
		"$cxx" "${flags[@]}" -c "$f" -o "$work/$(basename "$f" .cpp).o" &
		pids+=($!)
		[ ${#pids[@]} -lt "$(nproc)" ] || { wait "${pids[0]}" && pids=("${pids[@]:1}"); }
	done
	for p in "${pids[@]}"; do wait "$p"; done
	local client=() compiler=("$work/compiler_api.o") server=()
	for f in "$work"/*.o; do
		case $(basename "$f") in
		compiler_api.o) ;;
		*_api.o | client.o | counts.o) client+=("$f") ;;
		compiler.o | source.o) compiler+=("$f") ;;
		*) server+=("$f") ;;
		esac
	done
	mkdir "$work/$family"
	"$cxx" -shared -pthread "-Wl,-soname,lib${libraries[0]}" -o "$work/$family/lib${libraries[0]}" "${client[@]}"
	"$cxx" -shared -pthread "-Wl,-soname,lib${libraries[1]}" -o "$work/$family/lib${libraries[1]}" "${compiler[@]}"
	"$cxx" -pthread -rdynamic -o "$work/$family/emulated-gpu" "${server[@]}" -ldl
	mkdir -p "$(dirname "$to")"
	mv -T "$work/$family" "$to" 2>/dev/null || [ -e "$to/emulated-gpu" ] # another run was first
	rm -r "$work"
	trap - EXIT
}

# put writes a file that others may be reading.
put() {
	cat >"$1.$$"
	mv "$1.$$" "$1"
}

mkdir -p "$root/out/emulated-gpu"
[ -e "$to/emulated-gpu" ] || build
[ $# -gt 0 ] || { echo "$to"; exit; }
export LD_LIBRARY_PATH=$to${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} CHORUS_ZOOM_DRIVER=$family CHORUS_TORCH_DEVICE=zoom
# torch-zoom as if it were installed, where it isn't.
site=$root/out/emulated-gpu/site
mkdir -p "$site/torch_zoom-0.dist-info"
printf 'Metadata-Version: 2.1\nName: torch-zoom\nVersion: 0\n' | put "$site/torch_zoom-0.dist-info/METADATA"
sed -n '/^\[project.entry-points\./,/^$/{s/^\[project.entry-points\.\(.*\)\]/[\1]/;s/"//g;p}' "$root/python/zoom/pyproject.toml" |
	put "$site/torch_zoom-0.dist-info/entry_points.txt"
export PYTHONPATH=$site:$root/python/zoom${PYTHONPATH:+:$PYTHONPATH}
# PyTorch's packages may bring a compiler of their own, and open it by its path: this one is there before.
export LD_PRELOAD=$to/lib${libraries[1]}${LD_PRELOAD:+:$LD_PRELOAD}
# The vendors' other libraries may be here, in PyTorch's packages, and know nothing of this GPU.
export CHORUS_BLAS_LIBRARY=none CHORUS_FFT_LIBRARY=none CHORUS_SOLVER_LIBRARY=none CHORUS_SPARSE_LIBRARY=none
export CHORUS_NCCL_LIBRARY=${CHORUS_NCCL_LIBRARY:-none} DISABLE_HIPBLASLT=1
exec "$@"
