package comm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/commtest"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/hostmem"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/tensor"
)

// A life is what happens to a communicator of three ranks from New to its end.
type life struct {
	name string
	live func(ctx context.Context, c *comm.Comm) error
}

var lives = []life{
	{"used", useAndFinalize},
	{"aborted", func(ctx context.Context, c *comm.Comm) error {
		return ended(ctx, c, comm.ErrAborted, func() error {
			if err := useSome(ctx, c); err != nil {
				return err
			}
			if c.Rank() == 1 {
				c.Abort(errors.New("enough"))
			}
			return c.Barrier(ctx)
		})
	}},
	{"mismatched", func(ctx context.Context, c *comm.Comm) error {
		return ended(ctx, c, comm.ErrMismatch, func() error {
			if err := useSome(ctx, c); err != nil {
				return err
			}
			if c.Rank() == 2 {
				return c.Barrier(ctx)
			}
			return c.AllReduce(ctx, tensor.Of(make([]float32, 100)), comm.Sum)
		})
	}},
	{"cancelled", func(ctx context.Context, c *comm.Comm) error {
		return ended(ctx, c, comm.ErrAborted, func() error {
			if err := useSome(ctx, c); err != nil {
				return err
			}
			if c.Rank() != 0 { // they wait until rank 0 gives up
				return c.Recv(ctx, tensor.Of(make([]float32, 10)), 0, comm.Tag(1))
			}
			return giveUp(ctx, c, func(ctx context.Context) error {
				return c.AllReduce(ctx, tensor.Of(make([]float32, 20_000)), comm.Sum)
			})
		})
	}},
}

// giveUp calls f with contexts that end soon, until one ends in the middle of a
// collective and not between two.
func giveUp(ctx context.Context, c *comm.Comm, f func(context.Context) error) error {
	for {
		short, cancel := context.WithCancel(ctx)
		stop := time.AfterFunc(time.Millisecond, cancel)
		err := f(short)
		stop.Stop()
		cancel()
		if c.Err() != nil {
			return err
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
}

// ended calls f until it fails, which it must do with want, and finalizes.
func ended(ctx context.Context, c *comm.Comm, want error, f func() error) error {
	err := f()
	for err == nil {
		err = f()
	}
	if !errors.Is(err, want) {
		return fmt.Errorf("it ends with %w, not %v", err, want)
	}
	return c.Finalize(ctx)
}

// useSome runs a few operations of each path: inline, staged, mapped, messages.
func useSome(ctx context.Context, c *comm.Comm) error {
	x, y := tensor.Must(c.Zeros(dtype.Float32, 20_000)), tensor.Of(make([]float32, 20_000))
	defer x.Free()
	var works [4]comm.Work
	for _, t := range []*tensor.Tensor{x, y, tensor.Of(make([]float32, 5))} {
		if err := c.AllReduce(ctx, t, comm.Sum); err != nil {
			return err
		}
	}
	for i := range works {
		if err := c.Broadcast(ctx, y, i%c.Size(), comm.Async(&works[i])); err != nil {
			return err
		}
	}
	for i := range works {
		if err := works[i].Wait(ctx); err != nil {
			return err
		}
	}
	b := c.Batch()
	b.Send(y, (c.Rank()+1)%c.Size())
	b.Recv(tensor.Of(make([]float32, 20_000)), (c.Rank()+2)%c.Size())
	return b.Issue(ctx)
}

// useAndFinalize adds what has a beginning and an end of its own.
func useAndFinalize(ctx context.Context, c *comm.Comm) error {
	if err := useSome(ctx, c); err != nil {
		return err
	}
	group := []int{0, 2}
	if c.Rank() == 1 {
		group = []int{1}
	}
	part, err := c.Split(ctx, group)
	if err != nil {
		return err
	}
	z := tensor.Must(part.Zeros(dtype.Int64, 3000))
	defer z.Free()
	if err := part.AllReduce(ctx, z, comm.Sum); err != nil {
		return err
	}
	w, err := c.NewWindow(ctx, z)
	if err != nil {
		return err
	}
	one := tensor.Of([]int64{1})
	if err := w.Put(ctx, one, comm.Target{Rank: (c.Rank() + 1) % c.Size(), Offset: c.Rank()}); err != nil {
		return err
	}
	if err := w.Fence(ctx, -1); err != nil {
		return err
	}
	hook := c.RegisterAbortHook(func(error) {})
	defer hook.Remove()
	for _, f := range []func() error{
		func() error { return w.Close(ctx) },
		func() error { return part.Finalize(ctx) },
		func() error { return c.Barrier(ctx) },
		func() error { return c.Finalize(ctx) },
	} {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// TestNothingLeaks lets many communicators live and end, well or not, and looks
// at what they leave behind: goroutines, files, shared memory and heap.
func TestNothingLeaks(t *testing.T) {
	cycles := testutil.Pick(12, 100)
	if commtest.Long() {
		cycles = 3400 // of which 10,000 fail on the first four fabrics
	}
	for _, fabric := range []string{"mem", "shm", "tcp", "auto", "mixed"} {
		for _, l := range lives {
			t.Run(fabric+"/"+l.name, func(t *testing.T) {
				n := cycles
				if l.name != "used" || fabric == "auto" || fabric == "mixed" { // auto is shm here, and mixed is made of shm and tcp
					n = cycles / 4
				}
				run := func() {
					comms := open(t, 3, func(rank int) []comm.NewOption {
						hints := map[string]string{"stage_bytes": "65536", "fabric": fabric} // a small stage is made faster
						if fabric == "mixed" {
							hints["fabric"], hints["host_id"] = "auto", fmt.Sprint("host", rank/2)
						}
						return []comm.NewOption{comm.WithHints(hints)}
					})
					errs := make([]error, len(comms))
					var wg sync.WaitGroup
					for r, c := range comms {
						wg.Go(func() {
							ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
							defer cancel()
							errs[r] = l.live(ctx, c)
						})
					}
					wg.Wait()
					for r, err := range errs {
						if err != nil {
							t.Fatalf("rank %d: %v", r, err)
						}
					}
				}
				for range 5 { // pools fill
					run()
				}
				before := measure(t)
				for range n {
					run()
				}
				before.check(t, n)
			})
		}
	}
}

// usage is what a process holds at some moment.
type usage struct {
	files   int
	memory  hostmem.Stats
	heap    uint64
	objects uint64
	ignore  goleak.Option
}

func measure(t testing.TB) usage {
	t.Helper()
	// Twice: what a pool or a cleanup let go in the first cycle is collected in the second.
	runtime.GC()
	runtime.GC()
	hostmem.Trim()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{files: len(openFiles(t)), memory: hostmem.ReadStats(), heap: m.HeapAlloc, objects: m.HeapObjects,
		ignore: goleak.IgnoreCurrent()}
}

// check compares with the present, once goroutines and cleanups have had the time to end.
func (before usage) check(t testing.TB, cycles int) {
	t.Helper()
	if err := goleak.Find(before.ignore); err != nil {
		t.Error(err)
	}
	var after usage
	bad := func() bool {
		after = measure(t)
		return after.files > before.files || after.memory.Segments > before.memory.Segments ||
			after.memory.Mappings > before.memory.Mappings || after.memory.InUse > before.memory.InUse
	}
	for end := time.Now().Add(5 * time.Second); bad() && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	if bad() {
		t.Errorf("after %d cycles: %d files open, %d before; shared memory %+v, before %+v\n%s", cycles, after.files,
			before.files,
			after.memory, before.memory, strings.Join(openFiles(t), "\n"))
	}
	// A leak of one communicator would be kilobytes in each cycle; the runtime's pools grow by one or two in all.
	if grown := int64(after.heap) - int64(before.heap); grown > 3000+int64(cycles)*1000 {
		t.Errorf("the heap has grown by %d bytes and %d objects in %d cycles", grown,
			int64(after.objects)-int64(before.objects), cycles)
	}
}

// openFiles lists the descriptors of this process and what they lead to.
func openFiles(t testing.TB) []string {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	files := make([]string, 0, len(list))
	for _, e := range list {
		// Not the directory itself, which is closed by now.
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			files = append(files, e.Name()+" -> "+to)
		}
	}
	return files
}

// A communicator that is dropped without Finalize is warned about and leaves nothing behind.
func TestForgottenCommunicators(t *testing.T) {
	for _, fabric := range []string{"mem", "shm", "tcp", "auto"} {
		t.Run(fabric, func(t *testing.T) {
			var log lines
			forget := func() {
				comms := open(t, 3, func(int) []comm.NewOption {
					return []comm.NewOption{comm.WithFabric(fabric), comm.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))}
				})
				var wg sync.WaitGroup
				for r, c := range comms {
					wg.Go(func() {
						if err := useSome(t.Context(), c); err != nil {
							t.Errorf("rank %d: %v", r, err)
						}
						if _, err := c.Split(t.Context(), []int{0, 1, 2}, comm.SplitName("part")); err != nil {
							t.Errorf("rank %d: %v", r, err)
						}
					})
				}
				wg.Wait()
			}
			before := measure(t)
			forget()
			warned := func() int { return bytes.Count([]byte(log.String()), []byte("was not finalized")) }
			for end := time.Now().Add(20 * time.Second); warned() < 6 &&
				time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				runtime.GC()
			}
			if got := warned(); got != 6 || !strings.Contains(log.String(), "comm=part") {
				t.Errorf("%d warnings for 6 communicators:\n%s", got, log.String())
			}
			before.check(t, 100)
		})
	}
}
