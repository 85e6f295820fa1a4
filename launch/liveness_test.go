package launch

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/internal/testutil/nettest"
	"github.com/chorus-comms/chorus/launch/internal/launchtest"
)

// linked starts two launchers that reach each other through a link.
func linked(t *testing.T, change func(n int, j *Job), name string, args ...string) ([]*node, *nettest.Blackhole) {
	t.Helper()
	endpoint := freeEndpoint(t)
	k, err := nettest.NewBlackhole(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return startNodes(t, []int{1, 1}, true, func(n int, j *Job) {
		j.Endpoint, j.LostAfter = endpoint, time.Second
		if n == 1 {
			j.Endpoint = k.Addr()
		}
		if change != nil {
			change(n, j)
		}
	}, name, args...), k
}

// atOnce fails the test if a node's launcher doesn't return within what a few looks may take on a loaded host.
func (n *node) atOnce(t *testing.T, limit time.Duration) error {
	t.Helper()
	select {
	case err := <-n.result:
		return err
	case <-time.After(limit):
		t.Errorf("the launcher has not returned after %v:\n%s", limit, n.errs)
		return <-n.result
	}
}

// TestACutLink has the link between two launchers fall silent: each says that the other is lost, since when, and ends
// its ranks.
func TestACutLink(t *testing.T) {
	nodes, k := linked(t, nil, "echo")
	for _, n := range nodes {
		n.out.Await(t, "ready", 1)
	}
	k.Cut()
	for i, n := range nodes {
		f := launchtest.WantFailure(t, n.atOnce(t, 8*time.Second))
		if f.Kind != NodeLost || f.Node != 1-i {
			t.Errorf("node %d: %+v", i, f)
		}
		launchtest.WantText(t, n.errs.String(), fmt.Sprintf("node %d (", 1-i), "is lost: its launcher", " since ", "stopped rank")
	}
}

// TestAFailureBehindACutLink has a rank fail when the launchers can't reach each other: both return soon, and say so
// besides.
func TestAFailureBehindACutLink(t *testing.T) {
	for culprit := range testutil.Pick(1, 2) {
		dir := t.TempDir()
		nodes, k := linked(t, func(_ int, j *Job) { j.LostAfter = 2 * time.Second }, "failsoon", fmt.Sprint(culprit), dir)
		awaitFiles(dir, "2")
		k.Cut()
		if err := os.WriteFile(dir+"/now", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for i, n := range nodes {
			f := launchtest.WantFailure(t, n.atOnce(t, 8*time.Second))
			if i == culprit && (f.Kind != Exited || f.Rank != culprit) || i != culprit && (f.Kind != NodeLost ||
				f.Node != culprit) {
				t.Errorf("node %d: %+v", i, f)
			}
			launchtest.WantText(t, n.errs.String(), fmt.Sprintf("node %d (", 1-i), "is lost: its launcher", " since ")
		}
	}
}

// TestAKilledLauncherIsMissedAtOnce though the heartbeat has a minute: its connection ends with it.
func TestAKilledLauncherIsMissedAtOnce(t *testing.T) {
	for victim := range 2 {
		t.Run(fmt.Sprint("node ", victim), func(t *testing.T) {
			endpoint := freeEndpoint(t)
			theirs := launchtest.NewBuffer()
			other := exec.Command(os.Args[0], fmt.Sprint(victim), endpoint)
			other.Env = append(os.Environ(), role+"=patientnode", "TMPDIR="+t.TempDir())
			other.Stdout, other.Stderr = theirs, io.Discard
			other.WaitDelay = 10 * time.Second
			if err := other.Start(); err != nil {
				t.Fatal(err)
			}
			job, out, errs := newJob(t, 1, "echo")
			job.Nodes, job.NodeRank, job.Endpoint, job.LostAfter = 2, 1-victim, endpoint, time.Minute
			n := &node{job, out, errs, nil, make(chan error, 1)}
			go func() { n.result <- job.Run(t.Context()) }()
			out.Await(t, "ready", 1)
			theirs.Await(t, "ready", 1)
			other.Process.Kill()
			other.Wait()
			f := launchtest.WantFailure(t, n.atOnce(t, 8*time.Second))
			if f.Kind != NodeLost || f.Node != victim {
				t.Errorf("got %+v", f)
			}
			launchtest.WantText(t, errs.String(), fmt.Sprintf("node %d (", victim), "is lost: its launcher has ended", "stopped rank")
		})
	}
}

// A launcher that is stopped for longer than the heartbeat takes no other for lost when it goes on, and is itself lost
// to the other.
func TestALauncherThatIsStopped(t *testing.T) {
	endpoint := freeEndpoint(t)
	theirs := launchtest.NewBuffer()
	other := exec.Command(os.Args[0], "1", endpoint)
	other.Env = append(os.Environ(), role+"=node", "TMPDIR="+t.TempDir())
	other.Stdout, other.Stderr = theirs, io.Discard
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait()
	defer other.Process.Signal(syscall.SIGCONT)
	job, out, errs := newJob(t, 1, "echo")
	job.Nodes, job.NodeRank, job.Endpoint, job.LostAfter = 2, 0, endpoint, time.Second
	n := &node{job, out, errs, nil, make(chan error, 1)}
	go func() { n.result <- job.Run(t.Context()) }()
	out.Await(t, "ready", 1)
	theirs.Await(t, "ready", 1)
	other.Process.Signal(syscall.SIGSTOP)
	if f := launchtest.WantFailure(t, n.atOnce(t, 8*time.Second)); f.Kind != NodeLost || f.Node != 1 {
		t.Errorf("got %+v", f)
	}
	launchtest.WantText(t, errs.String(), "is lost: its launcher has been silent since ")
}
