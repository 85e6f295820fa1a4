# The common part of scripts/test.sh and scripts/test-long.sh: steps with their times, and a list of skipped steps at
# the end.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
GO=${GO:-go}
skipped=()
left=$PWD/out/left-out
mkdir -p out
rm -f "$left"
begun=$SECONDS
since=$SECONDS
name=
# Tests are compiled as the shared library has to be, so that each package is compiled once.
plain=${GOFLAGS:-}
export GOFLAGS="$plain -trimpath -buildmode=pie"
$GO build -o out/testlines ./cmd/internal/testlines
step() {
	[ -z "$name" ] || printf -- '-- %s: %d s\n' "$name" $((SECONDS - since))
	name=$1 since=$SECONDS
	printf '\n== %s\n' "$1"
}

# go test, with a line a package; make lint vets them. Two packages at a time, on any machine: most tests are worlds of
# processes that wait for each other, and two of them keep two cores busy.
tests() {
	$GO test -vet=off -p 2 -timeout 30m -json "$@" | out/testlines "$left"
}

# pytest, with two tests at a time for the same reason.
python_tests() {
	.venv/bin/python -m pytest -q -rs -n 2 --dist worksteal "$@"
}

# PyTorch in .venv, for tests of Go too; without it they are told, so that they say so.
pytorch() {
	if [ "${CHORUS_TEST_PYTORCH:-1}" = 0 ]; then
		skipped+=("PyTorch: CHORUS_TEST_PYTORCH=0")
	elif ! command -v "${PYTHON:-python3}" >/dev/null; then
		export CHORUS_TEST_PYTORCH=0
		skipped+=("PyTorch: no python3 on this machine")
	elif ! make venv; then
		export CHORUS_TEST_PYTORCH=0
		skipped+=("PyTorch: .venv could not be made, see above")
	fi
}

# Whether the Python package can be built here.
package() {
	if [ "${CHORUS_TEST_PYTORCH:-1}" = 0 ]; then
		skipped+=("the Python package: it needs PyTorch, see there")
	elif ! command -v cc >/dev/null; then
		skipped+=("the Python package: no C compiler")
	else
		return 0
	fi
	return 1
}

passed() {
	step "passed"
	printf '%s: %d minutes %d seconds\n' "$0" $(((SECONDS - begun) / 60)) $(((SECONDS - begun) % 60))
	for s in "${skipped[@]+"${skipped[@]}"}"; do echo "left out: $s"; done
	[ ! -e "$left" ] || sort -u "$left"
}
