package comm_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/hostmem"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/tensor"
)

// TestScratchFailure gives one rank no memory for what it packs: a typed error there, a
// reason on the others, and a communicator that is broken alike on all.
func TestScratchFailure(t *testing.T) {
	const count = 1 << 20
	comms := over("mem")(t, 2)
	outs := [][]*tensor.Tensor{nil, {zeros(count), zeros(count)}}
	whole := zeros(2 * count) // rank 0's list lies in one piece and needs no scratch
	for r := range 2 {
		outs[0] = append(outs[0], tensor.Must(whole.Narrow(0, r*count, count)))
	}
	hostmem.Trim()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0 // memory that can be shared is a file
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	restore := func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
	}
	defer restore()
	each(t, comms, func(ctx context.Context, c *comm.Comm) error {
		err := c.AllGather(ctx, outs[c.Rank()], zeros(count))
		var aborted *comm.AbortedError
		switch c.Rank() {
		case 0:
			if !errors.As(err, &aborted) || aborted.By != 1 {
				return fmt.Errorf("the other rank has no memory, and this one gets %v", err)
			}
		case 1:
			if !errors.Is(err, comm.ErrInternal) || !errors.Is(err, syscall.EMFILE) {
				return fmt.Errorf("without memory: %v", err)
			}
		}
		if c.Err() == nil || c.Barrier(ctx) == nil {
			return fmt.Errorf("afterwards the communicator's error is %v", c.Err())
		}
		return nil
	})
	restore()
	finalize(t, comms)
}

// TestFinalizeWaitsForThoseInside holds a send, which Finalize finds begun: the backend may
// end only when it's through.
func TestFinalizeWaitsForThoseInside(t *testing.T) {
	comms := over("mem")(t, 1)
	each(t, comms, func(ctx context.Context, c *comm.Comm) error {
		x := tensor.Of([]float32{1})
		inside := make(chan struct{})
		c.RegisterPreHook(func(comm.OpInfo) error {
			close(inside)
			for !errors.Is(c.Send(ctx, x, 1), comm.ErrFinalized) {
				runtime.Gosched() // Finalize has not begun; the destination is not valid
			}
			for start := time.Now(); time.Since(start) < 20*time.Millisecond; runtime.Gosched() {
				if c.Err() != nil {
					return fmt.Errorf("the backend has ended while an operation is under way: %w", c.Err())
				}
			}
			return nil
		})
		sent := make(chan error)
		go func() { sent <- c.Send(ctx, x, 0) }()
		<-inside
		err := c.Finalize(ctx)
		return errors.Join(err, <-sent)
	})
}

// TestFinalizeAmongOthers finalizes while goroutines read other ranks' memory, which
// Finalize unmaps, and exchange messages: they end well, or learn that it's over.
func TestFinalizeAmongOthers(t *testing.T) {
	const count = 1 << 18
	for _, fabric := range []string{"mem", "shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			for range testutil.Pick(1, 3) {
				comms := over(fabric)(t, 2)
				each(t, comms, func(ctx context.Context, c *comm.Comm) error {
					w, err := c.NewWindow(ctx, tensor.Must(c.Zeros(dtype.Float32, count)))
					if err != nil {
						return err
					}
					var wg sync.WaitGroup
					errs := make([]error, 6)
					begun := make(chan struct{}, len(errs))
					for k := range errs {
						wg.Go(func() {
							x, begin := zeros(count), sync.OnceFunc(func() { begun <- struct{}{} })
							defer begin()
							for errs[k] == nil {
								if k%2 == 0 {
									errs[k] = w.Get(ctx, x, comm.Target{Rank: 1 - c.Rank()})
								} else {
									b := c.Batch()
									b.Send(x, c.Rank(), comm.Tag(k))
									b.Recv(x, c.Rank(), comm.Tag(k))
									errs[k] = b.Issue(ctx)
								}
								begin()
							}
						})
					}
					for range errs {
						<-begun
					}
					if err := c.Finalize(ctx); err != nil {
						return err
					}
					wg.Wait()
					for k, err := range errs {
						// The other rank may have left before this one: then the communicator is broken.
						if !errors.Is(err, comm.ErrFinalized) && !errors.Is(err, comm.ErrPeerLost) {
							return fmt.Errorf("goroutine %d ends with %v", k, err)
						}
					}
					return nil
				})
			}
		})
	}
}

// TestOpenWindowsEndWithFinalize leaves windows of a part of a world open: its Finalize
// ends them, though the fabric, which would end them too, lives on.
func TestOpenWindowsEndWithFinalize(t *testing.T) {
	for _, fabric := range []string{"mem", "shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			comms := over(fabric)(t, 2)
			live := func(ctx context.Context, world *comm.Comm) error {
				c, err := world.Split(ctx, []int{0, 1})
				if err != nil {
					return err
				}
				x := tensor.Must(c.Zeros(dtype.Int64, 100))
				defer x.Free()
				var open []*comm.Window
				for range 3 {
					w, err := c.NewWindow(ctx, x)
					if err != nil {
						return err
					}
					open = append(open, w)
				}
				if err := open[1].Signal(ctx, 1-c.Rank(), 0); err != nil {
					return err
				}
				if err := open[1].WaitSignal(ctx, 1-c.Rank(), 0); err != nil {
					return err
				}
				if err := c.Finalize(ctx); err != nil {
					return err
				}
				for _, w := range open {
					if err := w.Get(ctx, tensor.Of(make([]int64, 1)), comm.Target{Rank: c.Rank()}); !errors.Is(err,
						comm.ErrFinalized) {
						return fmt.Errorf("a window after Finalize gives %v", err)
					}
				}
				return nil
			}
			each(t, comms, live)
			before := goleak.IgnoreCurrent()
			each(t, comms, live)
			if err := goleak.Find(before); err != nil {
				t.Error(err)
			}
			finalize(t, comms)
		})
	}
}

// TestAbortHookAndFinalize finalizes right after an abort: the hook must run all the same, and
// it must not after a plain Finalize.
func TestAbortHookAndFinalize(t *testing.T) {
	for round := range 200 {
		comms := over("mem")(t, 1)
		each(t, comms, func(ctx context.Context, c *comm.Comm) error {
			told := make(chan error, 1)
			c.RegisterAbortHook(func(err error) { told <- err })
			enough := errors.New("enough")
			if round%2 == 0 {
				c.Abort(enough)
			}
			if err := c.Finalize(ctx); err != nil {
				return err
			}
			if round%2 != 0 {
				select {
				case err := <-told:
					return fmt.Errorf("the hook ran after Finalize, with %v", err)
				default:
					return nil
				}
			}
			select {
			case err := <-told:
				if !errors.Is(err, enough) {
					return fmt.Errorf("the hook got %v", err)
				}
				return nil
			case <-ctx.Done():
				return errors.New("the hook did not run")
			}
		})
		if t.Failed() {
			return
		}
	}
}

// TestNothingIsLostAtDeadlines receives messages with deadlines so short that they end at
// every moment of a receive: a message whose receive timed out must still be there for the next.
func TestNothingIsLostAtDeadlines(t *testing.T) {
	for _, fabric := range []string{"mem", "shm", "tcp"} {
		for _, count := range []int{1, 200, 100_000} {
			t.Run(fmt.Sprintf("%s/%d", fabric, count), func(t *testing.T) {
				messages := 400
				if count > 1000 {
					messages = 60
				}
				comms := over(fabric)(t, 2)
				each(t, comms, func(ctx context.Context, c *comm.Comm) error {
					rng := rand.New(rand.NewPCG(1, uint64(c.Rank())))
					v := make([]int32, count)
					x := tensor.Of(v)
					for i := range messages {
						if c.Rank() == 0 {
							for start, pause := time.Now(), rng.IntN(300); time.Since(start) < time.Duration(pause)*time.Microsecond; {
								runtime.Gosched() // so that it comes at some moment of a receive
							}
							v[0], v[count-1] = int32(i), int32(i)
							if err := c.Send(ctx, x, 1); err != nil {
								return fmt.Errorf("message %d: %w", i, err)
							}
							continue
						}
						err := error(comm.ErrTimeout)
						for errors.Is(err, comm.ErrTimeout) {
							err = c.Recv(ctx, x, 0, comm.Timeout(time.Duration(1+rng.IntN(200))*time.Microsecond))
							if ctx.Err() != nil {
								return fmt.Errorf("message %d of %d never came", i, messages)
							}
						}
						if err != nil {
							return fmt.Errorf("message %d: %w", i, err)
						}
						if v[0] != int32(i) || v[count-1] != int32(i) {
							return fmt.Errorf("message %d is lost; after it came %d", i, v[0])
						}
					}
					return nil
				})
				finalize(t, comms)
			})
		}
	}
}

// A communicator that gets its world ends the one without: nothing has broken.
func TestNewcomersDontBreak(t *testing.T) {
	c, err := comm.New(t.Context(), comm.WithoutWorld())
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 2)
	before := waitingHooks()
	c.RegisterAbortHook(func(err error) { told <- err })
	if n := waitingHooks() - before; n != 1 {
		t.Fatalf("%d hooks wait, want 1", n)
	}
	handle, err := c.Handle()
	if err != nil {
		t.Fatal(err)
	}
	in, err := c.Reconfigure(t.Context(), "newcomer", []string{handle})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Finalize(t.Context())
	c.RegisterAbortHook(func(err error) { told <- err })
	testutil.Eventually(t, func() bool { return waitingHooks() <= before }, "the hooks of an ended communicator stop waiting")
	select {
	case err := <-told:
		t.Errorf("the hook was told %v", err)
	default:
	}
	if err := c.Barrier(t.Context()); !errors.Is(err, comm.ErrFinalized) {
		t.Errorf("a barrier afterwards: %v", err)
	}
}

// waitingHooks is how many abort hooks of this process haven't run, or been dropped.
func waitingHooks() int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "comm.(*Comm).RegisterAbortHook.func1(")
}
