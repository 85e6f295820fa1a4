package testutil

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// RanVar names a file, to which tests of real things add what has run: a line of JSON for each, a [Run].
const RanVar = "CHORUS_TEST_RAN"

// Things are what tests run of others: the rows of the table in docs/clusters.md.
var Things = []string{"OpenSSH", "Slurm", "Ray", "etcd", "GoMLX", "UCX", "Open MPI 4", "Open MPI 5", "MPICH", "MPICH, MPI 5 ABI",
	"Intel MPI", "Intel MPI, MPI 5 ABI", "Lightning", "Accelerate", "Transformers", "DeepSpeed", "Ray Train",
	"TorchFT", "torchtitan", "vLLM on CPUs", "Kubernetes' API types"}

// A Run is what a test has run: a library, a launcher or a framework, as it was on this machine.
type Run struct {
	Thing   string `json:"thing"`   // of Things
	Version string `json:"version"` // empty: it isn't here
	Test    string `json:"test"`
	Outcome string `json:"outcome"` // passed, failed, or left out
}

// Ran adds a Run of one of [Things] to the file that [RanVar] names, if there is one, when the test ends. The test sets
// the version once it's known, and also the thing if that's empty. A Run that stays without a thing isn't added.
func Ran(t testing.TB, thing string) *Run {
	t.Helper()
	r := &Run{Thing: thing, Test: t.Name()}
	t.Cleanup(func() {
		if r.Thing != "" && !slices.Contains(Things, r.Thing) {
			t.Errorf("testutil.Things has no %q", r.Thing)
		}
		switch {
		case t.Failed():
			r.Outcome = "failed"
		case t.Skipped() || r.Version == "":
			r.Outcome = "left out"
		default:
			r.Outcome = "passed"
		}
		if path := os.Getenv(RanVar); path != "" && r.Thing != "" {
			if err := r.add(path); err != nil {
				t.Error(err)
			}
		}
	})
	return r
}

var numbers = regexp.MustCompile(`\d+\.\d[\w.+-]*`)

// SetVersion takes the version from what a program says of itself: the first number with a point.
func (r *Run) SetVersion(text []byte) { r.Version = numbers.FindString(string(text)) }

// SetMPI takes thing and version from what an mpirun says of itself. abi says that the library is that of MPI 5's ABI.
func (r *Run) SetMPI(text []byte, abi bool) {
	r.SetVersion(text)
	switch {
	case strings.Contains(string(text), "Open MPI"):
		major, _, _ := strings.Cut(r.Version, ".")
		r.Thing = "Open MPI " + major
	case strings.Contains(string(text), "Intel"):
		r.Thing = "Intel MPI"
	default:
		r.Thing = "MPICH"
	}
	if abi {
		r.Thing += ", MPI 5 ABI"
	}
}

// add adds the line in one write, so that several processes may do so.
func (r *Run) add(path string) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.Write(append(line, '\n')); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
