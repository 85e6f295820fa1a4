package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/launch/internal/launchtest"
	"github.com/chorus-comms/chorus/launch/internal/rendezvous"
	"github.com/chorus-comms/chorus/observe"
	"github.com/chorus-comms/chorus/store"
)

// node is one launcher of a job with several nodes, all within the test.
type node struct {
	job       *Job
	out, errs *launchtest.Buffer
	signals   chan os.Signal
	result    chan error
}

// startNodes starts a launcher for each element of ranks, which is how many ranks it has. In order of arrival means
// that each comes only when the one before has.
func startNodes(t *testing.T, ranks []int, numbered bool, change func(n int, j *Job), name string,
	args ...string) []*node {
	t.Helper()
	endpoint := freeEndpoint(t)
	nodes := make([]*node, len(ranks))
	for n := range nodes {
		job, out, errs := newJob(t, ranks[n], name, args...)
		job.Nodes, job.Endpoint, job.NodeRank = len(ranks), endpoint, AnyNodeRank
		job.Monitor = 5 * time.Millisecond
		if numbered {
			job.NodeRank = n
		}
		signals := make(chan os.Signal)
		job.Signals = signals
		if change != nil {
			change(n, job)
		}
		nodes[n] = &node{job, out, errs, signals, make(chan error, 1)}
		go func() { nodes[n].result <- job.Run(t.Context()) }()
	}
	return nodes
}

func TestNodes(t *testing.T) {
	for _, numbered := range []bool{true, false} {
		t.Run(fmt.Sprintf("numbered=%v", numbered), func(t *testing.T) {
			nodes := startNodes(t, []int{2, 1, 3}, numbered, nil, "env", "RANK", "WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
				"MASTER_PORT")
			var ranks, groups []string
			ports := map[string]bool{}
			for _, n := range nodes {
				if err := <-n.result; err != nil {
					t.Fatalf("%v\n%s", err, n.errs)
				}
				for line := range strings.Lines(n.out.String()) {
					_, line, _ = strings.Cut(strings.TrimSpace(line), ": ")
					name, value, _ := strings.Cut(line, "=")
					switch name {
					case "RANK":
						ranks = append(ranks, value)
					case "GROUP_RANK":
						groups = append(groups, value)
					case "MASTER_PORT":
						ports[value] = true
					case "WORLD_SIZE":
						if value != "6" {
							t.Error(line)
						}
					case "GROUP_WORLD_SIZE":
						if value != "3" {
							t.Error(line)
						}
					}
				}
			}
			slices.Sort(ranks)
			if got := strings.Join(ranks, " "); got != "0 1 2 3 4 5" {
				t.Errorf("ranks %s", got)
			}
			if numbered && strings.Join(groups, "") != "001222" {
				t.Errorf("group ranks %v", groups)
			}
			if len(ports) != 1 {
				t.Errorf("ports %v", ports)
			}
		})
	}
}

func TestAFailureStopsAllNodes(t *testing.T) {
	nodes := startNodes(t, []int{2, 2, 2}, true, nil, "fail", "3", "exit", t.TempDir())
	for i, n := range nodes {
		err := <-n.result
		f := launchtest.WantFailure(t, err)
		if f.Rank != 3 || f.LocalRank != 1 || f.Node != 1 || ExitCode(err) != 42 {
			t.Errorf("node %d: %+v", i, f)
		}
		launchtest.WantText(t, n.errs.String(), "rank 3 (local rank 1, pid ", "exited with status 42", "  | last words", "stopped rank")
	}
}

func TestNodesRestartTogether(t *testing.T) {
	nodes := startNodes(t, []int{1, 2}, true, func(_ int, j *Job) { j.MaxRestarts = 3 }, "flaky", "2")
	stores := map[string]bool{}
	for i, n := range nodes {
		if err := <-n.result; err != nil {
			t.Errorf("node %d: %v", i, err)
		}
		launchtest.WantText(t, n.errs.String(), "rank 0 (local rank 0", "restart 1 of 3", "restart 2 of 3")
		launchtest.WantText(t, n.out.String(), "attempt 2 at port")
		for line := range strings.Lines(n.out.String()) {
			_, line, _ = strings.Cut(line, ": ")
			stores[line] = true
		}
	}
	if len(stores) != 3 {
		t.Errorf("want one store for each of three attempts, the same on both nodes: %v", stores)
	}
}

func TestAnInterruptedNodeStopsAll(t *testing.T) {
	nodes := startNodes(t, []int{1, 1}, true, func(_ int, j *Job) { j.MaxRestarts = 3 }, "echo")
	for _, n := range nodes {
		n.out.Await(t, "ready", 1)
	}
	nodes[1].signals <- syscall.SIGINT
	for i, n := range nodes {
		if err := <-n.result; ExitCode(err) != 130 {
			t.Errorf("node %d: %v", i, err)
		}
		launchtest.WantText(t, n.errs.String(), "the launcher of node 1 (", "received SIGINT")
	}
}

func TestMissingNodesAreNamed(t *testing.T) {
	endpoint := freeEndpoint(t)
	results := make(chan error)
	for _, n := range []int{0, 2} {
		job, _, _ := newJob(t, 1, "env")
		job.Nodes, job.NodeRank, job.Endpoint = 5, n, endpoint
		job.JoinTimeout, job.Monitor = time.Duration(n+1)*500*time.Millisecond, 5*time.Millisecond
		go func() { results <- job.Run(t.Context()) }()
	}
	for range 2 {
		if err := <-results; err == nil || !strings.Contains(err.Error(), "nodes 1, 3, 4 of 5 did not come within 500ms") {
			t.Errorf("got %v", err)
		}
	}
}

func TestNobodyServes(t *testing.T) {
	job, _, _ := newJob(t, 1, "env")
	job.Nodes, job.NodeRank, job.Endpoint = 2, 1, freeEndpoint(t)
	job.JoinTimeout = 200 * time.Millisecond
	if err := job.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot reach the launcher of node 0") ||
		!strings.Contains(err.Error(), job.Endpoint) {
		t.Errorf("got %v", err)
	}
}

func TestASignalEndsTheWaitForNodes(t *testing.T) {
	job, _, errs := newJob(t, 1, "env")
	job.Nodes, job.NodeRank, job.Endpoint = 2, 0, freeEndpoint(t)
	signals := make(chan os.Signal)
	job.Signals = signals
	result := make(chan error, 1)
	go func() { result <- job.Run(t.Context()) }()
	signals <- syscall.SIGUSR1 // not for the launcher
	signals <- syscall.SIGINT
	if err := <-result; ExitCode(err) != 130 {
		t.Errorf("got %v", err)
	}
	launchtest.WantText(t, errs.String(), "received SIGINT")
}

// A node that gets a signal to stop ends, whether that is before the others come, as they come or afterwards; and the
// others end, too.
func TestASignalWhileNodesMeet(t *testing.T) {
	for i := range testutil.Pick(6, 12) {
		told := i % 2
		nodes := startNodes(t, []int{1, 1}, true, func(n int, j *Job) {
			j.JoinTimeout = 300 * time.Millisecond
			if n == told {
				signals := make(chan os.Signal, 1)
				time.AfterFunc(time.Duration(i)*time.Millisecond, func() { signals <- syscall.SIGTERM })
				j.Signals = signals
			}
		}, "echo")
		for n, node := range nodes {
			if err := <-node.result; err == nil || n == told && ExitCode(err) != 128+15 {
				t.Errorf("run %d: node %d: got %v", i, n, err)
			}
		}
	}
}

func TestNodesMustAgree(t *testing.T) {
	for want, change := range map[string]func(n int, j *Job){
		"was started for 2 nodes and 0 restarts, this one for 2 and 1": func(n int, j *Job) { j.MaxRestarts = n },
		"was started for 3 nodes and 0 restarts, this one for 2 and 0": func(n int, j *Job) { j.Nodes = 3 - n },
		"node rank 0 is taken": func(n int, j *Job) { j.NodeRank = 0 },
	} {
		// The first must have come before the second, or it would be the one to complain.
		endpoint := freeEndpoint(t)
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error, 1)
		var errs [2]error
		for n := range 2 {
			job, _, _ := newJob(t, 1, "env")
			job.Nodes, job.NodeRank, job.Endpoint = 2, n, endpoint
			job.Monitor = 5 * time.Millisecond
			change(n, job)
			if n == 0 {
				go func() { first <- job.Run(ctx) }()
				awaitListener(t, endpoint)
			} else {
				errs[n] = job.Run(t.Context())
			}
		}
		cancel()
		<-first
		if want == "node rank 0 is taken" {
			want = "address already in use" // two launchers that both would serve, on one host
		}
		if errs[1] == nil || !strings.Contains(errs[1].Error(), want) {
			t.Errorf("got %v, want %q", errs[1], want)
		}
	}
}

func TestANodeRankIsTaken(t *testing.T) {
	nodes := startNodes(t, []int{1, 1, 1}, true,
		func(n int, j *Job) { j.NodeRank = min(n, 1); j.JoinTimeout = time.Second }, "env")
	var taken int
	for _, n := range nodes[1:] {
		if err := <-n.result; strings.Contains(fmt.Sprint(err), "node rank 1 is taken") {
			taken++
		}
	}
	if taken != 1 {
		t.Errorf("%d of two launchers were told that the rank is taken", taken)
	}
	if err := <-nodes[0].result; !strings.Contains(fmt.Sprint(err), "node 2 of 3 did not come") {
		t.Errorf("node 0: %v", err)
	}
}

func awaitListener(t *testing.T, endpoint string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	st, err := store.DialTCP(ctx, endpoint, store.TCPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	st.Close()
}

// TestALostNode kills one of two launchers, once the one that serves the rendezvous and once the other.
func TestALostNode(t *testing.T) {
	for victim := range 2 {
		t.Run(fmt.Sprint("node ", victim), func(t *testing.T) {
			endpoint := freeEndpoint(t)
			theirs := launchtest.NewBuffer()
			other := exec.Command(os.Args[0], fmt.Sprint(victim), endpoint)
			other.Env = append(os.Environ(), role+"=node", "TMPDIR="+t.TempDir())
			other.Stdout, other.Stderr = theirs, os.Stderr
			other.WaitDelay = 10 * time.Second
			if err := other.Start(); err != nil {
				t.Fatal(err)
			}
			job, out, errs := newJob(t, 1, "echo")
			job.Nodes, job.NodeRank, job.Endpoint = 2, 1-victim, endpoint
			job.LostAfter, job.Monitor = time.Second, 5*time.Millisecond
			result := make(chan error, 1)
			go func() { result <- job.Run(t.Context()) }()
			out.Await(t, "ready", 1)
			theirs.Await(t, "ready", 1)
			other.Process.Kill()
			other.Wait()
			f := launchtest.WantFailure(t, <-result)
			if f.Kind != NodeLost || f.Node != victim {
				t.Errorf("got %+v", f)
			}
			launchtest.WantText(t, errs.String(), fmt.Sprintf("node %d (", victim), "is lost", "stopped rank")
		})
	}
}

// earlyFailure is the peers of a node that is slow to begin: the first attempt has failed elsewhere by then.
type earlyFailure struct {
	*rendezvous.SingleNode
	seen []string
}

func (p *earlyFailure) Begin(ctx context.Context, attempt int) (*rendezvous.Start, error) {
	p.seen = append(p.seen, fmt.Sprint("begin ", attempt))
	if attempt == 0 {
		return nil, &Failure{Kind: Exited, Rank: 7, ExitStatus: 3, Stderr: []string{"its words"}}
	}
	return p.SingleNode.Begin(ctx, attempt)
}

func (p *earlyFailure) Stopped(attempt int, _ *Failure, _ []*observe.Dump) (string, bool) {
	p.seen = append(p.seen, fmt.Sprint("stopped ", attempt))
	return "", true
}

func TestAFailureBeforeThisNodeBegins(t *testing.T) {
	for restarts := range 2 {
		job, out, errs := newJob(t, 1, "env", "TORCHELASTIC_RESTART_COUNT")
		job.MaxRestarts = restarts
		if err := job.prepare(); err != nil {
			t.Fatal(err)
		}
		r, err := job.newRunner(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p := &earlyFailure{SingleNode: r.peers.(*rendezvous.SingleNode)}
		r.peers = p
		err = r.run(t.Context())
		r.close()
		launchtest.WantText(t, errs.String(), "rank 7 ", "exited with status 3", "  | its words")
		want, code := []string{"begin 0", "stopped 0"}, 3
		if restarts > 0 {
			want, code = append(want, "begin 1"), 0
			launchtest.WantText(t, out.String(), "RESTART_COUNT=1")
		}
		if !slices.Equal(p.seen, want) || ExitCode(err) != code {
			t.Errorf("%d restarts: %v, %v", restarts, p.seen, err)
		}
	}
}

// TestPlaces checks for random worlds that every numbering is one without gaps.
func TestPlaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		world := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) rendezvous.Member {
			return rendezvous.Member{Ranks: rapid.IntRange(1, 5).Draw(t, "ranks"), Role: rapid.SampledFrom([]string{"a", "b"}).Draw(t,
				"role")}
		}), 1, 6).Draw(t, "world")
		rank := 0
		roleRank := map[string]int{}
		for n, m := range world {
			ps := places(world, n)
			if len(ps) != m.Ranks {
				t.Fatalf("node %d: %d places", n, len(ps))
			}
			for l, p := range ps {
				if p.Rank != rank || p.LocalRank != l || p.Node != n || p.RoleRank != roleRank[m.Role] || p.LocalSize != m.Ranks ||
					p.Nodes != len(world) {
					t.Fatalf("node %d: %+v", n, p)
				}
				rank++
				roleRank[m.Role]++
			}
		}
		for n, m := range world {
			for _, p := range places(world, n) {
				if p.WorldSize != rank || p.RoleWorldSize != roleRank[m.Role] {
					t.Fatalf("node %d: %+v", n, p)
				}
			}
		}
	})
}
