// Package slurmtest starts real clusters of Slurm for tests: scripts/slurm.sh on this machine.
//
//	c := slurmtest.Start(t, 3)
//	out, err := c.Command("srun", "-n", "5", "-N", "3", program).CombinedOutput()
package slurmtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/secure"
)

// A Cluster is a cluster of Slurm. Its nodes are called n1, n2 and so on, and are hosts with 8 processors each, which
// see all files of this machine.
type Cluster struct {
	Version string   // of Slurm
	MPI     []string // the plug-ins by which srun helps MPI: none, pmi2, pmix

	t           testing.TB
	script, dir string
}

// lacking is the status of the script if the machine lacks something.
const lacking = 77

// Start starts a cluster that ends with the test. Without Slurm, or without the permission to make name spaces, the
// test is skipped.
func Start(t testing.TB, nodes int) *Cluster {
	t.Helper()
	// The path of a socket below it must be short.
	dir, err := os.MkdirTemp("", "slurm")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{t: t, dir: dir, script: filepath.Join(testutil.ModuleRoot(t), "scripts", "slurm.sh")}
	t.Cleanup(func() {
		if t.Failed() {
			c.showLogs()
		}
		if out, err := exec.Command(c.script, "stop", dir).CombinedOutput(); err != nil {
			t.Errorf("the cluster doesn't end: %v\n%s", err, out)
		}
		os.RemoveAll(dir)
	})
	start := exec.Command(c.script, "start", dir, strconv.Itoa(nodes), strconv.Itoa(os.Getpid()))
	start.WaitDelay = time.Second // the daemons that it leaves may have its output
	out, err := start.CombinedOutput()
	if start.ProcessState != nil && start.ProcessState.ExitCode() == lacking {
		t.Skipf("left out: %s", strings.TrimSpace(string(out)))
	}
	if start.ProcessState == nil || !start.ProcessState.Success() {
		t.Fatalf("%v\n%s", err, out)
	}
	// A secret of the cluster's, which all hosts need.
	if err := os.WriteFile(c.Secret(), []byte(secure.Generate()), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Version = c.ask("srun", "--version")
	for _, plugin := range []string{"none", "pmi2", "pmix"} {
		if plugin == "none" || c.Command("srun", "--quiet", "-n", "1", "--mpi="+plugin, "true").Run() == nil {
			c.MPI = append(c.MPI, plugin)
		}
	}
	return c
}

// Secret is a file with a job's secret.
func (c *Cluster) Secret() string { return filepath.Join(c.dir, "secret") }

// Command is a command on the host at which users log in. Its environment has CHORUS_SECRET_FILE.
func (c *Cluster) Command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(c.t.Context(), c.script, append([]string{"run", c.dir}, args...)...)
	cmd.Env = append(os.Environ(), "CHORUS_SECRET_FILE="+c.Secret())
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// ask returns what a command says.
func (c *Cluster) ask(args ...string) string {
	c.t.Helper()
	out, err := c.Command(args...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// Kill ends a node with all its processes. Slurm notices some seconds later.
func (c *Cluster) Kill(node string) { c.do("kill", node) }

// Boot starts a node that was killed.
func (c *Cluster) Boot(node string) { c.do("boot", node) }

func (c *Cluster) do(action, node string) {
	c.t.Helper()
	if out, err := exec.CommandContext(c.t.Context(), c.script, action, c.dir, node).CombinedOutput(); err != nil {
		c.t.Fatalf("%s %s: %v\n%s", action, node, err, out)
	}
}

// showLogs shows the last lines of the daemons.
func (c *Cluster) showLogs() {
	logs, _ := filepath.Glob(filepath.Join(c.dir, "spool.*", "log"))
	for _, log := range append(logs, filepath.Join(c.dir, "login.log")) {
		text, _ := os.ReadFile(log)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		c.t.Logf("%s:\n%s", strings.TrimPrefix(log, c.dir+"/"), strings.Join(lines[max(0, len(lines)-15):], "\n"))
	}
}
