#!/usr/bin/env bash
# What machines find in the code without running it; `make lint` runs this. It needs Go, and Python for ruff, which lives in
# .venvs/lint (30 MB). mypy is one of the Python tests, and scripts/one-piece.sh one of the long ones.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
go=${GO:-go} lint=.venvs/lint

bash scripts/words.sh
unformatted=$(gofmt -l $(git ls-files '*.go'))
[ -z "$unformatted" ] || { echo "gofmt: $unformatted"; exit 1; }
! LC_ALL=C.UTF-8 git grep -nP '^(\t|//|func |type |var )[^"`]{120,}$' -- '*.go' ':!*_amd64.go' # but for texts
$go vet ./...
$go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
if [ ! -e $lint/ok ]; then
	"${PYTHON:-python3}" -m venv $lint
	$lint/bin/pip install -q --disable-pip-version-check 'ruff==0.17.6'
	touch $lint/ok
fi
$lint/bin/ruff check -q --output-format concise python
