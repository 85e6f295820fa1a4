package launch

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/internal/testutil/nettest"
	"github.com/chorus-comms/chorus/launch/internal/launchtest"
)

// resolving has names resolve by a function while a test runs.
func resolving(t *testing.T, address func(name string) (netip.Addr, bool)) {
	before := net.DefaultResolver
	net.DefaultResolver = nettest.Resolver(address)
	t.Cleanup(func() { net.DefaultResolver = before })
}

var loopback = netip.MustParseAddr("127.0.0.1")

// namedEndpoint is a free endpoint at a name.
func namedEndpoint(t *testing.T, name string) string {
	_, port, _ := net.SplitHostPort(freeEndpoint(t))
	return net.JoinHostPort(name, port)
}

// The launchers of nodes without numbers meet at a name that resolves late, as that of a pod does, or that means
// another host before.
func TestEndpointResolvesLate(t *testing.T) {
	for name, before := range map[string]func() (netip.Addr, bool){
		"unknown":   func() (netip.Addr, bool) { return netip.Addr{}, false },
		"elsewhere": func() (netip.Addr, bool) { return netip.MustParseAddr("192.0.2.1"), true },
	} {
		t.Run(name, func(t *testing.T) {
			if name == "elsewhere" {
				testutil.SkipIfShort(t) // it dials there for a second
			}
			var asked atomic.Int32
			resolving(t, func(string) (netip.Addr, bool) {
				if asked.Add(1) <= 4 { // both launchers ask
					return before()
				}
				return loopback, true
			})
			endpoint := namedEndpoint(t, "node0.test")
			t.Setenv("CHORUS_INSECURE", "1")
			nodes := startNodes(t, []int{1, 1}, false, func(_ int, j *Job) { j.Endpoint = endpoint }, "env", "GROUP_RANK")
			for i, n := range nodes {
				if err := <-n.result; err != nil {
					t.Errorf("launcher %d: %v\n%s", i, err, n.errs)
				}
			}
		})
	}
}

// A resolver that doesn't answer takes no longer than nodes have to come, and the error says how long that was.
func TestResolverHangs(t *testing.T) {
	resolving(t, func(string) (netip.Addr, bool) {
		<-t.Context().Done()
		return netip.Addr{}, false
	})
	job, _, _ := newJob(t, 1, "env")
	job.Nodes, job.NodeRank, job.Endpoint, job.JoinTimeout = 2, AnyNodeRank, "node0.test:29400", 300*time.Millisecond
	job.Env = append(job.Env, "CHORUS_INSECURE=1")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := job.Run(ctx)
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "node0.test:29400, within 300ms: lookup node0.test") {
		t.Errorf("%v", err)
	}
}

// Launchers of other jobs, and with other settings, and those that wait for them, hear what differs.
func TestLaunchersHearWhatDiffers(t *testing.T) {
	for name, c := range map[string]struct {
		change func(j *Job)
		says   string // the one that can't join
		heard  string // the one that serves, and another that waits
	}{
		"id": {func(j *Job) { j.RunID = "b" }, `serves the rendezvous of job "a", and this one is of job "b" (--rdzv-id)`,
			`is of job "b"`},
		"nodes": {func(j *Job) { j.Nodes = 4 }, "was started for 3 nodes and 0 restarts, this one for 4 and 0",
			"was started for 4 nodes and 0 restarts"},
	} {
		t.Run(name, func(t *testing.T) {
			wait := testutil.Pick(time.Minute, 5*time.Second) // in brief, nothing ends by itself
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			endpoint := freeEndpoint(t)
			start := func(n int, change func(j *Job)) (errs *launchtest.Buffer, result chan error) {
				job, _, errs := newJob(t, 1, "env")
				job.Nodes, job.NodeRank, job.Endpoint, job.RunID, job.Monitor = 3, n, endpoint, "a", 5*time.Millisecond
				job.JoinTimeout = wait
				change(job)
				result = make(chan error, 1)
				go func() { result <- job.Run(ctx) }()
				return errs, result
			}
			serving := make(chan string, 1)
			first, firstResult := start(0, func(j *Job) { j.Serving = func(at string) { serving <- at } })
			<-serving
			_, otherResult := start(2, func(*Job) {})
			_, strange := start(1, c.change)
			if err := <-strange; err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("it says: %v", err)
			}
			first.Await(t, c.heard+": it can't join\n", 1)
			if testutil.Short() {
				cancel()
			}
			for n, result := range map[int]chan error{0: firstResult, 2: otherResult} {
				err := <-result
				if testutil.Short() && err != nil {
					continue
				}
				if err == nil || !strings.Contains(err.Error(), "node 1 of 3 did not come within 5s; the launcher of node 1 on ") ||
					!strings.Contains(err.Error(), c.heard) {
					t.Errorf("node %d: %v", n, err)
				}
			}
		})
	}
}
