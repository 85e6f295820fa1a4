// Package glootest lets Go tests run ranks of a real PyTorch: one process imports it, which takes a second, and forks
// a rank whenever one is started. Ranks of both kinds run lists of steps, on inputs that both know.
package glootest

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
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

	"github.com/chorus-comms/chorus/internal/testutil"
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

// nursery is the process that forks ranks.
var nursery nurse

type nurse struct {
	mu    sync.Mutex
	in    io.WriteCloser // nil: there is none
	gone  func()         // waits for its end
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
	hatch(t)
	r, err := fork(order{Env: vars, Dir: dir, Script: script, NS: namespaces()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Kill(); <-r.ended })
	return r
}

// Environ returns the environment of one of a job's ranks; the test serves the job's store at an address of this host.
func Environ(store net.Addr, rank, size int) []string {
	host, port, _ := net.SplitHostPort(store.String())
	return []string{"TORCHELASTIC_USE_AGENT_STORE=True", "TORCHELASTIC_RESTART_COUNT=0", "MASTER_ADDR=" + host,
		"MASTER_PORT=" + port, fmt.Sprint("RANK=", rank), fmt.Sprint("WORLD_SIZE=", size)}
}

// Version is the version of PyTorch, which CHORUS_TEST_PYTHON may choose: 2.13 is 213, 1.13 is 113.
func Version(t testing.TB) int {
	t.Helper()
	hatch(t)
	n := &nursery
	<-n.told
	var major, minor int
	if _, err := fmt.Sscanf(n.version, "%d.%d", &major, &minor); err != nil {
		t.Fatalf("the process that forks ranks of PyTorch has version %q", n.version)
	}
	return 100*major + minor
}

// order is what the nursery gets to start a rank.
type order struct {
	ID     int               `json:"id"`
	Env    map[string]string `json:"env"`
	Dir    string            `json:"dir"`
	Script string            `json:"script"`
	Out    string            `json:"out"` // the file for what it prints
	NS     string            `json:"ns"`  // a directory of the namespaces in which it lives; "": the nursery's
}

// fork has the nursery fork a rank, and waits until it's there.
func fork(o order) (*Rank, error) {
	r := &Rank{born: make(chan struct{}), ended: make(chan struct{})}
	n := &nursery
	n.mu.Lock()
	if o.ID = len(n.ranks); o.Out == "" {
		o.Out = filepath.Join(o.Dir, fmt.Sprintf("out.%d.%d", os.Getpid(), o.ID))
	}
	r.out = o.Out
	n.ranks = append(n.ranks, r)
	err := json.NewEncoder(n.in).Encode(o)
	n.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("the process that forks ranks of PyTorch: %w", err)
	}
	select {
	case <-r.born:
		return r, nil
	case <-r.ended:
		return nil, errors.New("the process that forks ranks of PyTorch has ended")
	}
}

// hatch starts the nursery unless it's there, or goes to that of the test which has started this process.
func hatch(t testing.TB) {
	t.Helper()
	n := &nursery
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.in != nil {
		return
	}
	if door := os.Getenv(doorVar); door != "" {
		conn, err := net.Dial("unix", door)
		if err != nil {
			t.Fatal(err)
		}
		n.open(conn, conn, func() {})
		return
	}
	cmd := exec.Command(testutil.Python(t), "-c", script)
	// Freed blocks go back at once: ranks of large ones must have room beside each other.
	cmd.Env = testutil.PythonEnv("GLOO_SOCKET_IFNAME=lo", "MALLOC_MMAP_THRESHOLD_=1048576")
	in, out := testutil.StartPiped(t, cmd)
	n.open(in, out, func() { cmd.Wait() })
}

// open begins to talk to the process that forks. The lock is held.
func (n *nurse) open(in io.WriteCloser, out io.Reader, gone func()) {
	n.in, n.gone, n.ended, n.told = in, gone, make(chan struct{}), make(chan struct{})
	go n.listen(out)
}

// listen hears of what becomes of the ranks.
func (n *nurse) listen(out io.Reader) {
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
	for _, r := range n.ranks { // errors can't be reported any more
		select {
		case <-r.ended:
		default:
			r.status = -1
			close(r.ended)
		}
	}
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
	in := n.in
	n.mu.Unlock()
	if in == nil {
		return
	}
	in.Close()
	<-n.ended
	n.gone()
	n.in, n.ranks = nil, nil
}
