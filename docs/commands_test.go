package docs

import (
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each page that shows commands is followed, by one of the tests of follow_test.go, or its commands are among those
// that no test runs.
var (
	// alone are the pages that begin in an empty folder.
	alone = []string{
		"../README.md", "../python/README.md", "pytorch-ten-minutes.md", "first-job.md", "two-nodes.md", "networks.md",
		"new-device.md", "adapters.md",
	}
	// inClone are those for a clone whose package is installed, as README.md has it done, and what they suppose to be
	// there.
	inClone = []struct{ page, supposed, after string }{
		{page: "../examples/README.md"},
		{page: "../python/accl/README.md"},
		{page: "accl.md"},
		{page: "capi.md"},
		{page: "fast-paths.md"},
		{page: "from-mpi4py.md", supposed: "cd python/examples"},
		{page: "gloo.md"},
		{page: "launching.md", supposed: "go build ./examples/train\ncp python/examples/sum.py train.py"},
		{page: "mpi.md", supposed: "cd python/examples"},
		{page: "memory-allocator.md", supposed: `python -c 'import json, torch
torch.accinte.memory._record_memory_history()
x = torch.ones(100000, device="accinte")
json.dump(torch.accinte.memory._snapshot(), open("snapshot.json", "w"))'`},
		{page: "observability.md", supposed: `export TMPDIR=$(mktemp -d)
go build ./examples/train
chorus run --rdzv-id mine -n 2 ./train --epochs 2000 >train.log 2>&1 &
echo $! >job.pid
until chorus top --looks 1 mine | grep "2 ranks answer"; do kill -0 $(cat job.pid); sleep 0.1; done
mkdir dumps
kill -USR1 $(cat job.pid)
until cp $TMPDIR/chorus-*/mine/attempt_0/*_rank_[01].json dumps; do kill -0 $(cat job.pid); sleep 0.1; done`,
			after: "kill $(cat job.pid)"},
		{page: "performance.md"},
		{page: "pytorch.md"},
		{page: "reliability.md"},
		{page: "security.md"},
		{page: "torchcomms.md"},
	}
	// left are commands that no test of this package runs, and why. "*" stands for all of a page.
	left = map[string]map[string]string{
		"../CONTRIBUTING.md": {
			"make demo":      "README.md has it",
			"make lint":      ".ci/run runs it first",
			"make test":      "it runs these tests",
			"make test-long": "it runs these tests",
			"make wheels":    "make test-long runs it, before these tests",
			"make release":   "make test-long runs it",
		},
		"../README.md": {
			"make test": "it runs these tests",
			"pip install torch --index-url https://download.pytorch.org/whl/cpu":   "it's PyTorch's own index, and machines for tests reach PyPI alone",
			"pip install -v --no-build-isolation ./python/device ./python/accinte": "TestInstall runs it; here it compiles for minutes what make python has compiled",
		},
		"../python/README.md": {
			"chorus run -n 4 train.py":                         "pytorch-ten-minutes.md has the like, with a program",
			"chorus explain":                                   "observability.md has it",
			"git clone https://github.com/chorus-comms/chorus": "README.md has it",
			"pip install ./chorus/python":                      "README.md has the like",
		},
		"../python/device/README.md": {
			"pip install ./python":                             "python/accl/README.md has the like",
			"pip install --no-build-isolation ./python/device": compiled,
		},
		"../python/accinte/README.md": {
			"pip install ./python": "python/accl/README.md has the like",
			"pip install --no-build-isolation ./python/device ./python/accinte": compiled,
		},
		"../python/zoom/README.md": {
			"pip install ./python": "python/accl/README.md has the like",
			"pip install --no-build-isolation ./python/device ./python/zoom": compiled,
		},
		"../python/torchcomms/README.md": {"pip install ./python ./python/torchcomms": "README.md has the like"},
		"torch-compile.md": {
			"*": "takes hours, and a checkout of PyTorch; python/device/tests/test_devtests.py runs such programs",
		},
		"device-tests.md": {
			"*": "takes up to half an hour, and a checkout of PyTorch; python/device/tests/test_devtests.py runs these in part",
		},
		"new-device.md": {
			"pip install --no-build-isolation ../chorus/python/device": compiled,
			"python -m chorus_device.check mydevice":                   "takes minutes; python/device/tests/test_mydevice.py runs it",
		},
		"pytorch.md":    {"pip install ./python": "README.md has the like", "pip install chorus-comms": "python/README.md has it"},
		"torchcomms.md": {"pip install ./python ./python/torchcomms": "README.md has the like"},
		"torch-device.md": {
			"torchrun --nproc-per-node 2 python/accinte/examples/multi_gpu.py": "python/device/tests/test_multi_gpu.py runs it",
			"pip install ./python": "README.md has the like",
			"pip install --no-build-isolation ./python/device ./python/accinte":                                                           compiled,
			"CHORUS_ACCINTE_MEMORY=64MiB PYTORCH_ALLOC_CONF=large_segment_size_mb:11 python -m chorus_device.programs accinte --pressure": "test_programs.py runs it, with fewer programs",
		},
		"zoom.md": {
			". .venvs/zoom/bin/activate": "make zoom has made the environment",
			"pip install ./python":       "README.md has the like",
			"pip install --no-build-isolation ./python/device ./python/zoom": compiled,
			"python -m torch_zoom":                     "python/zoom/tests/test_examples.py runs it",
			"python -m torch_zoom train.py --epochs 1": "test_examples.py runs it, with a program that is there",

			"python -m torch_zoom --warm train.py --epochs 1": "test_warm.py runs it, with a program of its own",
		},
		"clusters.md": {
			"RAY_ADDRESS=10.0.0.7:6379 python examples/clusters/ray_run.py -n 8 ./train --epochs 3": "TestOneProgram of package examples has a cluster of Ray",
			"make one-program": "make test and make test-long run this test",
			"make what-ran":    "make test-long runs these tests",
			"*":                "python/tests/test_clusters.py and TestSlurm of package examples run these files",
		},
		"frameworks.md": {
			"make frameworks-vllm": "it downloads 1.2 GB; scripts/what-ran.sh runs its program",
		},
		"comparison.md": {
			"make compare": libraries,
			`make compare COMPARE_FLAGS="--only all_reduce,tcp --max 4MiB --peers ompi4,impi"`: libraries,
			"go run ./cmd/internal/bench/compare --install-only":                               libraries,
			"go run ./cmd/internal/bench/compare --report --docs docs/comparison.md":           "it prints what those before have measured",
		},
		"adapters.md": {"CHORUS_STORE=etcd://etcd0:2379,etcd1:2379,etcd2:2379 chorus run -n 4 ./train": "TestJob of adapters/etcd starts such a job"},
		"fast-paths.md": {
			"CHORUS_TEST_LONG=1 go test -timeout 2h -run TestPaths ./comm":                                                                     "hours",
			"timeout 20 sh -c 'while :; do :; done' & time chorus bench all_reduce --ranks 2 --fabric shm --min 1MiB --max 1MiB --iters 10000": "keeps a core busy for 20 seconds",
			"go test -v -run TestAllToAllBetweenFarHosts ./comm":                                                                               "make test runs it",
		},
		"emulated-gpu.md": {"*": "the tests of device/gpu/emulated have processes on it"},
		"mpi.md":          {"mpirun -np 4 ./train": "launching.md has it", "CHORUS_BACKEND=mpi mpirun -np 4 ./train": "TestOneProgram of package examples has the like"},
		"launching.md": {
			"chorus run -H node0:8,node1:8 ./train":                                                        "TestRunOnHosts of cmd/chorus has hosts with sshd",
			"chorus run --nnodes 2 --rdzv-endpoint node0:29400 -n 8 ./train":                               hosts,
			"CHORUS_SECRET_FILE=job.secret chorus run --nnodes 2 --rdzv-endpoint node0:29400 -n 8 ./train": hosts,
			"mpirun -np 4 -x MASTER_ADDR=node0 -x CHORUS_SECRET_FILE --host node0:2,node1:2 ./train":       hosts,
			"CHORUS_SECRET_FILE=~/job.secret srun --nodes 2 --ntasks-per-node 8 ./train":                   hosts,
			"chorus run --nnodes 2:4 --rdzv-endpoint node0:29400 -n 8 ./train":                             "two hosts or more; TestElasticProcesses of package launch has launchers on one",
			"CHORUS_STORE=tcp://store:29500 chorus run --nnodes 2:4 --rdzv-id run7 -n 8 ./train":           "two hosts or more; TestElasticStore of package launch has launchers on one",
		},
		"networks.md": {
			`docker run --rm -v "$PWD":/job -w /job IMAGE chorus run -n 4 train.py`:                                                      "needs Docker, and an image with the package",
			"CHORUS_ADVERTISE=203.0.113.5 CHORUS_PORTS=30000-30063 chorus run --nnodes 2 --rdzv-endpoint 203.0.113.4:29400 -n 2 ./train": "needs a translation of addresses; TestAdvertise of fabric/tcp stands for one",
		},
		"performance.md": {
			"chorus run -n 8 chorus bench --calibrate":                        "takes half a minute on two cores, and the line before does the same",
			"make bench-commits OLD=main~5":                                   "many minutes",
			"make bench-commits OLD=v0.1.0 NEW=v0.2.0":                        "many minutes, and tags that a clone may lack",
			"BENCH='^BenchmarkSum$' BENCH_PACKAGES=./kern make bench-commits": "minutes",
		},
		"security.md": {
			"chorus run --nnodes 2 --rdzv-endpoint node0:29400 -n 8 ./train":                         hosts,
			"CHORUS_SECRET_FILE=~/job.secret srun --nodes 2 --ntasks-per-node 8 ./train":             hosts,
			"mpirun -np 4 -x MASTER_ADDR=node0 -x CHORUS_SECRET_FILE --host node0:2,node1:2 ./train": hosts,
			"torchrun --nnodes 2 --rdzv-endpoint node0:29400 --no-python ./train":                    hosts,
		},
	}
)

const (
	compiled  = "compiles for minutes what make python has compiled"
	libraries = "fetches 2.4 GB of other libraries, and measures for minutes"
	hosts     = "two hosts or more"
)

// commands returns the commands of a block, each on one line, without comments.
func commands(block string) []string {
	var all []string
	block = strings.ReplaceAll(block, "\\\n", " ")
	for line := range strings.Lines(block) {
		if line = command(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

var comment = regexp.MustCompile(`(^|\s+)#.*`)

func command(line string) string {
	return strings.Join(strings.Fields(comment.ReplaceAllString(line, "")), " ")
}

// without returns a block without those of its commands that no test runs.
func without(page, block string) string {
	lines := strings.SplitAfter(block, "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return left[page][command(line)] != "" })
	return strings.Join(lines, "")
}

// withCommands returns the pages that a reader may take commands from.
func withCommands(t *testing.T) map[string]string {
	t.Helper()
	all := pages(t)
	for _, pattern := range []string{"../*.md", "../python/*.md", "../python/[^.]*/README.md", "../internal/*/README.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			all[path] = read(t, path)
		}
	}
	return all
}

// TestCommands demands that each command on a page is run by a test, or among those that aren't, which have a reason,
// and that the shell can read it.
func TestCommands(t *testing.T) {
	followed := slices.Clone(alone)
	for _, p := range inClone {
		followed = append(followed, p.page)
	}
	hidden := regexp.MustCompile(`(?m)^(?:    )?(?:\$ )?(?:[A-Z_]+=\S+ )*(?:sh|bash|go|make|pip|python3?|chorus|torchrun|mpirun|docker|git|for) .*$`)
	shown, runs, elsewhere := 0, map[string][]string{}, map[string]string{}
	for page, text := range withCommands(t) {
		unused := maps.Clone(left[page])
		for _, s := range steps(text) {
			if s.file != "" {
				continue
			}
			if out, err := exec.Command("bash", "-n", "-c", s.text).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s\n%s", page, err, out, s.text)
			}
			for _, c := range commands(s.text) {
				shown++
				runs[page] = append(runs[page], c)
				why := left[page][c] + left[page]["*"]
				delete(unused, c)
				delete(unused, "*")
				if other, ok := strings.CutSuffix(left[page][c], " has it"); ok {
					elsewhere[c] = other
				}
				if why == "" && !slices.Contains(followed, page) {
					t.Errorf("%s: no test runs this, and nothing says why: %s", page, c)
				}
			}
		}
		for c := range unused {
			t.Errorf("%s has no command %s, which is said to be left out", page, c)
		}
		// Commands elsewhere than in a block of sh are seen by no test.
		for _, m := range block.FindAllStringSubmatch(text, -1) {
			if m[2] == "" || m[2] == "text" || m[2] == "console" || m[2] == "bash" {
				if c := hidden.FindString(m[3]); c != "" {
					t.Errorf("%s: this belongs into a block of sh: %s", page, c)
				}
			}
		}
		if c := hidden.FindString(block.ReplaceAllString(text, "")); strings.HasPrefix(c, "    ") {
			t.Errorf("%s: this belongs into a block of sh: %s", page, c)
		}
	}
	for c, other := range elsewhere {
		if _, ok := runs[other]; !ok {
			other = "../" + other
		}
		if !slices.Contains(followed, other) || !slices.Contains(runs[other], c) || left[other][c] != "" {
			t.Errorf("no test runs this on %s: %s", other, c)
		}
	}
	if shown < 80 {
		t.Errorf("found only %d commands", shown)
	}
}
