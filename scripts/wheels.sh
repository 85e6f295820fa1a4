#!/usr/bin/env bash
# Builds what PyPI gets into dist/: wheels for x86_64 and aarch64, and the sdist. `make wheels` runs this.
# MACHINES="amd64:x86_64" builds those of one.
# zig's C compiler brings glibc's headers of any version and of both architectures along, so that one machine builds both.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(bash scripts/version.sh)
tools=.venvs/wheels
if [ ! -x $tools/bin/twine ]; then
	"${PYTHON:-python3}" -m venv $tools
	$tools/bin/pip install -q --disable-pip-version-check ziglang==0.15.2 'build>=1.2' 'setuptools>=77' 'auditwheel>=6' 'twine>=6'
fi
module=github.com/chorus-comms/chorus
python=$PWD/$tools/bin/python
mkdir -p dist
rm -f dist/*.whl dist/chorus_comms-*.tar.gz
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for arch in ${MACHINES:-amd64:x86_64 arm64:aarch64}; do
	goarch=${arch%:*} machine=${arch#*:}
	printf '#!/bin/sh\nexec "%s" -m ziglang cc -target %s-linux-gnu.2.17 "$@"\n' "$python" "$machine" >"$work/cc"
	chmod +x "$work/cc"
	CC=$work/cc GOARCH=$goarch RELEASE=$version sh capi/build.sh "$work/libchorus.so"
	CGO_ENABLED=0 GOARCH=$goarch "${GO:-go}" build -trimpath -ldflags "-s -w -X $module/internal/release.version=$version" -o "$work/chorus" ./cmd/chorus
	CHORUS_LIBRARY=$work/libchorus.so CHORUS_COMMAND=$work/chorus "$python" -m build -q --wheel --no-isolation --skip-dependency-check --outdir dist python
done
"$python" -m build -q --sdist --no-isolation --skip-dependency-check --outdir dist python

"$python" -m twine check --strict dist/*.whl dist/chorus_comms-*.tar.gz
for wheel in dist/*.whl; do "$python" -m auditwheel show "$wheel" | grep . ; done
ls -l dist
