//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/internal/testutil/nettest"
)

// counting is a program for torchrun, which goes on from what rank 0 has saved, until there is a file end.
const counting = `
import os, sys, time, torch, torch.distributed as dist

state, end = os.path.join(sys.argv[1], "state"), os.path.join(sys.argv[1], "end")
dist.init_process_group("gloo")
step = int(open(state).read()) if os.path.exists(state) else 0
print(f"rank {dist.get_rank()} of {os.environ['WORLD_SIZE']} pid {os.getpid()} maximum",
      f"{os.environ['TORCHELASTIC_MAX_RESTARTS']} run {os.environ['TORCHELASTIC_RUN_ID']} from {step}", flush=True)
while True:
    over = torch.tensor([float(os.path.exists(end))])
    dist.all_reduce(over)
    if over.item() > 0:
        break
    step += 1
    if dist.get_rank() == 0:
        with open(state + ".new", "w") as f:
            f.write(str(step))
        os.rename(state + ".new", state)
    time.sleep(0.01)
dist.barrier()
dist.destroy_process_group()
`

// elasticNodes are launchers of one job, all with the same command.
type elasticNodes struct {
	t       *testing.T
	dir     string
	command []string
	env     []string
	nodes   int
}

type elasticNode struct {
	*exec.Cmd
	t    *testing.T
	path string // what it has printed
}

func (e *elasticNodes) come() *elasticNode {
	e.t.Helper()
	e.nodes++
	n := &elasticNode{exec.Command(e.command[0], e.command[1:]...), e.t, filepath.Join(e.dir, fmt.Sprint("node", e.nodes))}
	f, err := os.Create(n.path)
	if err != nil {
		e.t.Fatal(err)
	}
	defer f.Close()
	n.Dir, n.Env, n.Stdout, n.Stderr = e.dir, e.env, f, f
	n.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := n.Start(); err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		if n.ProcessState == nil {
			n.kill()
		}
		if e.t.Failed() {
			e.t.Logf("%s:\n%s", filepath.Base(n.path), n.text())
		}
	})
	return n
}

func (n *elasticNode) text() string {
	text, err := os.ReadFile(n.path)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(text)
}

// prints waits until the node has printed a text so many times.
func (n *elasticNode) prints(text string, times int) {
	n.t.Helper()
	for end := time.Now().Add(2 * time.Minute); strings.Count(n.text(), text) < times; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			n.t.Fatalf("%s has not printed %q %d times", filepath.Base(n.path), text, times)
		}
	}
}

var printedPid = regexp.MustCompile(`rank \d+ of \d+ pid (\d+) `)

// kill ends the node as a lost machine does: the launcher, and its last ranks, which torchrun's death doesn't end.
func (n *elasticNode) kill() {
	syscall.Kill(-n.Process.Pid, syscall.SIGKILL)
	if all := printedPid.FindAllStringSubmatch(n.text(), -1); len(all) > 0 {
		if pid, err := strconv.Atoi(all[len(all)-1][1]); err == nil {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	n.Wait()
}

func elasticFlags(t *testing.T) []string {
	t.Helper()
	port, err := nettest.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--nnodes", "1:2", "--nproc-per-node", "1", "--max-restarts", "3", "--rdzv-backend", "c10d",
		"--rdzv-id", "counting", "--rdzv-endpoint", fmt.Sprint("127.0.0.1:", port), "--rdzv-conf", "last_call_timeout=1"}
}

// TestElasticSameProgram runs one program of PyTorch under torchrun and under chorus run, with the same flags: a node
// comes, dies, and the job goes on from what has been saved.
func TestElasticSameProgram(t *testing.T) {
	testutil.SkipIfShort(t) // torchrun needs half a minute
	t.Parallel()
	python := testutil.Python(t)
	chorus, err := exec.LookPath("chorus")
	if err != nil {
		t.Fatal(err)
	}
	for name, command := range map[string][]string{
		"torchrun":   {python, "-m", "torch.distributed.run"},
		"chorus run": {chorus, "run"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "counting.py"), []byte(counting), 0o600); err != nil {
				t.Fatal(err)
			}
			command = append(append(command, elasticFlags(t)...), "counting.py", dir)
			// In PyTorch 2.13 a node that comes later waits in vain for the address of the agents' store.
			env := testutil.PythonEnv("GLOO_SOCKET_IFNAME=lo", "PYTHON_EXEC="+python, "TMPDIR="+dir,
				"TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1")
			e := &elasticNodes{t: t, dir: dir, command: command, env: env}
			a := e.come()
			a.prints("rank 0 of 1 ", 1)
			b := e.come()
			for _, n := range []*elasticNode{a, b} { // torchrun orders nodes by their process ids
				n.prints(" of 2 pid ", 1)
			}
			b.kill()
			a.prints("rank 0 of 1 ", 2)
			if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := a.Wait(); err != nil {
				t.Error(err)
			}
			before := -1
			for _, found := range regexp.MustCompile(`maximum 3 run counting from (\d+)`).FindAllStringSubmatch(a.text(), -1) {
				from, _ := strconv.Atoi(found[1])
				if from < before { // it may be the same: an attempt may end before it has saved a step
					t.Errorf("an attempt begins at %d, the one before it at %d", from, before)
				}
				before = from
			}
			if before < 1 {
				t.Error("nothing was saved")
			}
		})
	}
}

// TestElasticRecover has examples/recover go on from its file while nodes come and die.
func TestElasticRecover(t *testing.T) {
	testutil.SkipIfShort(t) // it builds a program, which runs for half a minute
	t.Parallel()
	chorus, err := exec.LookPath("chorus")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	recover := filepath.Join(dir, "recover")
	build := exec.Command("go", "build", "-o", recover, "./examples/recover")
	build.Dir = testutil.ModuleRoot(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	command := append([]string{chorus, "run"}, elasticFlags(t)...)
	e := &elasticNodes{t: t, dir: dir, env: append(os.Environ(), "TMPDIR="+dir),
		command: append(command, recover, "-steps", "3000", "-each", "5ms", "-state", filepath.Join(dir, "state"))}
	a := e.come()
	a.prints("starting 1 rank on 1 node of 1:2", 1)
	b := e.come()
	a.prints("starting 2 ranks on 2 nodes of 1:2, attempt 1, restart 0 of 3", 1)
	b.kill()
	a.prints("starting 1 rank on 1 node of 1:2, attempt 2, restart 0 of 3", 1)
	c := e.come()
	a.prints("starting 2 ranks on 2 nodes of 1:2, attempt 3, restart 0 of 3", 1)
	for _, n := range []*elasticNode{a, c} {
		if err := n.Wait(); err != nil {
			t.Error(err)
		}
	}
	if sum := "the sum is 6.048e+06 after 3000 steps, "; !strings.Contains(a.text(), sum) { // 3000 times that of 0 to 63
		t.Errorf("want %q", sum)
	}
	if strings.Contains(a.text(), "3000 of them in this run") {
		t.Error("the last attempt did not go on from the file")
	}
}
