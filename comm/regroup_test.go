package comm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/tensor"
)

const regroupPatience = 30 * time.Second

// eachOf runs f for the communicators that aren't nil, at once, and reports errors.
func eachOf(t testing.TB, comms []*comm.Comm, f func(ctx context.Context, i int, c *comm.Comm) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), regroupPatience)
	defer cancel()
	var all sync.WaitGroup
	for i, c := range comms {
		if c == nil {
			continue
		}
		all.Go(func() {
			if err := f(ctx, i, c); err != nil {
				t.Errorf("%d (rank %d of %d): %v", i, c.Rank(), c.Size(), err)
			}
		})
	}
	all.Wait()
}

// nothingLeft demands that the test leaves nothing behind.
func nothingLeft(t *testing.T) {
	t.Helper()
	before, running := measure(t), goleak.IgnoreCurrent()
	t.Cleanup(func() {
		goleak.VerifyNone(t, running)
		before.check(t, 1000) // of the heap a single cycle tells nothing
	})
}

// works demands that a world's ranks are as listed, and that its operations work.
func works(t testing.TB, comms []*comm.Comm, ranks ...int) {
	t.Helper()
	size := 0
	for _, r := range ranks {
		if r >= 0 {
			size++
		}
	}
	eachOf(t, comms, func(ctx context.Context, i int, c *comm.Comm) error {
		if c.Rank() != ranks[i] || c.Size() != size {
			return fmt.Errorf("rank %d of %d, want %d of %d", c.Rank(), c.Size(), ranks[i], size)
		}
		return sums(ctx, c)
	})
}

// sums uses a world's collectives, messages, splits and windows.
func sums(ctx context.Context, c *comm.Comm) error {
	n := c.Size()
	for _, count := range []int{1, 100_000} {
		x := make([]float32, count)
		x[count-1] = float32(c.Rank() + 1)
		if err := c.AllReduce(ctx, tensor.Of(x), comm.Sum); err != nil {
			return err
		}
		if want := float32(n * (n + 1) / 2); x[count-1] != want {
			return fmt.Errorf("the sum is %v, want %v", x[count-1], want)
		}
	}
	got := make([]int64, 1)
	var w comm.Work
	if err := c.Recv(ctx, tensor.Of(got), (c.Rank()+n-1)%n, comm.Async(&w)); err != nil {
		return err
	}
	if err := c.Send(ctx, tensor.Of([]int64{int64(c.Rank())}), (c.Rank()+1)%n); err != nil {
		return err
	}
	if err := w.Wait(ctx); err != nil || got[0] != int64((c.Rank()+n-1)%n) {
		return fmt.Errorf("received %d: %w", got[0], err)
	}
	part, err := c.Split(ctx, []int{c.Rank()})
	if err != nil {
		return err
	}
	if err := part.Finalize(ctx); err != nil {
		return err
	}
	win, err := c.NewWindow(ctx, tensor.Of(make([]int64, n)))
	if err != nil {
		return err
	}
	return errors.Join(c.Barrier(ctx), win.Close(ctx))
}

func endAll(t testing.TB, comms []*comm.Comm) {
	eachOf(t, comms, func(ctx context.Context, _ int, c *comm.Comm) error { return c.Finalize(ctx) })
}

// regroupAll replaces each communicator by what Regroup returns, except where opts returns false.
func regroupAll(t testing.TB, comms []*comm.Comm, opts func(i int) ([]comm.RegroupOption, bool)) []*comm.Comm {
	t.Helper()
	next := make([]*comm.Comm, len(comms))
	eachOf(t, comms, func(ctx context.Context, i int, c *comm.Comm) (err error) {
		o, ok := opts(i)
		if !ok {
			return nil
		}
		next[i], err = c.Regroup(ctx, o...)
		return err
	})
	if t.Failed() {
		t.FailNow()
	}
	return next
}

var regroupFabrics = map[string]func(testing.TB, int) []*comm.Comm{"mem": over("mem"), "shm": over("auto"), "tcp": over("tcp"), "mixed": mixed}

// A broken world of four loses two ranks, and another that hangs is left out.
func TestShrink(t *testing.T) {
	for name, open := range regroupFabrics {
		t.Run(name, func(t *testing.T) {
			nothingLeft(t)
			old := open(t, 5)
			old[1].Abort(errors.New("enough"))
			eachOf(t, old, func(ctx context.Context, _ int, c *comm.Comm) error {
				<-c.Broken()
				return nil
			})
			comms := regroupAll(t, old, func(i int) ([]comm.RegroupOption, bool) {
				return []comm.RegroupOption{comm.Without(0, 3)}, i != 0 && i != 3
			})
			works(t, comms, -1, 0, 1, -1, 2)
			for _, i := range []int{1, 2, 4} {
				if err := old[i].Barrier(t.Context()); !errors.Is(err, comm.ErrFinalized) {
					t.Errorf("the old communicator: %v", err)
				}
			}
			// Once more, from the new world.
			again := regroupAll(t, comms, func(i int) ([]comm.RegroupOption, bool) {
				return []comm.RegroupOption{comm.Without(1)}, i != 2
			})
			works(t, again, -1, 0, -1, -1, 1)
			endAll(t, []*comm.Comm{old[0], old[3], comms[2], again[1], again[4]})
		})
	}
}

// Who's only slow is waited for; who never comes is left out, and hears so when it comes after all.
func TestRegroupLateAndAbsent(t *testing.T) {
	nothingLeft(t)
	comms := over("mem")(t, 4)
	next := make([]*comm.Comm, 4)
	left := make(chan struct{})
	var others sync.WaitGroup
	others.Add(2)
	eachOf(t, comms, func(ctx context.Context, i int, c *comm.Comm) (err error) {
		switch i {
		case 0: // it doesn't come, so that rank 1 leads
			<-left
			_, err := c.Regroup(ctx, comm.Patience(200*time.Millisecond))
			if !errors.Is(err, comm.ErrTimeout) {
				return fmt.Errorf("it must not make a world of itself alone: %v", err)
			}
			return nil
		case 3:
			next[i], err = c.Regroup(ctx, comm.Patience(20*time.Second))
		default:
			next[i], err = c.Regroup(ctx, comm.Patience(300*time.Millisecond))
			others.Done()
			if i == 1 {
				others.Wait()
				close(left)
			}
		}
		return err
	})
	works(t, next, -1, 0, 1, 2)
	endAll(t, append(next, comms[0]))
}

func newcomers(t testing.TB, n int, opts ...comm.NewOption) (comms []*comm.Comm, handles []string) {
	t.Helper()
	for range n {
		c, err := comm.New(t.Context(), append(opts, comm.WithoutWorld(), comm.WithTimeout(regroupPatience))...)
		if err != nil {
			t.Fatal(err)
		}
		h, err := c.Handle()
		if err != nil {
			t.Fatal(err)
		}
		if c.Rank() != -1 || c.Size() != 0 {
			t.Errorf("a newcomer is rank %d of %d", c.Rank(), c.Size())
		}
		if err := c.Barrier(t.Context()); !errors.Is(err, comm.ErrInvalidArgument) || !strings.Contains(err.Error(),
			"no world yet") {
			t.Errorf("barrier without a world: %v", err)
		}
		comms, handles = append(comms, c), append(handles, h)
	}
	return comms, handles
}

func TestGrowAndReplace(t *testing.T) {
	for _, name := range []string{"mem", "shm"} {
		t.Run(name, func(t *testing.T) {
			nothingLeft(t)
			comms := regroupFabrics[name](t, 2)
			fresh, handles := newcomers(t, 2, comm.WithHints(map[string]string{"fabric": map[string]string{"mem": "mem",
				"shm": "auto"}[name]}))
			// Only one rank knows of the newcomers.
			grown := regroupAll(t, append(comms, fresh...), func(i int) ([]comm.RegroupOption, bool) {
				if i == 1 {
					return []comm.RegroupOption{comm.With(handles...)}, true
				}
				return nil, true
			})
			works(t, grown, 0, 1, 2, 3)
			// One replaces rank 1; of two, the other is added.
			fresh, handles = newcomers(t, 2, comm.WithHints(map[string]string{"fabric": map[string]string{"mem": "mem",
				"shm": "auto"}[name]}))
			replaced := regroupAll(t, append(grown, fresh...), func(i int) ([]comm.RegroupOption, bool) {
				return map[int][]comm.RegroupOption{0: {comm.With(handles...)}, 2: {comm.Without(1)}}[i], i != 1
			})
			works(t, replaced, 0, -1, 2, 3, 1, 4)
			endAll(t, append(replaced, grown[1]))
		})
	}
}

// The interface of torchcomms: handles that are exchanged by other means, as a list or a set.
func TestReconfigure(t *testing.T) {
	nothingLeft(t)
	comms := over("mem")(t, 3)
	fresh, _ := newcomers(t, 1, comm.WithFabric("mem"))
	all := append(comms, fresh...)
	handles := make([]string, 4)
	for i, c := range all {
		h, err := c.Handle()
		if err != nil {
			t.Fatal(err)
		}
		handles[i] = h
	}
	next := make([]*comm.Comm, 4)
	list := []string{handles[3], handles[2], handles[0]}
	eachOf(t, all, func(ctx context.Context, i int, c *comm.Comm) (err error) {
		if i == 1 {
			_, err := c.Reconfigure(ctx, "u1", list)
			if !errors.Is(err, comm.ErrInvalidArgument) {
				return fmt.Errorf("not in the list: %v", err)
			}
			return nil
		}
		next[i], err = c.Reconfigure(ctx, "u1", list)
		return err
	})
	works(t, next, 2, -1, 1, 0)
	set := make([]string, 0, 3)
	for _, i := range []int{2, 3, 0} {
		h, err := next[i].Handle()
		if err != nil {
			t.Fatal(err)
		}
		set = append(set, h)
	}
	again := make([]*comm.Comm, 4)
	eachOf(t, next, func(ctx context.Context, i int, c *comm.Comm) (err error) {
		again[i], err = c.Reconfigure(ctx, "u2", append(set[i%3:], set[:i%3]...), comm.AnyOrder())
		return err
	})
	works(t, again, 2, -1, 1, 0)
	endAll(t, append(again, comms[1]))
}

// A member that doesn't come fails the attempt on all others, which are as they were.
func TestReconfigureFails(t *testing.T) {
	nothingLeft(t)
	comms := over("auto")(t, 3)
	var handles []string
	for _, c := range comms {
		h, err := c.Handle()
		if err != nil {
			t.Fatal(err)
		}
		handles = append(handles, h)
	}
	eachOf(t, comms[:2], func(ctx context.Context, i int, c *comm.Comm) error {
		short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		defer cancel()
		_, err := c.Reconfigure(short, "u1", handles)
		e, ok := errors.AsType[*comm.ReconfigureError](err)
		if !ok || len(e.Members) != 1 || e.Members[0] != 2 || !errors.Is(err, comm.ErrTimeout) ||
			!strings.Contains(err.Error(), "rank 2 before") {
			return fmt.Errorf("without rank 2: %v", err)
		}
		_, err = c.Reconfigure(ctx, "u1", handles)
		if !errors.Is(err, comm.ErrInvalidArgument) || !strings.Contains(err.Error(), "fresh") {
			return fmt.Errorf("the same uuid again: %v", err)
		}
		return nil
	})
	works(t, comms, 0, 1, 2) // the old world
	if err := comms[2].Finalize(t.Context()); err != nil {
		t.Error(err)
	}
	eachOf(t, comms[:2], func(ctx context.Context, i int, c *comm.Comm) error {
		_, err := c.Reconfigure(ctx, "u2", handles)
		if e, ok := errors.AsType[*comm.PeerLostError](err); !ok || e.Peer != 2 {
			return fmt.Errorf("rank 2 is finalized: %v", err)
		}
		return nil
	})
	next := make([]*comm.Comm, 2)
	eachOf(t, comms[:2], func(ctx context.Context, i int, c *comm.Comm) (err error) {
		next[i], err = c.Reconfigure(ctx, "u3", handles[:2])
		return err
	})
	works(t, next, 0, 1)
	endAll(t, next)
}

// A world that is made anew over and over leaves nothing of the old ones.
func TestRegroupCycles(t *testing.T) {
	for _, name := range []string{"mem", "shm", "tcp"} {
		t.Run(name, func(t *testing.T) {
			again := func(cycles int) {
				comms := regroupFabrics[name](t, 3)
				for range cycles {
					comms = regroupAll(t, comms, func(int) ([]comm.RegroupOption, bool) { return nil, true })
				}
				works(t, comms, 0, 1, 2)
				endAll(t, comms)
			}
			again(10)
			const cycles = 40
			before := measure(t)
			again(cycles)
			before.check(t, cycles)
		})
	}
}

// Ranks regroup without waiting for one that has left in the middle of the program, whichever of them noticed that
// itself.
func TestRegroupWithoutOneThatHasLeft(t *testing.T) {
	waits := map[string]func(ctx context.Context, i int, c *comm.Comm) error{
		"all": func(ctx context.Context, i int, c *comm.Comm) error {
			return c.Scatter(ctx, tensor.Of(make([]int64, 9000)), nil, 0)
		},
		"one": func(ctx context.Context, i int, c *comm.Comm) error { // rank 2 is told
			if i == 2 {
				<-c.Broken()
				return c.Err()
			}
			return c.Recv(ctx, tensor.Of(make([]int64, 9000)), 0)
		},
		"none": func(ctx context.Context, i int, c *comm.Comm) error { // all are between two operations
			c.Abort(errors.New("another reason"))
			return &comm.PeerLostError{Peer: 0}
		},
	}
	for _, fabric := range []string{"mem", "shm", "tcp"} {
		for who, wait := range waits {
			t.Run(fabric+"/"+who, func(t *testing.T) {
				nothingLeft(t)
				comms := over(fabric)(t, 3)
				made := make([]*comm.Comm, 3)
				eachOf(t, comms, func(ctx context.Context, i int, c *comm.Comm) error {
					if i == 0 {
						return c.Finalize(ctx)
					}
					var lost *comm.PeerLostError
					if err := wait(ctx, i, c); !errors.As(err, &lost) || lost.Peer != 0 {
						return fmt.Errorf("while it waits: %v", err)
					}
					var err error
					made[i], err = c.Regroup(ctx, comm.Patience(time.Hour))
					return err
				})
				works(t, made, -1, 0, 1)
				endAll(t, made)
			})
		}
	}
}
