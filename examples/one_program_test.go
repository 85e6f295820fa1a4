package examples

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/internal/testutil/nettest"
	"github.com/chorus-comms/chorus/internal/testutil/slurmtest"
	"github.com/chorus-comms/chorus/internal/testutil/sshtest"
)

// A launcher starts two ranks of a program, and returns what they print.
type launcher struct {
	name  string
	thing string // of testutil.Things; empty: ours
	run   func(t *testing.T, r *testutil.Run, bin string) ([]byte, error)
}

// launchers are those of this machine, and Kubernetes' variables. bin has the command and the program.
var launchers = []launcher{
	{"one host, chorus run", "", func(t *testing.T, r *testutil.Run, bin string) ([]byte, error) {
		r.Version = "-"
		return exec.CommandContext(t.Context(), bin+"/chorus", "run", "-n", "2", bin+"/quickstart").CombinedOutput()
	}},
	{"two hosts, chorus run -H by ssh", "OpenSSH", func(t *testing.T, r *testutil.Run, bin string) ([]byte, error) {
		testutil.SkipIfShort(t) // TestRunOnHosts of cmd/chorus is brief
		hosts := sshtest.Start(t)
		r.SetVersion([]byte(hosts.Version))
		cmd := exec.CommandContext(t.Context(), bin+"/chorus", "run", "--ssh", hosts.SSH, "--remote-chorus", bin+"/chorus",
			"-x", "TMPDIR", "-H", "node-a:1,node-b:1", bin+"/quickstart")
		cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
		return cmd.CombinedOutput()
	}},
	{"mpirun", "", func(t *testing.T, r *testutil.Run, bin string) ([]byte, error) {
		return mpirun(t, r, bin+"/quickstart")
	}},
	{"mpirun, backend mpi", "", func(t *testing.T, r *testutil.Run, bin string) ([]byte, error) {
		testutil.SkipIfShort(t) // it builds the program again, which has the backend if a file beside it imports that
		build := exec.CommandContext(t.Context(), "go", "build", "-tags", "mpi", "-o", bin+"/mpi/", "./quickstart")
		if out, err := build.CombinedOutput(); err != nil {
			return out, err
		}
		return mpirun(t, r, bin+"/mpi/quickstart", "CHORUS_BACKEND=mpi")
	}},
	{"two nodes of Slurm, srun", "Slurm", func(t *testing.T, r *testutil.Run, bin string) ([]byte, error) {
		c := slurmtest.Start(t, 2)
		r.SetVersion([]byte(c.Version))
		return c.Command("srun", "--quiet", "-n", "2", "-N", "2", bin+"/quickstart").CombinedOutput()
	}},
	{"two nodes of Ray", "Ray", onRay},
	{"variables of an indexed Job", "", func(t *testing.T, r *testutil.Run, bin string) ([]byte, error) {
		return inPods(t, r, bin+"/quickstart", func(rank string) []string {
			return []string{"JOB_COMPLETION_INDEX=" + rank, "HOSTNAME=train-" + rank}
		})
	}},
	{"variables of a PyTorchJob", "", func(t *testing.T, r *testutil.Run, bin string) ([]byte, error) {
		return inPods(t, r, bin+"/quickstart", func(rank string) []string { return []string{"RANK=" + rank} })
	}},
}

// TestOneProgram runs the program of the README, as it is, under each launcher. With -v it ends with a table of them.
func TestOneProgram(t *testing.T) {
	bin := built(t, "../cmd/chorus", "./quickstart")
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "launcher\tversion\toutcome")
	for _, l := range launchers {
		t.Run(l.name, func(t *testing.T) {
			var r *testutil.Run
			t.Cleanup(func() {
				major, _, _ := strings.Cut(r.Version, ".")
				what := strings.TrimSuffix(r.Thing, " "+major) // Open MPI 4
				fmt.Fprintf(w, "%s\t%s\t%s\n", l.name, strings.TrimSpace(what+" "+r.Version), r.Outcome)
			})
			r = testutil.Ran(t, l.thing)
			out, err := l.run(t, r, bin)
			for rank := range 2 {
				line := fmt.Sprintf("rank %d of 2: sum of the ranks is 1\n", rank)
				if err != nil || strings.Count(string(out), line) != 1 {
					t.Fatalf("want %q once: %v\n%s", line, err, out)
				}
			}
		})
	}
	w.Flush()
	t.Logf("the program of the README, with two ranks:\n%s", &table)
}

// mpirun starts a program by the mpirun in PATH.
func mpirun(t *testing.T, r *testutil.Run, program string, env ...string) ([]byte, error) {
	path, err := exec.LookPath("mpirun")
	if err != nil {
		t.Skip("left out: there is no mpirun")
	}
	text, err := exec.CommandContext(t.Context(), path, "--version").CombinedOutput()
	if err != nil {
		return text, err
	}
	r.SetMPI(text, false)
	cmd := exec.CommandContext(t.Context(), path, "-np", "2", program)
	cmd.Env = append(append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
		testutil.OpenMPIFolder(t)), env...)
	return cmd.CombinedOutput()
}

// onRay starts the program by clusters/ray_run.py on a cluster of Ray with two nodes, both on this host.
func onRay(t *testing.T, r *testutil.Run, bin string) ([]byte, error) {
	testutil.SkipIfShort(t) // Ray takes seconds to start
	python := frameworks()
	if python == "" {
		t.Skip("left out: no Python here has Ray: make frameworks")
	}
	version, err := exec.CommandContext(t.Context(), python, "-c", "import ray; print(ray.__version__)").Output()
	if err != nil {
		return version, err
	}
	r.SetVersion(version)
	cmd := exec.CommandContext(t.Context(), python, "-c", `
import os, subprocess, sys
import ray
from ray.cluster_utils import Cluster
for attempt in range(3):  # Ray gives a node half a minute to start, which a busy machine may not
    try:
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        cluster.add_node(num_cpus=1)
        break
    except Exception:
        if attempt == 2:
            raise
        ray.shutdown()
try:
    command = [sys.executable, "clusters/ray_run.py", "-n", "2", "--spread", *sys.argv[1:]]
    status = subprocess.run(command, env=os.environ | {"RAY_ADDRESS": cluster.address}).returncode
finally:
    cluster.shutdown()
sys.exit(status)
`, bin+"/quickstart")
	out, err := cmd.CombinedOutput()
	if err == nil && !strings.Contains(string(out), "2 ranks ran on 2 nodes") {
		err = fmt.Errorf("the ranks are not on two nodes")
	}
	return out, err
}

// frameworks is a Python that has Ray: that of make frameworks, or another that CHORUS_TEST_FRAMEWORKS names.
func frameworks() string {
	for _, python := range []string{os.Getenv("CHORUS_TEST_FRAMEWORKS"), "../.venvs/frameworks/bin/python", "../.venv/bin/python"} {
		path, err := filepath.Abs(python)
		if python == "" || err != nil {
			continue
		}
		if exec.Command(path, "-c", "import importlib.util, sys; sys.exit(not importlib.util.find_spec('ray'))").Run() == nil {
			return path
		}
	}
	return ""
}

// inPods starts the program with the variables of pods, which are processes here.
func inPods(t *testing.T, r *testutil.Run, program string, variables func(rank string) []string) ([]byte, error) {
	r.Version = "-"
	port, err := nettest.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	var out output
	var pods sync.WaitGroup
	errs := make([]error, 2)
	for rank := range 2 {
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env = append(append(os.Environ(), variables(strconv.Itoa(rank))...), "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
			fmt.Sprint("MASTER_PORT=", port))
		cmd.Stdout, cmd.Stderr = &out, &out
		pods.Go(func() { errs[rank] = cmd.Run() })
	}
	pods.Wait()
	for _, e := range errs {
		if e != nil {
			err = e
		}
	}
	return []byte(out.String()), err
}
