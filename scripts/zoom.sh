#!/usr/bin/env bash
# Makes torch.device("zoom") in .venvs/zoom, beside the PyTorch of .venv, with an OpenCL for the processor if the machine
# has no device, and trains an example on it: `make zoom` runs this. PyPI is all that it needs.
set -euo pipefail
cd "$(dirname "$0")/.."
zoom=$PWD/.venvs/zoom
python=$zoom/bin/python
export VIRTUAL_ENV=$zoom CHORUS_TORCH_DEVICE=zoom # Chorus looks for OpenCL's libraries there, too

install() { "$python" -m pip install -q --disable-pip-version-check "$@"; }

# Whether the device's compiler compiles a kernel, or has done so before.
compiles() {
	"$python" - <<-'END' 2>/dev/null
		import chorus_device, torch
		torch.ones(8, device="zoom").add_(1)
		counts = chorus_device.kernels(0)
		raise SystemExit(counts["compiled"] - counts["refused"] + counts["from_disk"] <= 0)
	END
}

if [ ! -e "$zoom/ok" ]; then
	rm -rf "$zoom"
	"${PYTHON:-python3}" -m venv "$zoom"
	site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
	theirs=$PWD/.venv/lib/$(basename "$(dirname "$site")")/site-packages
	echo "import site; site.addsitedir('$theirs')" >"$site/torch.pth" # with the packages that are used where they are
	install --no-deps --config-settings editable_mode=compat -e ./python/zoom
	touch "$zoom/ok"
fi

if ! "$python" -m torch_zoom >/dev/null 2>&1; then
	if [ "$(uname -m)" != x86_64 ]; then
		echo "make zoom: this machine has no device for HIP, CUDA or OpenCL, and pip has no OpenCL for $(uname -m);" \
			"install one, such as Debian's pocl-opencl-icd" >&2
		"$python" -m torch_zoom
	fi
	echo "no device: installing PoCL, an OpenCL for the processor (58 MB)"
	install --no-deps pocl-binary-distribution==3.0
	if ! compiles; then
		echo "PoCL compiles nothing for this processor: installing Intel's OpenCL (280 MB)"
		"$python" -m pip uninstall -q -y pocl-binary-distribution
		install intel-opencl-rt intel-cmplr-lib-rt
	fi
fi
"$python" -m torch_zoom python/zoom/examples/llama3.py "$@"
echo "for programs of your own: . .venvs/zoom/bin/activate"
