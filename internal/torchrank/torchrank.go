// Package torchrank lets Go tests run ranks of a real PyTorch: one process imports it, which takes a second, and forks
// a rank whenever one is started. What ranks of both kinds can run is a list of steps, on inputs that both know.
package torchrank

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/chorus-comms/chorus/internal/piped"
	"github.com/chorus-comms/chorus/internal/pytest"
)

//go:embed peer.py
var script string

// A Rank is a process of PyTorch.
type Rank struct {
	PID    int
	out    string // the file that has what it printed
	status int
	born   chan struct{}
	ended  chan struct{}
}

// nursery is the process that forks ranks; nil if there is none.
var nursery struct {
	mu    sync.Mutex
	cmd   *exec.Cmd
	in    io.WriteCloser
	ended chan struct{}
	ranks []*Rank // by id
	// The version of PyTorch, when it has said it.
	version string
	told    chan struct{}
}

// Start starts a rank. Without a script it runs the steps in dir/steps.json and writes the checksum of each one's
// results to the file of its rank in dir; with PEER_RAW=1, the results. A script finds dir in the variable directory.
// The rank is killed when the test ends.
func Start(t testing.TB, dir, script string, env ...string) *Rank {
	t.Helper()
	vars := map[string]string{}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		vars[name] = value
	}
	r := &Rank{born: make(chan struct{}), ended: make(chan struct{})}
	if err := r.order(t, dir, map[string]any{"env": vars, "dir": dir, "script": script}); err != nil {
		t.Fatalf("the process that forks ranks of PyTorch: %v", err)
	}
	select {
	case <-r.born:
	case <-r.ended:
		t.Fatal("the process that forks ranks of PyTorch has ended")
	}
	t.Cleanup(func() { r.Kill(); <-r.ended })
	return r
}

// Seat is the environment of one of a job's ranks, whose store the test serves at an address of this host.
func Seat(store net.Addr, rank, size int) []string {
	host, port, _ := net.SplitHostPort(store.String())
	return []string{"TORCHELASTIC_USE_AGENT_STORE=True", "TORCHELASTIC_RESTART_COUNT=0", "MASTER_ADDR=" + host,
		"MASTER_PORT=" + port, fmt.Sprint("RANK=", rank), fmt.Sprint("WORLD_SIZE=", size)}
}

// Version is the version of PyTorch, which CHORUS_TEST_PYTHON may choose: 2.13 is 213, 1.13 is 113.
func Version(t testing.TB) int {
	t.Helper()
	n := &nursery
	n.mu.Lock()
	if n.cmd == nil {
		hatch(t)
	}
	n.mu.Unlock()
	<-n.told
	var major, minor int
	if _, err := fmt.Sscanf(n.version, "%d.%d", &major, &minor); err != nil {
		t.Fatalf("the process that forks ranks of PyTorch has version %q", n.version)
	}
	return 100*major + minor
}

// order has the nursery fork the rank.
func (r *Rank) order(t testing.TB, dir string, order map[string]any) error {
	t.Helper()
	n := &nursery
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		hatch(t)
	}
	r.out = filepath.Join(dir, fmt.Sprint("out.", len(n.ranks)))
	order["id"], order["out"] = len(n.ranks), r.out
	n.ranks = append(n.ranks, r)
	return json.NewEncoder(n.in).Encode(order)
}

// hatch starts the nursery. Its lock is held.
func hatch(t testing.TB) {
	t.Helper()
	n := &nursery
	cmd := exec.Command(pytest.Python(t), "-c", script)
	cmd.Env = pytest.Env("GLOO_SOCKET_IFNAME=lo")
	in, out := piped.Start(t, cmd)
	n.cmd, n.in, n.ended, n.told = cmd, in, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(n.ended)
		lines := bufio.NewScanner(out)
		if lines.Scan() {
			n.version = lines.Text()
		}
		close(n.told)
		for lines.Scan() {
			var id, pid, status int
			fmt.Sscan(lines.Text(), &id, &pid, &status)
			n.mu.Lock()
			r := n.ranks[id]
			n.mu.Unlock()
			if r.status = status; pid == 0 {
				close(r.ended)
			} else {
				r.PID = pid
				close(r.born)
			}
		}
		for _, r := range n.ranks { // with nobody to tell of it
			select {
			case <-r.ended:
			default:
				r.status = -1
				close(r.ended)
			}
		}
	}()
}

// Wait returns what the rank printed, when it has ended, and an error unless it was well.
func (r *Rank) Wait() (string, error) {
	<-r.ended
	b, err := os.ReadFile(r.out)
	if r.status != 0 {
		err = fmt.Errorf("exit status %d", r.status)
	}
	return string(b), err
}

// Kill kills the rank, unless it has ended.
func (r *Rank) Kill() {
	select {
	case <-r.ended:
	default:
		syscall.Kill(r.PID, syscall.SIGKILL)
	}
}

// Stop ends the process that forks ranks, and all ranks.
func Stop() {
	n := &nursery
	n.mu.Lock()
	cmd := n.cmd
	n.mu.Unlock()
	if cmd == nil {
		return
	}
	n.in.Close()
	<-n.ended
	cmd.Wait()
	n.cmd, n.ranks = nil, nil
}
