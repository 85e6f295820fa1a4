package examples

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/internal/testutil/slurmtest"
)

// built builds programs of this module, and returns the directory where they are.
func built(t *testing.T, packages ...string) string {
	t.Helper()
	bin := t.TempDir()
	build := exec.Command("go", append([]string{"build", "-o", bin + "/"}, packages...)...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// A batch is a job file of examples/clusters, in a directory of its own.
type batch struct {
	*testing.T
	cluster   *slurmtest.Cluster
	dir, file string
	env       []string
}

func newBatch(t *testing.T, c *slurmtest.Cluster, file string, env ...string) *batch {
	t.Helper()
	file, err := filepath.Abs(filepath.Join("clusters", file))
	if err != nil {
		t.Fatal(err)
	}
	return &batch{t, c, t.TempDir(), file, env}
}

// submit has sbatch run the job file; more are further arguments of sbatch.
func (b *batch) submit(more ...string) error {
	cmd := b.cluster.Command(append(append([]string{"sbatch"}, more...), b.file)...)
	cmd.Dir, cmd.Env = b.dir, append(cmd.Env, b.env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// output returns what a job has written: the files that a pattern names.
func (b *batch) output(pattern string) string {
	files, err := filepath.Glob(filepath.Join(b.dir, pattern))
	if err != nil {
		b.Fatal(err)
	}
	var all []byte
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, text...)
	}
	return string(all)
}

// TestSlurm runs programs under a real Slurm with three nodes.
func TestSlurm(t *testing.T) {
	ran := testutil.Ran(t, "Slurm")
	bin := built(t, "../cmd/chorus", "./quickstart", "./recover", "./allreduce")
	c := slurmtest.Start(t, 3)
	ran.SetVersion([]byte(c.Version))
	t.Logf("%s, srun --mpi=%s", c.Version, strings.Join(c.MPI, ","))
	for _, plugin := range c.MPI {
		t.Run("srun "+plugin, func(t *testing.T) {
			out, err := c.Command("srun", "--quiet", "--mpi="+plugin, "-n", "5", "-N", "3", bin+"/quickstart").CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for r := range 5 {
				if line := fmt.Sprintf("rank %d of 5: sum of the ranks is 10\n", r); strings.Count(string(out), line) != 1 {
					t.Errorf("no %q in\n%s", line, out)
				}
			}
		})
		t.Run("places "+plugin, func(t *testing.T) { testPlaces(t, c, bin, plugin) })
	}
	t.Run("arbitrary", func(t *testing.T) {
		hosts := filepath.Join(t.TempDir(), "hosts")
		if err := os.WriteFile(hosts, []byte("n3\nn1\nn1\nn2\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := c.Command("srun", "--quiet", "-m", "arbitrary", "-n", "4", "-N", "3", bin+"/quickstart")
		cmd.Env = append(cmd.Env, "SLURM_HOSTFILE="+hosts)
		if out, err := cmd.CombinedOutput(); err != nil || strings.Count(string(out), "of 4: sum of the ranks is 6\n") != 4 {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("several programs", func(t *testing.T) {
		out, err := c.Command("srun", "--quiet", "-n", "1", "-N", "1", bin+"/quickstart", ":", "-n", "3", "-N", "2",
			bin+"/quickstart").CombinedOutput()
		if err != nil || strings.Count(string(out), "of 4: sum of the ranks is 6\n") != 4 {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("a rank ends", func(t *testing.T) {
		out, err := c.Command("srun", "--quiet", "-n", "4", "-N", "2", bin+"/recover", "-die", "2", "-state",
			filepath.Join(t.TempDir(), "state")).CombinedOutput()
		if err == nil || strings.Count(string(out), "rank 2") < 3 {
			t.Errorf("want three ranks that name rank 2, and a failure: %v\n%s", err, out)
		}
	})
	t.Run("array", func(t *testing.T) {
		b := newBatch(t, c, "array.sbatch", "PROGRAM="+bin+"/allreduce", "ARGS=-count 10000")
		// One job after the other: slurmd 22.05 has ended when two steps began on it within milliseconds.
		jobs := testutil.Pick(2, 4)
		if err := b.submit("--wait", fmt.Sprintf("--array=0-%d%%1", jobs-1)); err != nil {
			t.Fatalf("%v\n%s", err, b.output("*.out"))
		}
		for job := range jobs {
			out := b.output(fmt.Sprintf("sweep-%d.out", job))
			if strings.Count(out, "of 4: 10000 elements averaged to 1.5 ") != 4 {
				t.Errorf("job %d:\n%s", job, out)
			}
		}
	})
	t.Run("chorus run", func(t *testing.T) {
		b := newBatch(t, c, "train.sbatch", "PROGRAM="+bin+"/quickstart", "RANKS=2", "PATH="+bin+":"+os.Getenv("PATH"))
		if err := b.submit("--wait", "--cpus-per-task=2"); err != nil {
			t.Fatalf("%v\n%s", err, b.output("*.out"))
		}
		if out := b.output("*.out"); strings.Count(out, "of 4: sum of the ranks is 6\n") != 4 {
			t.Error(out)
		}
	})
	t.Run("requeue", func(t *testing.T) {
		testutil.SkipIfShort(t) // Slurm notices a dead node after some seconds
		testRequeue(t, c, bin)
	})
}

// testPlaces compares what Chorus takes from the variables of srun with what hosts say.
func testPlaces(t *testing.T, c *slurmtest.Cluster, bin, plugin string) {
	// Each rank writes a file of its own: srun passes long lines on in pieces, and those of several ranks mix.
	dir := t.TempDir()
	out, err := c.Command("srun", "--quiet", "--mpi="+plugin, "-n", "5", "-N", "3", "--output="+dir+"/%t", "bash", "-c",
		`echo "$(hostname) $("$0" doctor --json | tr -d '\n')"`, bin+"/chorus").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var got []string
	for rank := range 5 {
		line, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(rank)))
		if err != nil {
			t.Fatal(err)
		}
		host, text, _ := strings.Cut(string(line), " ")
		var d struct {
			Launcher struct {
				Name, Master string
				Rank, Size   int
				LocalRank    int `json:"local_rank"`
				LocalSize    int `json:"local_size"`
			}
		}
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatalf("%v\n%s", err, line)
		}
		l := d.Launcher
		got = append(got, fmt.Sprintf("rank %d of %d: %s, %d of %d", l.Rank, l.Size, host, l.LocalRank, l.LocalSize))
		name := map[string]string{"none": "slurm", "pmi2": "pmi", "pmix": "pmix"}[plugin]
		if l.Name != name || !strings.HasPrefix(l.Master, "n1 port 1") && !strings.HasPrefix(l.Master, "n1 port 2") {
			t.Errorf("%+v", l)
		}
	}
	slices.Sort(got)
	want := []string{"rank 0 of 5: n1, 0 of 3", "rank 1 of 5: n1, 1 of 3", "rank 2 of 5: n1, 2 of 3",
		"rank 3 of 5: n2, 0 of 1", "rank 4 of 5: n3, 0 of 1"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// testRequeue kills a node in the middle of a job. Slurm starts the job again on the nodes that are left, and the
// program goes on from the state that it has saved.
func testRequeue(t *testing.T, c *slurmtest.Cluster, bin string) {
	b := newBatch(t, c, "requeue.sbatch", "PROGRAM="+bin+"/recover", "ARGS=-each 20ms")
	done := make(chan error, 1)
	go func() { done <- b.submit("--wait", "--exclusive") }()
	testutil.Eventually(t, func() bool { return b.output("state-*.json") != "" }, "the job saves a state")
	out, err := c.Command("squeue", "--noheader", "--format=%N").Output()
	if nodes := strings.TrimSpace(string(out)); err != nil || nodes != "n[1-2]" {
		t.Fatalf("the job is on %s: %v", nodes, err)
	}
	c.Kill("n2")
	defer c.Boot("n2")
	select {
	case err := <-done:
		out := b.output("train-*.out")
		m := regexp.MustCompile(`the sum is 403200 after 200 steps, (\d+) of them in this run\n`).FindStringSubmatch(out)
		if err != nil || m == nil || m[1] == "200" {
			t.Errorf("%v\n%s", err, out)
		}
	case <-time.After(2 * time.Minute):
		out, _ := c.Command("squeue").CombinedOutput()
		t.Fatalf("the job doesn't end:\n%s\n%s", out, b.output("train-*.out"))
	}
}
