package launch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/launch/internal/launchtest"
	"github.com/chorus-comms/chorus/store"
)

// elasticJob is a job of launchers that are processes.
type elasticJob struct {
	t             *testing.T
	least, most   int
	meet, counted string
}

type elasticLauncher struct {
	*exec.Cmd
	t         *testing.T
	out, errs *launchtest.Buffer
}

func (j *elasticJob) come() *elasticLauncher {
	j.t.Helper()
	l := &elasticLauncher{t: j.t, out: launchtest.NewBuffer(), errs: launchtest.NewBuffer(),
		Cmd: exec.Command(os.Args[0], fmt.Sprint(j.least), fmt.Sprint(j.most), j.meet, j.counted)}
	l.Env = append(os.Environ(), role+"=elastic")
	l.Stdout, l.Stderr = l.out, l.errs
	l.WaitDelay = 10 * time.Second
	if err := l.Start(); err != nil {
		j.t.Fatal(err)
	}
	j.t.Cleanup(func() {
		if l.ProcessState == nil {
			l.Process.Kill()
			l.Wait()
		}
		if j.t.Failed() {
			j.t.Logf("launcher %d:\n%s%s", l.Process.Pid, l.out, l.errs)
		}
	})
	return l
}

// runs waits until the launcher's rank has begun n times as a rank of a world.
func (l *elasticLauncher) runs(rank, size, n int) {
	l.t.Helper()
	l.out.Await(l.t, fmt.Sprintf("rank %d of %d, restart 0 of 0, run elastic, from ", rank, size), n)
}

// ends waits for the end of the launcher.
func (l *elasticLauncher) ends(code int, texts ...string) {
	l.t.Helper()
	l.Wait()
	if got := l.ProcessState.ExitCode(); got != code {
		l.t.Errorf("launcher %d ends with status %d, want %d", l.Process.Pid, got, code)
	}
	launchtest.WantText(l.t, l.errs.String(), texts...)
}

func (l *elasticLauncher) kill() {
	l.Process.Kill()
	l.Wait()
}

// TestElasticProcesses runs launchers that come, die, leave and wait, where one of them serves the rendezvous. The
// ranks go on from what they have saved.
func TestElasticProcesses(t *testing.T) {
	j := &elasticJob{t, 1, 2, freeEndpoint(t), t.TempDir()}
	a := j.come()
	a.runs(0, 1, 1)
	b := j.come()
	b.runs(1, 2, 1)
	a.runs(0, 2, 1)
	b.kill()
	a.runs(0, 1, 2)
	c := j.come()
	c.runs(1, 2, 1)
	a.runs(0, 2, 2)
	spare := j.come()
	spare.errs.Await(t, "this one waits until another is lost", 1)
	c.Process.Signal(syscall.SIGTERM)
	c.ends(128+15, "received SIGTERM")
	spare.runs(1, 2, 1)
	a.runs(0, 2, 3)
	late := j.come()
	late.errs.Await(t, "this one waits until another is lost", 1)
	if err := os.WriteFile(filepath.Join(j.counted, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	late.ends(0, "the job has ended well, without this node")
	spare.ends(0)
	a.ends(0, "node 1 (", "is lost: its launcher has ended", "another node has come (", "the launcher of node 1 (",
		"received SIGTERM", "starting 1 rank on 1 node of 1:2, attempt 2, restart 0 of 0")
	before := -1
	for _, line := range a.out.Lines("[0]: rank 0 ") {
		_, text, _ := strings.Cut(line, "from ")
		var from int
		fmt.Sscan(text, &from)
		if from <= before {
			t.Errorf("an attempt begins at %d, the one before it at %d", from, before)
		}
		before = from
	}
}

// TestElasticServerLost kills the launcher at which the others meet: they say so, also if their ranks fail because of
// that before their launchers notice it.
func TestElasticServerLost(t *testing.T) {
	for name, files := range map[string][]string{"ranks go on": nil, "ranks fail": {"fragile"}} {
		t.Run(name, func(t *testing.T) {
			j := &elasticJob{t, 1, 2, freeEndpoint(t), t.TempDir()}
			for _, file := range files {
				if err := os.WriteFile(filepath.Join(j.counted, file), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			a := j.come()
			a.runs(0, 1, 1)
			b := j.come()
			b.runs(1, 2, 1)
			a.kill()
			b.ends(1, "node 0 (", ") is lost: its launcher has ended: no process listens at "+j.meet,
				"the nodes met there, so the job ends with it")
		})
	}
}

// TestElasticStore kills the launcher of node 0 of a job whose launchers meet in a store, which leads the others.
func TestElasticStore(t *testing.T) {
	s, err := store.ListenTCP("127.0.0.1:0", store.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	j := &elasticJob{t, 1, 2, "tcp://" + s.Addr().String(), t.TempDir()}
	a := j.come()
	a.runs(0, 1, 1)
	b := j.come()
	b.runs(1, 2, 1)
	a.kill()
	b.runs(0, 1, 1)
	c := j.come()
	c.runs(1, 2, 1)
	if err := os.WriteFile(filepath.Join(j.counted, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.ends(0)
	b.ends(0, "node 0 (", ") is lost: its launcher has been silent since ")
	d := j.come()
	d.ends(1, `job "elastic" has ended already`)
}
