#!/usr/bin/env bash
# Fuzzes every parser and header, one target after the other, and prints what each has gone through: docs/security.md.
#   bash scripts/fuzz.sh [TIME [TARGET]]
# TIME is for each target, 10m if it's not given; TARGET a regular expression for PACKAGE.NAME, as in 'store|tcp.FuzzHeader'. A finding
# stays in the package's testdata, where `go test` tries it from then on, and the exit status is 1. Runs add up: what they did is kept in
# out/fuzz.txt, and what they found of interest in Go's cache, from which the next goes on. FUZZ_LIMIT in seconds ends a run before the next target.
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
time=${1:-10m}
log=out/fuzz.txt # package, target, time, executions, findings
mkdir -p out
touch "$log"
failed=0
began=$SECONDS
while IFS=: read -r file _ rest; do
	package=$(dirname "$file")
	name=${rest#func }
	name=${name%%(*}
	[[ ${package#./}.$name =~ ${2:-.} ]] || continue
	[ $((SECONDS - began)) -lt "${FUZZ_LIMIT:-1000000}" ] || break
	found=0
	output=$($GO test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "$package" 2>&1) || found=1
	executions=$(grep -o 'execs: [0-9]*' <<<"$output" | tail -1 | cut -d' ' -f2 || true)
	elapsed=$(grep -o 'elapsed: [0-9hms]*' <<<"$output" | tail -1 | cut -d' ' -f2 || true)
	if [ "$found" = 1 ]; then
		failed=1
		echo "$output" >&2
	fi
	echo "$package $name ${elapsed:-0s} ${executions:-0} $found" >>"$log"
done < <(grep -rn --include='*_test.go' --exclude-dir=.venv --exclude-dir=.peers '^func Fuzz' . | sort)
awk '
	function seconds(t,   n, h) {
		n = 0
		if (match(t, /[0-9]+h/)) n += 3600 * substr(t, RSTART, RLENGTH - 1)
		if (match(t, /[0-9]+m/)) n += 60 * substr(t, RSTART, RLENGTH - 1)
		if (match(t, /[0-9]+s/)) n += substr(t, RSTART, RLENGTH - 1)
		return n
	}
	{ k = substr($1, 3) "." $2; s[k] += seconds($3); e[k] += $4; f[k] += $5 }
	END { for (k in s) printf "| `%s` | %d | %d | %d |\n", k, s[k], e[k], f[k] | "sort" }
' "$log" | sed '1i | target | seconds | executions | findings |\n|---|---:|---:|---:|'
exit $failed
