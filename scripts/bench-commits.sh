#!/usr/bin/env bash
# Compares the benchmarks of two commits with benchstat: docs/performance.md, "Comparing commits".
#   bash scripts/bench-commits.sh [OLD [NEW]]
# OLD is HEAD if it's not given, and NEW the work tree. Their benchmarks run in turns, so that what the machine does
# meanwhile happens to both. BENCH is which (a regular expression), BENCH_PACKAGES where, BENCH_COUNT how often, and
# BENCH_TIME for how long each runs. The samples stay in out/bench.
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
benchstat=golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
read -ra packages <<<"${BENCH_PACKAGES:-./comm ./cmd/internal/bench ./kern}"
out=$PWD/out/bench
trees=$(mktemp -d)
trap 'rm -rf "$trees"' EXIT

# tree COMMIT NAME makes the files of a commit, and prints where they are.
tree() {
	mkdir "$trees/$2"
	git archive "$1" | tar -x -C "$trees/$2"
	if [ -d "$trees/$2/internal/bench" ]; then # where older commits have it
		mkdir -p "$trees/$2/cmd/internal"
		mv "$trees/$2/internal/bench" "$trees/$2/cmd/internal/bench"
		grep -rl chorus/internal/bench "$trees/$2" --include='*.go' | xargs sed -i s,chorus/internal/bench,chorus/cmd/internal/bench,
	fi
	echo "$trees/$2"
}
old=$(tree "${1:-HEAD}" old)
new=$PWD
[ $# -lt 2 ] || new=$(tree "$2" new)

rm -rf "$out"
mkdir -p "$out"
for side in old new; do
	for package in "${packages[@]}"; do
		(cd "${!side}" && $GO test -c -o "$trees/$side-${package//[^a-z]/_}" "$package")
	done
done
for ((turn = 1; turn <= ${BENCH_COUNT:-6}; turn++)); do
	echo "turn $turn" >&2
	for package in "${packages[@]}"; do
		for side in old new; do
			(cd "${!side}/$package" && "$trees/$side-${package//[^a-z]/_}" -test.run '^$' \
				-test.bench "${BENCH:-^Benchmark(Paths|AllReduce|Sum)$}" -test.benchtime "${BENCH_TIME:-50ms}") >>"$out/$side.txt"
		done
	done
done
cd "$out"
$GO run "$benchstat" old.txt new.txt
