//go:build linux

package nccl_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/commtest"
	"github.com/chorus-comms/chorus/comm/nccl"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/comm/nccl/nccltest"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// The library doesn't notice that ranks call different things, and hangs. When the time is over, all ranks learn that,
// and what each has called.
func TestMismatch(t *testing.T) {
	each(t, world(t, 3), func(ctx context.Context, c *comm.Comm, s *device.Stream, x *tensor.Tensor) error {
		var err error
		if c.Rank() == 1 {
			err = c.AllReduce(ctx, x, comm.Max, comm.Timeout(5*time.Second))
		} else {
			err = c.AllReduce(ctx, x, comm.Sum, comm.Timeout(100*time.Millisecond))
		}
		if err != nil {
			return err
		}
		<-c.Broken()
		var m *comm.MismatchError
		if !errors.As(c.Err(), &m) || !strings.Contains(c.Err().Error(), "all_reduce(int32[100], max)") ||
			!strings.Contains(c.Err().Error(), "all_reduce(int32[100], sum)") || m.RankA != 1 && m.RankB != 1 {
			return fmt.Errorf("broken by %v", c.Err())
		}
		return s.Synchronize(ctx)
	})
}

// A failure that comes right behind an operation isn't the operation's, even if its end was not noticed before.
func TestDoneBeforeAFailure(t *testing.T) {
	library := simulate(t, nccltest.Options{Version: "2.32"})
	for range 20 {
		var both sync.WaitGroup
		both.Add(2)
		each(t, open(t, "nccl", library, 2), func(ctx context.Context, c *comm.Comm, s *device.Stream, x *tensor.Tensor) error {
			var w comm.Work
			if err := c.AllReduce(ctx, x, comm.Sum, comm.Async(&w)); err != nil {
				return err
			}
			if err := errors.Join(w.Wait(ctx), s.Synchronize(ctx)); err != nil {
				return err
			}
			both.Done()
			both.Wait()
			if c.Rank() == 1 {
				c.Abort(errors.New("on purpose"))
			}
			<-c.Broken()
			return w.Synchronize(ctx)
		})
	}
}

// A rank that has no library says so to the others, which don't wait for it until their time is over.
func TestUnable(t *testing.T) {
	library := simulate(t, nccltest.Options{Version: "2.32"})
	st := store.NewHash(time.Minute)
	var wg sync.WaitGroup
	begin := time.Now()
	for r := range 3 {
		wg.Go(func() {
			hints := map[string]string{"library": library}
			if r == 1 {
				hints["library"] = "/nowhere/libnccl.so"
			}
			_, err := comm.New(t.Context(), comm.WithBackend("nccl"), comm.WithDevice("accinte:0"), comm.WithRank(r, 3),
				comm.WithStore(st), comm.WithHints(hints), comm.WithTimeout(time.Minute))
			if !errors.Is(err, comm.ErrUnsupported) || !strings.Contains(err.Error(), "/nowhere/libnccl.so") ||
				r != 1 && !strings.Contains(err.Error(), "rank 1 can't begin: ") ||
				strings.Count(err.Error(), backend.Beginning) != 1 {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	wg.Wait()
	if waited := time.Since(begin); waited > 30*time.Second {
		t.Errorf("they waited for %v", waited)
	}
}

// Communicators that compare find out at once which rank calls a different operation, in any way of calling. So
// do their splits.
func TestCompare(t *testing.T) {
	library := simulate(t, nccltest.Options{Version: "2.32"})
	hints := comm.WithHints(map[string]string{"library": library, "compare": "true"})
	commtest.Mismatches(t, commtest.Config{Device: true, Uneven: true, Worlds: []int{2, 3},
		Open: func(t testing.TB, size int) []*comm.Comm { return open(t, "nccl", library, size, hints) }})
	each(t, open(t, "nccl", library, 2, hints), func(ctx context.Context, c *comm.Comm, s *device.Stream,
		x *tensor.Tensor) error {
		part, err := c.Split(ctx, []int{1, 0})
		if err != nil {
			return err
		}
		defer part.Finalize(ctx)
		red := []comm.Reduction{comm.Sum, comm.Max}[c.Rank()]
		if err := part.AllReduce(ctx, x, red); !errors.Is(err, comm.ErrMismatch) {
			return fmt.Errorf("ranks that call different things get %v", err)
		}
		for seq := range 5 {
			if err := c.AllReduce(ctx, x, comm.Sum); err != nil {
				return fmt.Errorf("after %d: %w", seq, err)
			}
		}
		if c.Rank() == 1 {
			return nil
		}
		var late *comm.TimeoutError
		if err := c.Barrier(ctx, comm.Timeout(50*time.Millisecond)); !errors.As(err, &late) ||
			!slices.Equal(late.Missing, []int{1}) {
			return fmt.Errorf("a barrier without rank 1 gives %v", err)
		}
		return s.Synchronize(ctx)
	})
}

// Rank 0 serves what ranks compare by: without it nothing is compared.
func TestCompareWithoutRank0(t *testing.T) {
	hints := comm.WithHints(map[string]string{"library": simulate(t, nccltest.Options{Version: "2.32"}), "compare": "true"})
	each(t, open(t, "nccl", "", 2, hints), func(ctx context.Context, c *comm.Comm, s *device.Stream,
		x *tensor.Tensor) error {
		if c.Rank() == 0 {
			return nil
		}
		var err error
		for err == nil || errors.Is(err, comm.ErrTimeout) { // while it's there yet
			err = c.Barrier(ctx)
		}
		var lost *comm.PeerLostError
		if !errors.As(err, &lost) || lost.Peer != 0 {
			return fmt.Errorf("a barrier without rank 0 gives %v", err)
		}
		return nil
	})
}

// An asynchronous error of the library breaks the communicator on all ranks, with the library's
// text.
func TestAsyncError(t *testing.T) {
	var through atomic.Int32 // ranks whose calls have returned, of which each asks as well
	library := simulate(t, nccltest.Options{Version: "2.32", Fail: func(call string, rank int) abi.Result {
		if through.Load() == 2 && call == "ncclCommGetAsyncError" && rank == 1 {
			return abi.SystemError
		}
		return abi.Success
	}})
	each(t, open(t, "nccl", library, 2), func(ctx context.Context, c *comm.Comm, s *device.Stream,
		x *tensor.Tensor) error {
		if err := c.AllReduce(ctx, x, comm.Sum); err != nil {
			return err
		}
		if err := s.Synchronize(ctx); err != nil {
			return err
		}
		through.Add(1)
		<-c.Broken()
		const want = "NCCL 2.32.0: ncclCommGetAsyncError: unhandled system error (ncclSystemError): " +
			"ncclCommGetAsyncError fails on purpose"
		if !strings.Contains(c.Err().Error(), want) {
			return fmt.Errorf("broken by %v", c.Err())
		}
		var own *nccl.Error
		if c.Rank() == 1 && (!errors.As(c.Err(), &own) || own.Result != abi.SystemError) {
			return fmt.Errorf("no *nccl.Error: %v", c.Err())
		}
		return nil
	})
}

// A rank whose library is aborted from outside is lost to the others. Their errors name it, although the
// library names no rank.
func TestRemoteError(t *testing.T) {
	testutil.SkipIfShort(t) // seven seconds, in which nothing is done
	var gone atomic.Bool
	library := simulate(t, nccltest.Options{Version: "2.32"})
	each(t, open(t, "nccl", library, 2), func(ctx context.Context, c *comm.Comm, s *device.Stream,
		x *tensor.Tensor) error {
		if c.Rank() == 1 { // finalizes in the middle of the other's operation
			for !gone.Load() {
				time.Sleep(time.Millisecond)
			}
			return nil
		}
		if err := c.AllReduce(ctx, x, comm.Sum); err != nil {
			return err
		}
		gone.Store(true)
		<-c.Broken()
		var lost *comm.PeerLostError
		if !errors.As(c.Err(), &lost) || lost.Peer != 1 || !strings.Contains(lost.Cause, "ncclRemoteError") {
			return fmt.Errorf("broken by %v", c.Err())
		}
		return s.Synchronize(ctx)
	})
}

// A call that the library refuses is an error of that call if its arguments are to blame, and else the end.
func TestRefusals(t *testing.T) {
	for result, want := range map[abi.Result]error{abi.InvalidArgument: comm.ErrInvalidArgument,
		abi.InternalError: comm.ErrInternal} {
		var refuse atomic.Bool
		library := simulate(t, nccltest.Options{Version: "2.27", Fail: func(call string, _ int) abi.Result {
			if refuse.Load() && call == "ncclAllReduce" {
				return result
			}
			return abi.Success
		}})
		each(t, open(t, "nccl", library, 1), func(ctx context.Context, c *comm.Comm, s *device.Stream,
			x *tensor.Tensor) error {
			refuse.Store(true)
			if err := c.AllReduce(ctx, x, comm.Sum); !errors.Is(err, want) {
				return fmt.Errorf("%v gives %v", result, err)
			}
			if broken := c.Err() != nil; broken != (want == comm.ErrInternal) {
				return fmt.Errorf("%v: broken by %v", result, c.Err())
			}
			return nil
		})
	}
}

// An operation that NCCL lacks is refused before any rank enqueues it, by an error that names what is
// lacking.
func TestUnsupported(t *testing.T) {
	each(t, world(t, 1), func(ctx context.Context, c *comm.Comm, s *device.Stream, x *tensor.Tensor) error {
		short := tensor.Must(tensor.ZerosOn(ctx, s.Device(), dtype.Int16, 8))
		for text, err := range map[string]error{
			"NCCL has no reduction band on int32":       c.AllReduce(ctx, x, comm.BAnd),
			"NCCL has no reduction sum on int16":        c.AllReduce(ctx, short, comm.Sum),
			"NCCL has neither tags nor any source":      c.Send(ctx, x, 0, comm.Tag(3)),
			"all_reduce: NCCL has no reduction bxor on": c.AllReduce(ctx, x, comm.BXor),
		} {
			if !errors.Is(err, comm.ErrUnsupported) || !strings.Contains(err.Error(), text) {
				return fmt.Errorf("want %q, got %v", text, err)
			}
		}
		return errors.Join(c.Broadcast(ctx, short, 0), s.Synchronize(ctx))
	})
}

// The error names a rank that doesn't come to the start, and the library, which would wait for
// ever, isn't called.
func TestStart(t *testing.T) {
	library := simulate(t, nccltest.Options{Version: "2.28"})
	st := store.NewHash(time.Minute)
	defer st.Close()
	_, err := comm.New(t.Context(), comm.WithBackend("nccl"), comm.WithDevice("accinte:0"), comm.WithRank(0, 2),
		comm.WithStore(st), comm.WithTimeout(100*time.Millisecond), comm.WithHints(map[string]string{"library": library}))
	var late *comm.TimeoutError
	if !errors.As(err, &late) || !slices.Equal(late.Missing, []int{1}) {
		t.Errorf("one of two ranks gets %v", err)
	}
}

// A library that never ends its start is aborted when the time is over, whether its calls block or not.
func TestStartNeverEnds(t *testing.T) {
	for _, blocking := range []string{"0", "1"} {
		over := make(chan struct{})
		library := simulate(t, nccltest.Options{Version: "2.28", Fail: func(call string, rank int) abi.Result {
			if call == "ncclCommInitRankConfig" && rank == 1 {
				<-over
				return abi.SystemError
			}
			return abi.Success
		}})
		st := store.NewHash(time.Minute)
		defer st.Close()
		errs := make([]error, 2)
		var wg sync.WaitGroup
		for r := range errs {
			wg.Go(func() {
				_, errs[r] = comm.New(t.Context(), comm.WithBackend("nccl"), comm.WithDevice("accinte:0"),
					comm.WithRank(r, 2), comm.WithStore(st), comm.WithTimeout(300*time.Millisecond),
					comm.WithHints(map[string]string{"library": library, "blocking": blocking}))
			})
		}
		wg.Wait()
		close(over)
		for r, err := range errs {
			var late *comm.TimeoutError
			if !errors.As(err, &late) || !slices.Equal(late.Unknown, []int{1 - r}) {
				t.Errorf("blocking=%s: rank %d, whose library doesn't start, gets %v", blocking, r, err)
			}
		}
	}
}

// Hints are fields of the configuration that the library's version has.
func TestHints(t *testing.T) {
	for _, x := range []struct{ level, hint, value, want string }{
		{"2.18", "splitShare", "1", ""},
		{"2.18", "cga_cluster_size", "2", ""},
		{"2.18", "max_event_pool_size", "100", ""},
		{"2.18", "commName", "mine", "has no commName, which came with NCCL 2.27.0"},
		{"2.27", "ncclx::commName", "mine", ""},
		{"2.27", "minCTAs", "many", "minCTAs"},
		{"2.27", "colour", "red", "unknown hint"},
	} {
		library := simulate(t, nccltest.Options{Version: x.level})
		c, err := comm.New(t.Context(), comm.WithBackend("nccl"), comm.WithDevice("accinte:0"), comm.WithRank(0, 1),
			comm.WithHints(map[string]string{"library": library, x.hint: x.value}))
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s=%s at %s: %v", x.hint, x.value, x.level, err)
		}
		if err == nil {
			if err := c.Finalize(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// Libraries that have no split of their own, no configurations and no finalize do, too.
func TestOldLibrary(t *testing.T) {
	library := simulate(t, nccltest.Options{Version: "2.13"})
	each(t, open(t, "rccl", library, 3), func(ctx context.Context, c *comm.Comm, s *device.Stream,
		x *tensor.Tensor) error {
		list := []int{2, 0}
		if c.Rank() == 1 {
			list = nil
		}
		part, err := c.Split(ctx, list)
		if err != nil || part == nil {
			return err
		}
		if err := errors.Join(part.AllReduce(ctx, x, comm.Sum), s.Synchronize(ctx), part.Finalize(ctx)); err != nil {
			return err
		}
		if got := tensor.Must(x.To(ctx, nil)); got.At(0) != 2 || part.Rank() != slices.Index(list, c.Rank()) {
			return fmt.Errorf("rank %d has %v", part.Rank(), got)
		}
		return nil
	})
}

// Every reduction that a library has is one that's defined.
func TestReduces(t *testing.T) {
	c := world(t, 1)[0]
	defer c.Finalize(t.Context())
	caps := c.Capabilities()
	for _, dt := range dtype.All() {
		for k := backend.SumKind; k <= backend.PremulSumKind; k++ {
			if caps.Reduces(k, dt) && !k.Defined(dt) {
				t.Errorf("%v on %v", k, dt)
			}
		}
	}
	if slices.Contains(caps.Reductions(), backend.BXorKind) || !slices.Contains(caps.Reductions(), backend.BAndKind) {
		t.Errorf("reductions %v", caps.Reductions()) // 0 and 1 are the only ones with an "and"
	}
}

// Backends are for devices by their type or by their name.
func TestServes(t *testing.T) {
	caps := comm.Capabilities{Devices: []string{"cuda", "accinte:1"}}
	for name, want := range map[string]bool{"cuda": true, "cuda:7": true, "accinte:1": true, "accinte:0": false,
		"accinte": false, "cpu": false, "cudax:1": false} {
		if caps.Serves(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
	library := simulate(t, nccltest.Options{Version: "2.32"})
	for name, text := range map[string]string{"nonesuch:1": "nonesuch", "cpu": `has no device "cpu`} {
		_, err := comm.New(t.Context(), comm.WithBackend("nccl"), comm.WithDevice(name), comm.WithRank(0, 1),
			comm.WithHints(map[string]string{"library": library}))
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("device %s gives %v", name, err)
		}
	}
}

// processVar has a process be rank 1 of two, and says where they meet.
const processVar = "CHORUS_TEST_NCCL_PROCESS"

// Ranks may be processes; one that is killed is lost to the other, by name.
func TestProcesses(t *testing.T) {
	library := simulate(t, nccltest.Options{Version: "2.32"})
	meet := func(rank int, st store.Store) *comm.Comm {
		c, err := comm.New(t.Context(), comm.WithBackend("nccl"), comm.WithDevice("accinte:0"), comm.WithRank(rank, 2),
			comm.WithStore(st), comm.WithTimeout(20*time.Second), comm.WithHints(map[string]string{"library": library}))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	sum := func(c *comm.Comm) (float64, error) {
		x, err := tensor.ZerosOn(t.Context(), c.Stream().Device(), dtype.Float32, 1000)
		if err == nil {
			err = tensor.Fill(t.Context(), x, c.Rank()+1)
		}
		if err == nil {
			err = c.AllReduce(t.Context(), x, comm.Sum)
		}
		if err != nil {
			return 0, err
		}
		host, err := x.To(t.Context(), nil)
		if err != nil {
			return 0, err
		}
		return host.At(999), nil
	}
	if addr := os.Getenv(processVar); addr != "" {
		st, err := store.DialTCP(t.Context(), addr, store.TCPOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := sum(meet(1, st)); got != 3 || err != nil {
			t.Fatal(got, err)
		}
		fmt.Println("rank 1 is there")
		select {} // until it's killed
	}
	server, err := store.ListenTCP("127.0.0.1:0", store.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestProcesses$")
	cmd.Env = append(os.Environ(), processVar+"="+server.Addr().String())
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	c := meet(0, server.Local())
	defer c.Finalize(t.Context())
	if got, err := sum(c); got != 3 || err != nil {
		t.Fatal(got, err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line, "is there") {
		t.Fatal(line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := sum(c); err != nil && !errors.Is(err, comm.ErrPeerLost) {
		t.Fatal(err)
	}
	<-c.Broken()
	var lost *comm.PeerLostError
	if !errors.As(c.Err(), &lost) || lost.Peer != 1 {
		t.Errorf("broken by %v", c.Err())
	}
}

// A library that can't finalize is aborted, and the caller learns why.
func TestFinalize(t *testing.T) {
	var aborted atomic.Bool
	library := simulate(t, nccltest.Options{Version: "2.32", Fail: func(call string, _ int) abi.Result {
		if call == "ncclCommAbort" {
			aborted.Store(true)
		}
		if call == "ncclCommFinalize" {
			return abi.SystemError
		}
		return abi.Success
	}})
	c := open(t, "nccl", library, 1)[0]
	if err := c.Finalize(t.Context()); err == nil || !strings.Contains(err.Error(), "ncclCommFinalize: unhandled system") {
		t.Errorf("finalizing gives %v", err)
	}
	if !aborted.Load() {
		t.Error("the library wasn't aborted")
	}
}

// slowToHear has a rank not act on another one's alarm before it's released.
func slowToHear(t *testing.T, rank int) (release func()) {
	gate := make(chan struct{})
	nccl.AtAlarm(func(r int) {
		if r == rank {
			<-gate
		}
	})
	t.Cleanup(func() { nccl.AtAlarm(nil) })
	return sync.OnceFunc(func() { close(gate) })
}

// Rank 0 fails in a call of all ranks, reports that, and stops its part of the library. So the call fails on rank 1 as
// well, which has not acted on the report yet. Its error is nevertheless rank 0's.
func TestCallsThatFailBecauseAPeerHasFailed(t *testing.T) {
	type plan struct {
		call    string // that fails
		stopped chan struct{}
	}
	var fails atomic.Pointer[plan]
	library := simulate(t, nccltest.Options{Version: "2.32", Fail: func(call string, rank int) abi.Result {
		switch p := fails.Load(); {
		case p == nil:
		case call == p.call && rank == 0:
			return abi.UnhandledCudaError
		case call == p.call:
			<-p.stopped
			return abi.SystemError
		case call == "ncclCommRevoke" && rank == 0:
			close(p.stopped)
		}
		return abi.Success
	}})
	for call, f := range map[string]func(ctx context.Context, c *comm.Comm) error{
		"ncclCommWindowRegister": func(ctx context.Context, c *comm.Comm) error {
			_, err := c.NewWindow(ctx, tensor.Must(c.Zeros(dtype.Int32, 100)))
			return err
		},
		"ncclCommWindowDeregister": func(ctx context.Context, c *comm.Comm) error {
			w, err := c.NewWindow(ctx, tensor.Must(c.Zeros(dtype.Int32, 100)))
			if err != nil {
				return err
			}
			return w.Close(ctx)
		},
		"ncclCommSplit": func(ctx context.Context, c *comm.Comm) error {
			_, err := c.Split(ctx, []int{1, 0})
			return err
		},
	} {
		t.Run(call, func(t *testing.T) {
			fails.Store(nil)
			comms := open(t, "nccl", library, 2)
			release := slowToHear(t, 1)
			fails.Store(&plan{call, make(chan struct{})})
			each(t, comms, func(ctx context.Context, c *comm.Comm, _ *device.Stream, _ *tensor.Tensor) error {
				err := f(ctx, c)
				if c.Rank() == 1 {
					release()
				}
				if err == nil {
					<-c.Broken()
					err = c.Err()
				}
				var aborted *comm.AbortedError
				if !strings.Contains(err.Error(), "(ncclUnhandledCudaError)") ||
					c.Rank() == 1 && (!errors.As(err, &aborted) || aborted.By != 0) {
					return fmt.Errorf("it gives %w", err)
				}
				return nil
			})
		})
	}
}

// A rank whose library can't begin reports that to the others, which don't wait for it until their time is over: in a
// split by an old library, and in a new world.
func TestBeginningThatFailsOnOneRank(t *testing.T) {
	var breaks atomic.Bool
	rt, err := device.Open("accinte")
	if err != nil {
		t.Fatal(err)
	}
	sim, err := nccltest.New(nccltest.Options{Version: "2.18", Driver: rt.Driver(), Fail: func(call string,
		rank int) abi.Result {
		if rank == 0 && breaks.Load() && call == "ncclCommInitRankConfig" {
			return abi.UnhandledCudaError
		}
		return abi.Success
	}})
	if err != nil {
		t.Fatal(err)
	}
	library, table := "a stand-in without splits", sim.Table()
	table.CommSplit = nil
	if _, err := nccl.Supply("NCCL", library, table, "accinte"); err != nil {
		t.Fatal(err)
	}
	check := func(rank int, err error) {
		t.Helper()
		var aborted *comm.AbortedError
		if err == nil || !strings.Contains(err.Error(), "fails on purpose") ||
			rank == 1 && (!errors.As(err, &aborted) || aborted.By != 0) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	begin := time.Now()
	comms := open(t, "nccl", library, 2)
	breaks.Store(true)
	each(t, comms, func(ctx context.Context, c *comm.Comm, _ *device.Stream, _ *tensor.Tensor) error {
		_, err := c.Split(ctx, []int{0, 1})
		check(c.Rank(), err)
		return nil
	})
	st := store.NewHash(time.Minute)
	defer st.Close()
	var both sync.WaitGroup
	for r := range 2 {
		both.Go(func() {
			_, err := comm.New(t.Context(), comm.WithBackend("nccl"), comm.WithDevice(fmt.Sprint("accinte:", r)),
				comm.WithRank(r, 2), comm.WithStore(st), comm.WithTimeout(30*time.Second),
				comm.WithHints(map[string]string{"library": library}))
			check(r, err)
		})
	}
	both.Wait()
	if took := time.Since(begin); took > 25*time.Second {
		t.Errorf("it took %v", took)
	}
}
