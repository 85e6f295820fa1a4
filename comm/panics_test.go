package comm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/tensor"
)

// Hooks and contexts that panic, or end their goroutine.

// A way is how a call reaches the hooks of its operation.
type way struct {
	name    string
	on      string // the operation whose hook panics
	thrown  bool   // its hooks run on the caller's goroutine
	culprit func(ctx context.Context, c *comm.Comm) error
	other   func(ctx context.Context, c *comm.Comm) error // the other rank's part
}

func waited(f func(opts ...comm.Option) error) error {
	var w comm.Work
	if err := f(comm.Async(&w)); err != nil {
		return err
	}
	return w.Wait(context.Background())
}

func barrier(ctx context.Context, c *comm.Comm) error { return c.Barrier(ctx) }
func receive(ctx context.Context, c *comm.Comm) error { return c.Recv(ctx, zeros(4), 0) }

func swap(c *comm.Comm) *comm.Batch {
	b := c.Batch()
	b.Send(zeros(4), 1-c.Rank())
	b.Recv(zeros(4), 1-c.Rank())
	return b
}

var ways = []way{
	{"collective", "barrier", true, barrier, barrier},
	{"asynchronous", "barrier", false, func(ctx context.Context, c *comm.Comm) error {
		return waited(func(opts ...comm.Option) error { return c.Barrier(ctx, opts...) })
	}, barrier},
	{"queued", "barrier", false, func(ctx context.Context, c *comm.Comm) error {
		var w comm.Work
		free := make(chan struct{})
		defer c.RegisterPreHook(func(i comm.OpInfo) error {
			if i.Kind == backend.AllReduce {
				<-free
			}
			return nil
		}).Remove()
		if err := c.AllReduce(ctx, zeros(4), comm.Sum, comm.Async(&w)); err != nil {
			return err
		}
		time.AfterFunc(10*time.Millisecond, func() { close(free) })
		return c.Barrier(ctx)
	}, func(ctx context.Context, c *comm.Comm) error {
		return errors.Join(c.AllReduce(ctx, zeros(4), comm.Sum), c.Barrier(ctx))
	}},
	{"send", "send", true, func(ctx context.Context, c *comm.Comm) error { return c.Send(ctx, zeros(4), 1) }, receive},
	{"asynchronous send", "send", false, func(ctx context.Context, c *comm.Comm) error {
		return waited(func(opts ...comm.Option) error { return c.Send(ctx, zeros(4), 1, opts...) })
	}, receive},
	{"batch", "recv", true, func(ctx context.Context, c *comm.Comm) error { return swap(c).Issue(ctx) },
		func(ctx context.Context, c *comm.Comm) error { return swap(c).Issue(ctx) }},
	{"asynchronous batch", "recv", false, func(ctx context.Context, c *comm.Comm) error {
		return waited(func(opts ...comm.Option) error { return swap(c).Issue(ctx, opts...) })
	}, func(ctx context.Context, c *comm.Comm) error { return swap(c).Issue(ctx) }},
}

// An end is how a function has ended.
type end struct {
	value any
	gone  bool // by runtime.Goexit
	err   error
}

// outcome runs f on a goroutine of its own.
func outcome(t *testing.T, f func() error) end {
	t.Helper()
	ended := make(chan end, 1)
	go func() {
		x, returned := end{}, false
		defer func() {
			if !returned {
				x.value = recover()
				x.gone = x.value == nil
			}
			ended <- x
		}()
		x.err = f()
		returned = true
	}()
	select {
	case x := <-ended:
		return x
	case <-time.After(20 * time.Second):
		t.Fatal("the call did not end")
		return end{}
	}
}

var errBoom = errors.New("boom")

// A hook that panics, or ends its goroutine, breaks the communicator on all ranks, with that cause; nothing hangs.
func TestHookPanics(t *testing.T) {
	for _, fabric := range []string{"mem", "shm", "tcp"} {
		for _, w := range ways {
			for _, hook := range []string{"pre-hook", "completion hook"} {
				for _, exits := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%s/%s/exits=%v", fabric, w.name, hook, exits), func(t *testing.T) {
						t.Parallel()
						hookPanics(t, over(fabric)(t, 2), w, hook, exits)
					})
				}
			}
		}
	}
}

func hookPanics(t *testing.T, comms []*comm.Comm, w way, hook string, exits bool) {
	boom := func(i comm.OpInfo) {
		switch {
		case i.Kind.String() != w.on:
		case exits:
			runtime.Goexit()
		default:
			panic(errBoom)
		}
	}
	each(t, comms, func(ctx context.Context, c *comm.Comm) error {
		x := zeros(4)
		if c.Rank() == 1 {
			err := w.other(ctx, c)
			if err == nil {
				err = c.AllReduce(ctx, x, comm.Sum)
			}
			var aborted *comm.AbortedError
			if !errors.As(err, &aborted) || aborted.By != 0 || !strings.Contains(aborted.Reason, w.on) ||
				!strings.Contains(aborted.Reason, hook) {
				return fmt.Errorf("the other rank got %v", err)
			}
			return c.Finalize(ctx)
		}
		if hook == "pre-hook" {
			c.RegisterPreHook(func(i comm.OpInfo) error { boom(i); return nil })
		} else {
			c.RegisterCompletionHook(func(i comm.OpInfo, _ error) { boom(i) })
		}
		got := outcome(t, func() error { return w.culprit(ctx, c) })
		// Which are posted on the caller's goroutine.
		thrown := w.thrown || hook == "pre-hook" && (w.on == "send" || w.on == "recv")
		switch {
		case thrown && exits && !got.gone, thrown && !exits && got.value != errBoom, !thrown &&
			(got.gone || got.value != nil):
			return fmt.Errorf("the call ended with %+v: %v", got, got.err)
		}
		causes := []error{c.Err(), outcome(t, func() error { return c.AllReduce(ctx, x, comm.Sum) }).err}
		if !thrown {
			causes = append(causes, got.err)
		}
		for _, err := range causes {
			var p *comm.PanicError
			if !errors.Is(err, comm.ErrAborted) || !errors.As(err, &p) {
				return fmt.Errorf("%v has no PanicError", err)
			}
			if p.Op != w.on || !strings.HasPrefix(p.Hook, hook+" ") || !strings.Contains(p.Hook, "hookPanics") ||
				!bytes.Contains(p.Stack, []byte("hookPanics")) {
				return fmt.Errorf("%+v of operation %q, hook %q, stack:\n%s", p, p.Op, p.Hook, p.Stack)
			}
			if want := map[bool]any{false: errBoom, true: nil}[exits]; p.Value != want || errors.Is(err, errBoom) == exits {
				return fmt.Errorf("%v has the value %v", err, p.Value)
			}
		}
		return outcome(t, func() error { return c.Finalize(ctx) }).err
	})
}

// The hooks of operations on streams, and of replays of a graph, run on goroutines of the device: what they panic with
// is the work's error.
func TestHookPanicsOnStreams(t *testing.T) {
	forms := map[string]func(ctx context.Context, c *comm.Comm, s *device.Stream, x *tensor.Tensor) error{
		"synchronous": func(ctx context.Context, c *comm.Comm, s *device.Stream, x *tensor.Tensor) error {
			return errors.Join(c.AllReduce(ctx, x, comm.Sum), s.Synchronize(ctx))
		},
		"asynchronous": func(ctx context.Context, c *comm.Comm, s *device.Stream, x *tensor.Tensor) error {
			var w comm.Work
			return errors.Join(c.AllReduce(ctx, x, comm.Sum, comm.Async(&w)), w.Synchronize(ctx))
		},
		"messages": func(ctx context.Context, c *comm.Comm, s *device.Stream, x *tensor.Tensor) error {
			y, err := numbers(ctx, c, 4, 0)
			if err != nil {
				return err
			}
			b := c.Batch()
			b.Send(x, 1-c.Rank())
			b.Recv(y, 1-c.Rank())
			return errors.Join(b.Issue(ctx), s.Synchronize(ctx))
		},
		"replay": func(ctx context.Context, c *comm.Comm, s *device.Stream, x *tensor.Tensor) error {
			g, err := device.Capture(s, func() error { return c.AllReduce(ctx, x, comm.Sum) })
			if err != nil {
				return err
			}
			return errors.Join(g.Replay(s), s.Synchronize(ctx))
		},
	}
	for name, form := range forms {
		for _, exits := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/exits=%v", name, exits), func(t *testing.T) {
				comms := onAccInte("shm")(t, 2)
				eachOn(t, comms, func(ctx context.Context, c *comm.Comm, s *device.Stream) error {
					x, err := numbers(ctx, c, 4, 1)
					if err != nil {
						return err
					}
					if c.Rank() == 0 {
						c.RegisterCompletionHook(func(comm.OpInfo, error) {
							if exits {
								runtime.Goexit()
							}
							panic(errBoom)
						})
					}
					got := outcome(t, func() error { return form(ctx, c, s, x) })
					if c.Rank() == 0 {
						if got.value != nil || got.gone || got.err == nil || !exits && !errors.Is(got.err, errBoom) {
							return fmt.Errorf("the work ended with %+v", got)
						}
						var p *comm.PanicError
						if !errors.As(c.Err(), &p) || !strings.HasPrefix(p.Hook, "completion hook ") {
							return fmt.Errorf("the cause is %v", c.Err())
						}
					}
					select {
					case <-c.Broken():
					case <-time.After(10 * time.Second):
						return errors.New("it's not broken")
					}
					var aborted *comm.AbortedError
					if !errors.As(c.Err(), &aborted) || aborted.By != 0 {
						return fmt.Errorf("the cause is %v", c.Err())
					}
					return outcome(t, func() error { return c.Finalize(context.Background()) }).err
				})
			})
		}
	}
}

// faulty is a context that panics when it's looked at.
type faulty struct{ context.Context }

func (faulty) Err() error { panic(errBoom) }

// A call whose context panics gives the lane back. A collective breaks the communicator, since the other ranks wait for
// it.
func TestContextPanics(t *testing.T) {
	collective := map[string]bool{"brief": true, "timed": true}
	for name, call := range map[string]func(ctx context.Context, c *comm.Comm) error{
		"brief": func(ctx context.Context, c *comm.Comm) error { return c.AllReduce(ctx, zeros(4), comm.Sum) },
		"timed": func(ctx context.Context, c *comm.Comm) error { return c.Barrier(ctx, comm.Timeout(time.Minute)) },
		"recv":  func(ctx context.Context, c *comm.Comm) error { return c.Recv(ctx, zeros(4), 0) },
		"batch": func(ctx context.Context, c *comm.Comm) error { return swap(c).Issue(ctx) },
		"split": func(ctx context.Context, c *comm.Comm) error { _, err := c.Split(ctx, []int{0}); return err },
	} {
		t.Run(name, func(t *testing.T) {
			c := over("mem")(t, 1)[0]
			if got := outcome(t, func() error { return call(faulty{context.Background()}, c) }); got.value != errBoom {
				t.Errorf("the call ended with %+v", got)
			}
			if err := outcome(t, func() error { return c.Barrier(context.Background()) }).err; collective[name] != errors.Is(err,
				errBoom) {
				t.Errorf("the next one ended with %v", err)
			}
			if err := outcome(t, func() error { return c.Finalize(context.Background()) }).err; err != nil {
				t.Error(err)
			}
		})
	}
}

// moody is a context that panics when a wait asks for its end.
type moody struct{ context.Context }

func (moody) Done() <-chan struct{} { panic(errBoom) }

// A context that panics in the middle of a wait breaks the communicator on all ranks, as a hook does; the fabric's
// locks are free, so that other communicators on it work.
func TestContextPanicsInWait(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, c *comm.Comm) error{
		"barrier": barrier,
		"brief":   func(ctx context.Context, c *comm.Comm) error { return c.AllReduce(ctx, zeros(4), comm.Sum) },
		"ring": func(ctx context.Context, c *comm.Comm) error {
			return c.AllReduce(ctx, zeros(4), comm.Sum, comm.Algorithm("ring"))
		},
		"recv":  func(ctx context.Context, c *comm.Comm) error { return c.Recv(ctx, zeros(4), 1) },
		"batch": func(ctx context.Context, c *comm.Comm) error { return swap(c).Issue(ctx) },
		"asynchronous recv": func(ctx context.Context, c *comm.Comm) error {
			return waited(func(opts ...comm.Option) error { return c.Recv(ctx, zeros(4), 1, opts...) })
		},
		"queued": func(ctx context.Context, c *comm.Comm) error {
			return waited(func(opts ...comm.Option) error { return c.Barrier(ctx, opts...) })
		},
	} {
		for _, fabric := range []string{"mem", "shm", "tcp"} {
			t.Run(name+"/"+fabric, func(t *testing.T) {
				t.Parallel()
				contextPanics(t, over(fabric)(t, 2), call, name == "asynchronous recv" || name == "queued")
			})
		}
	}
}

func contextPanics(t *testing.T, comms []*comm.Comm, call func(ctx context.Context, c *comm.Comm) error, behind bool) {
	made, gone := make(chan struct{}), make(chan struct{})
	each(t, comms, func(ctx context.Context, c *comm.Comm) error {
		other, err := c.Split(ctx, []int{0, 1}, comm.SplitName("other"))
		if c.Rank() == 1 {
			close(made)
		}
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			<-made // a split is no barrier: the abort would be in time for the other rank's
			got := outcome(t, func() error { return call(moody{context.Background()}, c) })
			close(gone)
			var p *comm.PanicError
			if behind && !errors.As(got.err, &p) || !behind && got.value != errBoom {
				return fmt.Errorf("the call ended with %+v: %v", got, got.err)
			}
			if !errors.As(c.Err(), &p) || p.Value != errBoom || p.Hook != "" || !bytes.Contains(p.Stack, []byte("moody.Done")) {
				return fmt.Errorf("the cause is %v", c.Err())
			}
		} else {
			<-gone // so that the other waits
		}
		select {
		case <-c.Broken():
		case <-time.After(10 * time.Second):
			return errors.New("it's not broken")
		}
		err = outcome(t, func() error { return c.AllReduce(ctx, zeros(4), comm.Sum) }).err
		var aborted *comm.AbortedError
		if !errors.As(err, &aborted) || aborted.By != 0 || !strings.Contains(aborted.Reason, "panicked: boom") {
			return fmt.Errorf("the next call ended with %v", err)
		}
		for _, f := range []func() error{
			func() error { return swap(other).Issue(ctx) },
			func() error { return other.AllReduce(ctx, zeros(4), comm.Sum) },
		} {
			if err := outcome(t, f).err; err != nil {
				return fmt.Errorf("another communicator: %w", err)
			}
		}
		return errors.Join(outcome(t, func() error { return other.Finalize(ctx) }).err,
			outcome(t, func() error { return c.Finalize(ctx) }).err)
	})
}

// An abort hook has no operation and no caller: its panic is logged.
func TestAbortHookPanics(t *testing.T) {
	for _, exits := range []bool{false, true} {
		var mu sync.Mutex
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(locked{&mu, &out}, nil))
		c := open(t, 1, func(int) []comm.NewOption { return []comm.NewOption{comm.WithLogger(log)} })[0]
		c.RegisterAbortHook(func(error) {
			if exits {
				runtime.Goexit()
			}
			panic(errBoom)
		})
		c.Abort(errors.New("enough"))
		text := func() string {
			mu.Lock()
			defer mu.Unlock()
			return out.String()
		}
		testutil.Eventually(t, func() bool { return strings.Contains(text(), "TestAbortHookPanics") }, "the log has a stack")
		for _, want := range []string{"level=ERROR", "abort hook", "TestAbortHookPanics",
			map[bool]string{false: "panicked: boom", true: "Goexit"}[exits]} {
			if !strings.Contains(text(), want) {
				t.Errorf("the log does not say %q: %s", want, text())
			}
		}
		if err := c.Finalize(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

type locked struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// A nil option is refused as any other argument that's wrong: the next call works.
func TestNilOption(t *testing.T) {
	comms := over("mem")(t, 2)
	each(t, comms, func(ctx context.Context, c *comm.Comm) error {
		x := zeros(4)
		w, err := c.NewWindow(ctx, zeros(4))
		if err != nil {
			return err
		}
		filled := swap(c)
		wrong := c.Batch()
		wrong.Send(x, 1-c.Rank(), nil)
		for name, f := range map[string]func() error{
			"all_reduce": func() error { return c.AllReduce(ctx, x, comm.Sum, comm.Timeout(time.Minute), nil) },
			"barrier":    func() error { return c.Barrier(ctx, nil, nil) },
			"async":      func() error { return c.Barrier(ctx, comm.Async(new(comm.Work)), nil) },
			"send":       func() error { return c.Send(ctx, x, 1-c.Rank(), nil) },
			"batch":      func() error { return filled.Issue(ctx, nil) },
			"batched":    func() error { return wrong.Issue(ctx) },
			"put":        func() error { return w.Put(ctx, x, comm.Target{}, nil) },
			"signal":     func() error { return w.WaitSignal(ctx, 0, 0, nil) },
			"split":      func() error { _, err := c.Split(ctx, []int{c.Rank()}, nil); return err },
			"regroup":    func() error { _, err := c.Regroup(ctx, nil); return err },
			"reconfigure": func() error {
				_, err := c.Reconfigure(ctx, "x", nil, nil)
				return err
			},
			"objects": func() error {
				_, err := comm.AllGather(ctx, comm.Objects{C: c}, 1, nil)
				return err
			},
			"new": func() error { _, err := comm.New(ctx, comm.WithRank(0, 1), nil); return err },
		} {
			got := outcome(t, f)
			if got.value != nil || !errors.Is(got.err, comm.ErrInvalidArgument) || !strings.Contains(got.err.Error(),
				" is nil") {
				return fmt.Errorf("%s ended with %+v", name, got)
			}
		}
		if err := c.AllReduce(ctx, x, comm.Sum); err != nil {
			return err
		}
		return c.Finalize(ctx)
	})
	c := over("mem")(t, 1)[0]
	for name, f := range map[string]func(){
		"pre": func() { c.RegisterPreHook(nil) }, "completion": func() { c.RegisterCompletionHook(nil) },
		"abort": func() { c.RegisterAbortHook(nil) },
	} {
		if got := outcome(t, func() error { f(); return nil }); got.value == nil {
			t.Errorf("a nil %s hook is taken", name)
		}
	}
	if err := c.AllReduce(context.Background(), tensor.Must(tensor.Zeros(dtype.Float32, 1)), comm.Sum); err != nil {
		t.Error(err)
	}
	if err := c.Finalize(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestPanicBeforeFinalize has a rank's program panic, whose deferred Finalize runs. The other ranks have lost it, in the
// operation that they are in or call next, and go on without it.
func TestPanicBeforeFinalize(t *testing.T) {
	worlds := map[string]func(testing.TB, int) []*comm.Comm{"mem": over("mem"), "shm": over("shm"), "tcp": over("tcp"),
		"mixed": mixed}
	for name, world := range worlds {
		t.Run(name, func(t *testing.T) {
			each(t, world(t, 3), func(ctx context.Context, c *comm.Comm) error {
				if c.Rank() == 1 {
					defer func() { recover() }()
					defer c.Finalize(ctx)
					panic("index out of range")
				}
				err := c.Barrier(ctx)
				var lost *comm.PeerLostError
				if !errors.As(err, &lost) || lost.Peer != 1 || !strings.Contains(lost.Cause, "its program panicked") {
					return fmt.Errorf("rank 1 has panicked, and an operation gives %v", err)
				}
				n, err := c.Regroup(ctx)
				if err != nil {
					return err
				}
				if err := n.Barrier(ctx); err != nil || n.Size() != 2 {
					return fmt.Errorf("%d ranks go on: %v", n.Size(), err)
				}
				return n.Finalize(ctx)
			})
		})
	}
}
