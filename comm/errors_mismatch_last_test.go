package comm_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
)

// TestMismatchInTheLastOperation lets two ranks disagree in their last operation, in which none of them waits for the
// other: Finalize tells at least one of them.
func TestMismatchInTheLastOperation(t *testing.T) {
	for _, fabric := range []string{"mem", "shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			for round := range 20 {
				comms := over(fabric)(t, 2)
				var told atomic.Int32
				each(t, comms, func(ctx context.Context, c *comm.Comm) error {
					if err := c.Barrier(ctx); err != nil {
						return err
					}
					err := c.Broadcast(ctx, zeros(8), c.Rank())
					if err == nil {
						err = c.Finalize(ctx)
					} else {
						c.Finalize(ctx)
					}
					if errors.Is(err, comm.ErrMismatch) {
						told.Add(1)
						return nil
					}
					return err
				})
				if told.Load() == 0 {
					t.Fatalf("round %d: no rank learned that the roots differed", round)
				}
			}
		})
	}
}

// TestMismatchAfterItsOperation has rank 0 return from its last operation before rank 1 calls another one. Finalize
// returns the mismatch, or the next operation, if there is one.
func TestMismatchAfterItsOperation(t *testing.T) {
	for _, fabric := range []string{"mem", "shm", "tcp", "auto"} {
		for _, next := range []bool{false, true} {
			t.Run(fmt.Sprint(fabric, " ", next), func(t *testing.T) {
				comms := over(fabric)(t, 2)
				returned := make(chan bool)
				each(t, comms, func(ctx context.Context, c *comm.Comm) error {
					if c.Rank() == 1 {
						<-returned
						if err := c.Barrier(ctx); !errors.Is(err, comm.ErrMismatch) {
							t.Errorf("rank 1: %v", err)
						}
						return c.Finalize(ctx)
					}
					if err := c.Broadcast(ctx, zeros(8), 0); err != nil {
						return err
					}
					close(returned)
					<-c.Broken()
					if next {
						if err := c.Barrier(ctx); !errors.Is(err, comm.ErrMismatch) {
							t.Errorf("the next operation: %v", err)
						}
						return c.Finalize(ctx)
					}
					if err := c.Finalize(ctx); !errors.Is(err, comm.ErrMismatch) {
						t.Errorf("Finalize: %v", err)
					}
					return nil
				})
			})
		}
	}
}

// TestLeavingPartOfAWorld finalizes a part of a world on one rank: those that wait for its messages learn so
// at once, though the fabric lives on.
func TestLeavingPartOfAWorld(t *testing.T) {
	for _, fabric := range []string{"mem", "shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			comms := over(fabric)(t, 3)
			var first sync.WaitGroup // a rank that's in the second operation breaks the communicator for those that aren't yet
			first.Add(len(comms))
			each(t, comms, func(ctx context.Context, c *comm.Comm) error {
				through := sync.OnceFunc(first.Done)
				defer through()
				part, err := c.Split(ctx, []int{0, 1, 2})
				if err != nil {
					return err
				}
				defer part.Finalize(ctx)
				ring := comm.Algorithm("ring") // by messages, also where memory is shared
				if err := part.AllReduce(ctx, zeros(3000), comm.Sum, ring); err != nil {
					return err
				}
				if through(); c.Rank() == 1 {
					return part.Finalize(ctx)
				}
				first.Wait()
				err = part.AllReduce(ctx, zeros(3000), comm.Sum, ring, comm.Timeout(25*time.Second))
				var lost *comm.PeerLostError
				if !errors.As(err, &lost) || lost.Peer != 1 || !strings.Contains(lost.Cause, "finalized") {
					return fmt.Errorf("rank 1 has left, and an operation gives %v", err)
				}
				// A rank that learns before its call refuses that, which has no number then.
				if lost.Op != "all_reduce" || lost.Seq == 2 && (len(lost.Arrived) == 0 ||
					!slices.Contains(slices.Concat(lost.Missing, lost.Unknown), 1)) {
					return fmt.Errorf("it does not say all: %+v", lost)
				}
				return nil
			})
			each(t, comms, func(ctx context.Context, c *comm.Comm) error { return c.Barrier(ctx) })
			finalize(t, comms)
		})
	}
}

// TestReceiveFromAnyNamesTheFirstToLeave has rank 0 leave a world. Rank 1 then closes everything, before rank 0 itself
// does. Rank 2 waits for a message from any rank of another communicator, in which rank 0 is rank 2: its error names
// that rank.
func TestReceiveFromAnyNamesTheFirstToLeave(t *testing.T) {
	for _, fabric := range []string{"mem", "shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			t.Parallel() // it takes a second, in which nothing is done
			comms := over(fabric)(t, 3)
			closed := make(chan struct{})
			each(t, comms, func(ctx context.Context, c *comm.Comm) error {
				part, err := c.Split(ctx, []int{2, 1, 0})
				if err != nil {
					return err
				}
				defer part.Finalize(ctx)
				switch c.Rank() {
				case 2:
					err = part.Recv(ctx, zeros(4), comm.AnySource)
					var lost *comm.PeerLostError
					if !errors.As(err, &lost) || lost.Peer != 2 {
						return fmt.Errorf("the error of the receive is %w, which should name rank 2 of it", err)
					}
					c.Finalize(ctx)
					return nil
				case 0:
					if err := c.Finalize(ctx); err != nil {
						return err
					}
					<-closed
					return part.Finalize(ctx)
				default:
					defer close(closed)
					if err := c.Barrier(ctx); !errors.Is(err, comm.ErrPeerLost) {
						return fmt.Errorf("the barrier's error is %w", err)
					}
					c.Finalize(ctx)
					return part.Finalize(ctx)
				}
			})
		})
	}
}
