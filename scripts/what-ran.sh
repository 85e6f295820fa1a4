#!/usr/bin/env bash
# Runs the tests of real things that other people have made, and writes into docs/clusters.md which of them ran with which version:
# `make what-ran` runs this. It leaves out what this machine lacks. FRAMEWORKS is a Python with the frameworks
# (make frameworks), and VLLM is one with vLLM (make frameworks-vllm).
set -uo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
FRAMEWORKS=${FRAMEWORKS:-$PWD/.venvs/frameworks/bin/python}
VLLM=${VLLM:-$PWD/.venvs/vllm/bin/python}
export CHORUS_TEST_RAN=$PWD/out/ran.jsonl CHORUS_TEST_FRAMEWORKS=$FRAMEWORKS
mkdir -p out
rm -f "$CHORUS_TEST_RAN"
failed=0
$GO test -count 1 -timeout 30m -run '^(TestSlurm|TestOneProgram)$' ./examples || failed=1
$GO test -count 1 -timeout 60m -run '^TestConformance$' ./comm/mpi ./fabric/ucx || failed=1
(cd adapters/etcd && $GO test -count 1 -run '^TestMemberKilled$' .) || failed=1
(cd adapters/gomlx && $GO test -count 1 -run '^TestTraining$' .) || failed=1
(cd adapters/kubernetes && $GO test -count 1 -run '^TestManifests$' .) || failed=1
[ ! -x "$FRAMEWORKS" ] || DS_ACCELERATOR=cpu "$FRAMEWORKS" examples/frameworks/run.py || failed=1
[ ! -x "$VLLM" ] || "$VLLM" examples/frameworks/run.py vllm_generate || failed=1
CHORUS_TEST_WRITE=1 $GO test -count 1 -run '^TestWhatRan$' ./docs || failed=1
exit $failed
