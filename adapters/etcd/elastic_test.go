package etcd

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/launch"
)

// launcherVar makes this program a launcher whose nodes meet at the address that it names.
const launcherVar = "CHORUS_ETCD_TEST_LAUNCHER"

// launchNode is a launcher of an elastic job. Its rank runs until there's a file.
func launchNode(address, end string) error {
	job := launch.Job{
		Command:      []string{"sh", "-c", `echo "rank $RANK of $WORLD_SIZE"; while [ ! -e "$0" ]; do sleep 0.05; done`, end},
		RanksPerNode: 1, MinNodes: 1, Nodes: 2, NodeRank: launch.AnyNodeRank, Store: address, RunID: "elastic",
		LastCall: 100 * time.Millisecond, LostAfter: 3 * time.Second, JoinTimeout: time.Minute,
		Stdout: os.Stdout, Stderr: os.Stderr,
	}
	return job.Run(context.Background())
}

// node is a launcher, with what it has printed.
type node struct {
	*exec.Cmd
	mu  sync.Mutex
	out bytes.Buffer
}

func (n *node) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.out.Write(p)
}

func (n *node) text() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.out.String()
}

// TestElasticJob kills the leading member of the cluster, and then the launcher that leads the others: the job goes on.
func TestElasticJob(t *testing.T) {
	testutil.SkipIfShort(t) // heartbeats must be missed
	address := "etcd://" + strings.Join(shared(t), ",") + "?prefix=/elastic"
	end := filepath.Join(t.TempDir(), "end")
	come := func() *node {
		n := &node{Cmd: exec.Command(os.Args[0], end)}
		n.Env = append(os.Environ(), launcherVar+"="+address, "CHORUS_SECRET=elastic-secret-of-a-test-0123456789")
		n.Stdout, n.Stderr, n.WaitDelay = n, n, 10*time.Second
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if n.ProcessState == nil {
				n.Process.Kill()
				n.Wait()
			}
			if t.Failed() {
				t.Log(n.text())
			}
		})
		return n
	}
	prints := func(n *node, text string, times int) {
		t.Helper()
		testutil.Eventually(t, func() bool { return strings.Count(n.text(), text) >= times }, text)
	}
	a := come()
	prints(a, "rank 0 of 1", 1)
	b := come()
	prints(b, "rank 1 of 2", 1)
	dead := three.leader(t)
	dead.kill()
	c := come()
	prints(c, "the job has its 2 nodes: this one waits until another is lost", 1)
	a.Process.Kill()
	a.Wait()
	prints(b, "rank 0 of 2", 1)
	prints(c, "rank 1 of 2", 1)
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*node{b, c} {
		if err := n.Wait(); err != nil {
			t.Error(err)
		}
	}
	if text := b.text(); !strings.Contains(text, "is lost: its launcher has been silent since ") ||
		!strings.Contains(text, "attempt 2, restart 0 of 0") {
		t.Error("the loss of the launcher isn't told, or the loss of the member was taken for another one")
	}
	if err := dead.start(); err != nil {
		t.Error(err)
	}
}
