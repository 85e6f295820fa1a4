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
	alone = []string{"../README.md", "pytorch-ten-minutes.md", "first-job.md", "two-nodes.md", "new-device.md"}
	// inClone are those for a clone whose package is installed, as README.md has it done, and what they suppose to be
	// there.
	inClone = []struct{ page, supposed string }{
		{page: "../examples/README.md"},
		{page: "accl.md"},
		{page: "capi.md"},
		{page: "fast-paths.md"},
		{page: "from-mpi4py.md", supposed: "cd python/examples"},
		{page: "gloo.md"},
		{page: "launching.md", supposed: "go build ./examples/train\ncp python/examples/sum.py train.py"},
		{page: "memory-allocator.md", supposed: `python -c 'import json, torch
torch.accinte.memory._record_memory_history()
x = torch.ones(100000, device="accinte")
json.dump(torch.accinte.memory._snapshot(), open("snapshot.json", "w"))'`},
		{page: "performance.md"},
		{page: "pytorch.md"},
		{page: "torchcomms.md"},
	}
	// left are commands that no test of this package runs, and why. "*" stands for all of a page.
	left = map[string]map[string]string{
		"../CONTRIBUTING.md": {"*": "tests and releases of the repository; scripts/test-long.sh, which runs this test, runs them"},
		"../README.md":       {"make test": "it runs these tests", "pip install --no-build-isolation ./python/device": compiled},
		"../python/README.md": {
			"pip install chorus-comms": "pytorch-ten-minutes.md has it", "chorus run -n 4 train.py": "pytorch-ten-minutes.md has it",
			"chorus explain": "pytorch-ten-minutes.md has it", "pip install ./chorus/python": "README.md has it",
			"git clone https://github.com/chorus-comms/chorus": "README.md has it",
		},
		"../python/accl/README.md":       {"*": "README.md has the like, and python/tests/test_accl_process_group.py what it's for"},
		"../python/device/README.md":     {"*": "README.md has it"},
		"../python/torchcomms/README.md": {"*": "README.md has it"},
		"new-device.md": {
			"pip install --no-build-isolation ../chorus/python/device": compiled,
			"python -m torch_accinte.check mydevice":                   "takes minutes; python/device/tests/test_mydevice.py runs it",
		},
		"pytorch.md":    {"pip install ./python": "README.md has it", "pip install chorus-comms": "pytorch-ten-minutes.md has it"},
		"torchcomms.md": {"pip install ./python ./python/torchcomms": "README.md has it"},
		"torch-device.md": {
			"pip install ./python":                             "README.md has it",
			"pip install --no-build-isolation ./python/device": compiled,
			"CHORUS_ACCINTE_MEMORY=64MiB PYTORCH_ALLOC_CONF=large_segment_size_mb:11 python -m torch_accinte.programs accinte --pressure": "test_programs.py runs it, with fewer programs",
		},
		"clusters.md":   {"*": "Slurm and Kubernetes"},
		"comparison.md": {"*": "fetches 2.4 GB of other libraries, and measures for 16 minutes"},
		"fast-paths.md": {
			"CHORUS_TEST_LONG=1 go test -timeout 2h -run TestPaths ./comm":                                                                     "hours",
			"timeout 20 sh -c 'while :; do :; done' & time chorus bench all_reduce --ranks 2 --fabric shm --min 1MiB --max 1MiB --iters 10000": "keeps a core busy for 20 seconds",
			"go test -v -run TestAllToAllBetweenFarHosts ./comm":                                                                               "make test runs it",
		},
		"launching.md": {
			"chorus run --nnodes 2 --rdzv-endpoint node0:29400 -n 8 ./train":                               hosts,
			"CHORUS_SECRET_FILE=job.secret chorus run --nnodes 2 --rdzv-endpoint node0:29400 -n 8 ./train": hosts,
			"mpirun -np 4 -x MASTER_ADDR=node0 -x CHORUS_SECRET_FILE --host node0:2,node1:2 ./train":       hosts,
			"CHORUS_SECRET_FILE=~/job.secret srun --nodes 2 --ntasks-per-node 8 ./train":                   hosts,
		},
		"networks.md":      {"*": hosts},
		"observability.md": {"*": "they look at a job that runs or has failed; the tests of cmd/chorus have such jobs"},
		"performance.md": {
			"chorus run -n 8 chorus bench --calibrate":                        "takes half a minute on two cores, and the line before does the same",
			"make bench-commits OLD=main~5":                                   "many minutes",
			"make bench-commits OLD=v0.1.0 NEW=v0.2.0":                        "many minutes, and tags that a clone may lack",
			"BENCH='^BenchmarkSum$' BENCH_PACKAGES=./kern make bench-commits": "minutes",
		},
		"reliability.md": {"*": "an hour; internal/chaos runs fewer rounds of both"},
		"security.md":    {"*": hosts + "; two-nodes.md and launching.md have the same"},
	}
)

const (
	compiled = "compiles for minutes what make python has compiled"
	hosts    = "two hosts or more"
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
	for _, pattern := range []string{"../*.md", "../python/*.md", "../python/*/README.md", "../internal/*/README.md"} {
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
	shown := 0
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
				why := left[page][c] + left[page]["*"]
				delete(unused, c)
				delete(unused, "*")
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
	if shown < 80 {
		t.Errorf("found only %d commands", shown)
	}
}
