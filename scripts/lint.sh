#!/usr/bin/env bash
# Finds faults in the code without running it; `make lint` runs this. It needs Go, and Python for ruff and
# clang-format, which live in .venvs/lint (35 MB). Clang compiles the texts of kernels if the machine has it. mypy is one of
# the Python tests, and scripts/one-piece.sh one of the long ones.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
go=${GO:-go} lint=.venvs/lint

bash scripts/words.sh
unformatted=$("$($go env GOROOT)/bin/gofmt" -l $(git ls-files '*.go'))
[ -z "$unformatted" ] || { echo "gofmt: $unformatted"; exit 1; }
if LC_ALL=C.UTF-8 git grep -nP '^(\t|//|func |type |var )[^"`]{120,}$' -- '*.go' ':!*_amd64.go'; then # but for texts
	exit 1
fi
export GOFLAGS="${GOFLAGS:-} -trimpath -buildmode=pie" # as scripts/steps.sh does
$go vet ./...
$go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
if [ ! -e $lint/ok-2 ]; then
	"${PYTHON:-python3}" -m venv $lint
	$lint/bin/pip install -q --disable-pip-version-check 'ruff==0.17.6' 'clang-format==14.0.6'
	touch $lint/ok-2
fi
$lint/bin/ruff check -q --output-format concise python
$lint/bin/clang-format --dry-run -Werror kernel/text/*.h device/gpu/emulated/*.h device/gpu/emulated/*.cpp
if command -v clang >/dev/null; then
	CHORUS_TEST_SHORT= $go test -count=1 -run '^TestSyntax$' ./kernel
else
	echo "lint: left out: compiling the texts of kernels, since clang isn't here"
fi
