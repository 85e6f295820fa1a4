//go:build linux

package nccl_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/comm/nccl/nccltest"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// called counts the functions of a library that make communicators.
type called struct {
	sync.Mutex
	counts map[string]int
	fail   func(call string, rank int) abi.Result
}

var resizing = []string{"ncclCommInitRankConfig", "ncclCommShrink", "ncclCommGrow", "ncclCommRevoke"}

func (c *called) note(call string, rank int) abi.Result {
	if !slices.Contains(resizing, call) {
		return abi.Success
	}
	c.Lock()
	defer c.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[call]++
	if c.fail != nil {
		return c.fail(call, rank)
	}
	return abi.Success
}

// since returns what was called since the last time.
func (c *called) since() string {
	c.Lock()
	defer c.Unlock()
	var all []string
	for _, f := range resizing {
		if n := c.counts[f]; n > 0 {
			all = append(all, fmt.Sprint(strings.TrimPrefix(f, "nccl"), " ", n))
		}
	}
	c.counts = nil
	return strings.Join(all, ", ")
}

// sums checks that a communicator works: the sum of one for each rank.
func sums(ctx context.Context, c *comm.Comm) error {
	x, err := tensor.EmptyOn(ctx, c.Stream().Device(), dtype.Int32, 100)
	if err == nil {
		err = tensor.Fill(ctx, x, 1)
	}
	if err == nil {
		err = c.AllReduce(ctx, x, comm.Sum)
	}
	if err != nil {
		return err
	}
	host, err := x.To(ctx, nil)
	if err == nil && host.At(99) != float64(c.Size()) {
		err = fmt.Errorf("%d ranks have the sum %v", c.Size(), host.At(99))
	}
	return err
}

// onEach runs f for every rank, and replaces the old communicator by the one that it returns.
func onEach(t *testing.T, comms []*comm.Comm, f func(ctx context.Context, c *comm.Comm) (*comm.Comm, error)) {
	t.Helper()
	var wg sync.WaitGroup
	for i, c := range comms {
		if c == nil {
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			s, err := c.Stream().Device().NewStream(device.Normal)
			if err == nil {
				comms[i], err = f(device.WithStream(ctx, s), c)
			}
			if err != nil {
				t.Errorf("rank %d: %v", c.Rank(), err)
			}
		})
	}
	wg.Wait()
}

// A communicator shrinks, grows, and recovers after a failure: by the library, as far as that has what it takes, and
// else anew. Ranks and results are the same.
func TestRegroup(t *testing.T) {
	for _, x := range []struct {
		level                 string
		shrunk, grown, broken string // what the library is called for
	}{
		{"2.18", "CommInitRankConfig 2", "CommInitRankConfig 3", "CommInitRankConfig 2"},
		{"2.27", "CommShrink 2", "CommInitRankConfig 3", "CommInitRankConfig 2"},
		{"2.28.7", "CommShrink 2", "CommInitRankConfig 3", "CommShrink 2, CommRevoke 3"},
		// of which the newcomer's is a start with the old ranks' id
		{"2.32", "CommShrink 2", "CommInitRankConfig 1, CommGrow 3", "CommShrink 2, CommRevoke 3"},
	} {
		if testutil.Short() && x.level != "2.18" && x.level != "2.32" {
			continue
		}
		t.Run(x.level, func(t *testing.T) {
			var calls called
			library := simulate(t, nccltest.Options{Version: x.level, Fail: calls.note})
			comms := open(t, "nccl", library, 3)
			calls.since()
			shrink := func(without int, opts ...comm.RegroupOption) {
				onEach(t, comms, func(ctx context.Context, c *comm.Comm) (*comm.Comm, error) {
					if c.Rank() == without {
						<-ctx.Done() // until the others have gone on
						return nil, nil
					}
					n, err := c.Regroup(ctx, append([]comm.RegroupOption{comm.Without(without)}, opts...)...)
					if err != nil {
						return nil, err
					}
					if want := c.Rank() - min(1, max(0, c.Rank()-without)); n.Rank() != want || n.Size() != c.Size()-1 {
						return nil, fmt.Errorf("rank %d of %d becomes %d of %d", c.Rank(), c.Size(), n.Rank(), n.Size())
					}
					return n, sums(ctx, n)
				})
			}
			// One that's left out is finalized.
			left := comms[1]
			comms[1] = nil
			shrink(1)
			if got := calls.since(); got != x.shrunk {
				t.Errorf("to shrink: %s, want %s", got, x.shrunk)
			}
			if err := left.Finalize(t.Context()); err != nil {
				t.Error(err)
			}
			comms = slices.DeleteFunc(comms, func(c *comm.Comm) bool { return c == nil })
			newcomer, err := comm.New(t.Context(), comm.WithBackend("nccl"), comm.WithDevice("accinte:0"), comm.WithoutWorld(),
				comm.WithTimeout(30*time.Second), comm.WithHints(map[string]string{"library": library}))
			if err != nil {
				t.Fatal(err)
			}
			handle, err := newcomer.Handle()
			if err != nil {
				t.Fatal(err)
			}
			var joined sync.WaitGroup
			joined.Go(func() {
				if newcomer, err = newcomer.Regroup(t.Context()); err == nil {
					err = sums(t.Context(), newcomer)
				}
			})
			onEach(t, comms, func(ctx context.Context, c *comm.Comm) (*comm.Comm, error) {
				n, err := c.Regroup(ctx, comm.With(handle))
				if err == nil {
					err = sums(ctx, n)
				}
				return n, err
			})
			joined.Wait()
			if err != nil || newcomer.Rank() != 2 {
				t.Fatalf("the newcomer: %v", err)
			}
			if got := calls.since(); got != x.grown {
				t.Errorf("to grow: %s, want %s", got, x.grown)
			}
			// After an abort, without rank 0, which serves the store.
			comms = append(comms, newcomer)
			comms[2].Abort(errors.New("enough"))
			for _, c := range comms {
				<-c.Broken()
			}
			left = comms[0]
			comms[0] = nil
			shrink(0)
			if err := left.Finalize(t.Context()); err != nil {
				t.Error(err)
			}
			if got := calls.since(); got != x.broken {
				t.Errorf("to recover: %s, want %s", got, x.broken)
			}
			onEach(t, comms, func(ctx context.Context, c *comm.Comm) (*comm.Comm, error) { return nil, c.Finalize(ctx) })
		})
	}
}

// If the library can't shrink or grow on one rank, all ranks make a new communicator. With a hint
// they don't, and the error says so.
func TestRegroupFallsBack(t *testing.T) {
	for hint, want := range map[string]string{"auto": "CommInitRankConfig 2, CommShrink 2", "anew": "CommInitRankConfig 2",
		"library": "CommShrink 2"} {
		calls := called{fail: func(call string, rank int) abi.Result {
			if call == "ncclCommShrink" && rank == 2 {
				return abi.SystemError
			}
			return abi.Success
		}}
		library := simulate(t, nccltest.Options{Version: "2.32", Fail: calls.note})
		comms := open(t, "nccl", library, 3, comm.WithHints(map[string]string{"library": library, "regroup": hint}))
		calls.since()
		left := comms[0]
		comms[0] = nil
		onEach(t, comms, func(ctx context.Context, c *comm.Comm) (*comm.Comm, error) {
			n, err := c.Regroup(ctx, comm.Without(0))
			if hint == "library" {
				if err == nil || !strings.Contains(err.Error(), "hint regroup=library: NCCL 2.32.0") ||
					!strings.Contains(err.Error(), "ncclCommShrink fails on purpose") {
					return n, fmt.Errorf("regrouping gives %w", err)
				}
				return c, nil
			}
			if err == nil {
				err = sums(ctx, n)
			}
			return n, err
		})
		if got, _, _ := strings.Cut(calls.since(), ", CommRevoke"); got != want { // of what a failed shrink has broken
			t.Errorf("%s: %s, want %s", hint, got, want)
		}
		onEach(t, append(comms, left), func(ctx context.Context, c *comm.Comm) (*comm.Comm, error) {
			return nil, c.Finalize(ctx)
		})
	}
	for level, text := range map[string]string{"2.18": "has no shrink: it lacks ncclCommShrink, which came with NCCL 2.27",
		"2.28":   "has no revoke: it lacks ncclCommRevoke, which came with NCCL 2.28.7",
		"2.28.7": "has no grow: it lacks ncclCommGrow, ncclCommGetUniqueId, which came with NCCL 2.29"} {
		_, err := comm.New(t.Context(), comm.WithBackend("nccl"), comm.WithDevice("accinte:0"), comm.WithRank(0, 1),
			comm.WithHints(map[string]string{"library": simulate(t, nccltest.Options{Version: level}), "regroup": "library"}))
		if !errors.Is(err, comm.ErrUnsupported) || !strings.Contains(err.Error(), text) {
			t.Errorf("regroup=library at %s gives %v", level, err)
		}
	}
}

// survivorVar has a process be a rank: "level victim rank size store".
const survivorVar = "CHORUS_TEST_NCCL_SURVIVOR"

// survivor is a rank of which one kills itself between operations; the others regroup, and say how.
func survivor(t *testing.T, what string) {
	var level, addr string
	var victim, rank, size int
	if _, err := fmt.Sscan(what, &level, &victim, &rank, &size, &addr); err != nil {
		t.Fatal(err)
	}
	st, err := store.DialTCP(t.Context(), addr, store.TCPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var calls called
	library := simulate(t, nccltest.Options{Version: level, Fail: calls.note})
	c, err := comm.New(t.Context(), comm.WithBackend("nccl"), comm.WithDevice("accinte:0"), comm.WithRank(rank, size),
		comm.WithStore(st), comm.WithTimeout(20*time.Second), comm.WithHints(map[string]string{"library": library}))
	if err != nil {
		t.Fatal(err)
	}
	calls.since()
	if err := sums(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if rank == victim {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	for err == nil {
		err = sums(t.Context(), c)
	}
	fmt.Println("broken:", c.Err())
	_ = c.Stream().Recover(t.Context())
	n, err := c.Regroup(t.Context())
	if err == nil {
		err = sums(t.Context(), n)
	}
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("regrouped: %d of %d by %s\n", n.Rank(), n.Size(), calls.since())
	if err := n.Finalize(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A rank that is killed, which may be the one that serves the store, is named, and the others go on without it.
func TestSurvivors(t *testing.T) {
	if what := os.Getenv(survivorVar); what != "" {
		survivor(t, what)
		return
	}
	const size = 3
	for _, x := range []struct {
		level  string
		victim int
		by     string
	}{{"2.32", 0, "CommShrink 1, CommRevoke 1"}, {"2.18", 0, "CommInitRankConfig 1"},
		{"2.18", 2, "CommInitRankConfig 1"}, {"2.27", 1, "CommInitRankConfig 1"}, {"2.32", 1, "CommShrink 1, CommRevoke 1"}} {
		if testutil.Short() && (x.victim != 0 || x.level != "2.32") {
			continue
		}
		t.Run(fmt.Sprintf("%s/without %d", x.level, x.victim), func(t *testing.T) {
			server, err := store.ListenTCP("127.0.0.1:0", store.ServerOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			var wg sync.WaitGroup
			for rank := range size {
				cmd := exec.Command(os.Args[0], "-test.run=^TestSurvivors$")
				cmd.Env = append(os.Environ(), fmt.Sprint(survivorVar, "=", x.level, " ", x.victim, " ", rank, " ", size, " ",
					server.Addr()))
				cmd.Stderr = cmd.Stdout
				out, err := cmd.StdoutPipe()
				if err == nil {
					err = cmd.Start()
				}
				if err != nil {
					t.Fatal(err)
				}
				stop := time.AfterFunc(60*time.Second, func() { cmd.Process.Kill() })
				wg.Go(func() {
					text, _ := io.ReadAll(bufio.NewReader(out))
					err := cmd.Wait()
					stop.Stop()
					if rank == x.victim {
						return
					}
					want := fmt.Sprintf("regrouped: %d of %d by %s\n", rank-min(1, max(0, rank-x.victim)), size-1, x.by)
					if err != nil || !strings.Contains(string(text), want) ||
						!strings.Contains(string(text), fmt.Sprintf("rank %d is lost", x.victim)) {
						t.Errorf("rank %d ends with %v, not with %s:\n%s", rank, err, want, text)
					}
				})
			}
			wg.Wait()
		})
	}
}
