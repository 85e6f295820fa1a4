package comm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/store"
)

func init() { programs["reconfigure"] = reconfigureRank }

// A reconfigurer is a rank that lives through the deaths of others in Reconfigure. Ranks know each other by their ranks
// in the first world, and exchange their handles and results through the test's store.
type reconfigurer struct {
	c     *comm.Comm
	st    store.Store
	me    int
	alive []int // in the order of the world's ranks
}

// reconfigureRank goes through an attempt for each death: in it that rank dies, or at the latest when it has succeeded.
// Either all others succeed or all fail, for that rank; and they try again without it, which succeeds.
func reconfigureRank() error {
	var deaths []death
	if err := json.Unmarshal([]byte(os.Getenv("CHORUS_TEST_DEATHS")), &deaths); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	st, err := store.DialTCP(ctx, os.Getenv("CHORUS_TEST_STORE"), store.TCPOptions{})
	if err != nil {
		return err
	}
	defer st.Close()
	var steps atomic.Int64 // until death
	die := func() { syscall.Kill(os.Getpid(), syscall.SIGKILL) }
	comm.SetAtRegroup(func(string) {
		if steps.Add(-1) == 0 {
			die()
		}
	})
	c, err := join(ctx)
	if err != nil {
		return err
	}
	r := &reconfigurer{c: c, st: st, me: c.Rank()}
	for rank := range c.Size() {
		r.alive = append(r.alive, rank)
	}
	if err := r.publish(ctx, "start"); err != nil {
		return err
	}
	if _, err := r.handles(ctx, "start"); err != nil { // no rank dies while another one is in New
		return err
	}
	world := "start" // whose handles are the newest
	for i, d := range deaths {
		slices.Reverse(r.alive) // so that any rank leads
		if r.me == d.Rank {
			if steps.Store(int64(d.Step)); d.Step == 0 {
				time.AfterFunc(d.After, die)
			}
		}
		uuid := fmt.Sprintf("%d-first", i)
		failed := r.attempt(ctx, uuid, world)
		if r.me == d.Rank {
			die() // if it hasn't yet
		}
		at := slices.Index(r.alive, d.Rank)
		r.alive = slices.DeleteFunc(slices.Clone(r.alive), func(rank int) bool { return rank == d.Rank })
		if err := r.alike(ctx, uuid, failed); err != nil {
			return err
		}
		if failed != nil {
			re, ok := errors.AsType[*comm.ReconfigureError](failed)
			if !ok || !errors.Is(failed, comm.ErrPeerLost) || !slices.Equal(re.Members, []int{at}) {
				return fmt.Errorf("member %d of %s has died: %w", at, uuid, failed)
			}
		} else {
			world = uuid
			if err := r.publish(ctx, world); err != nil {
				return err
			}
		}
		// Whether the world is the old one or the new one, it has lost that rank.
		if err := sums(ctx, r.c); !errors.Is(err, comm.ErrPeerLost) {
			return fmt.Errorf("after %s, which ended with %v: not a *PeerLostError: %w", uuid, failed, err)
		}
		uuid = fmt.Sprintf("%d-again", i)
		if err := r.attempt(ctx, uuid, world); err != nil {
			return err
		}
		world = uuid
		if err := r.publish(ctx, world); err != nil {
			return err
		}
		if err := sums(ctx, r.c); err != nil {
			return fmt.Errorf("after %s: %w", uuid, err)
		}
		if err := r.alike(ctx, uuid, nil); err != nil { // all have finished it before the next one dies
			return err
		}
		fmt.Printf("death %d: failed %t\n", i, failed != nil)
	}
	fmt.Printf("survived as %d of %d\n", r.c.Rank(), r.c.Size())
	return errors.Join(r.c.Barrier(ctx), r.c.Finalize(ctx))
}

// publish tells the others this rank's handle in a world.
func (r *reconfigurer) publish(ctx context.Context, world string) error {
	h, err := r.c.Handle()
	if err != nil {
		return err
	}
	return r.st.Set(ctx, fmt.Sprintf("handle/%s/%d", world, r.me), []byte(h))
}

// handles waits for the handles in a world of those that are taken to be alive.
func (r *reconfigurer) handles(ctx context.Context, world string) (all []string, err error) {
	for _, rank := range r.alive {
		h, err := r.st.Get(ctx, fmt.Sprintf("handle/%s/%d", world, rank))
		if err != nil {
			return nil, err
		}
		all = append(all, string(h))
	}
	return all, nil
}

// attempt reconfigures with those that are taken to be alive, by their handles in a world.
func (r *reconfigurer) attempt(ctx context.Context, uuid, world string) error {
	handles, err := r.handles(ctx, world)
	if err != nil {
		return err
	}
	next, err := r.c.Reconfigure(ctx, uuid, handles)
	if err != nil {
		return err
	}
	r.c = next
	return nil
}

// alike fails unless an attempt ended for this rank as it did for the others that are alive.
func (r *reconfigurer) alike(ctx context.Context, uuid string, failed error) error {
	if err := r.st.Set(ctx, fmt.Sprintf("result/%s/%d", uuid, r.me), []byte(fmt.Sprint(failed == nil))); err != nil {
		return err
	}
	for _, rank := range r.alive {
		if got, err := r.st.Get(ctx, fmt.Sprintf("result/%s/%d", uuid, rank)); err != nil ||
			string(got) != fmt.Sprint(failed == nil) {
			return fmt.Errorf("attempt %s ended with %v; for rank %d it's %s that it succeeded: %w", uuid, failed, rank, got,
				err)
		}
	}
	return nil
}

// Ranks of real processes are killed at random points of Reconfigure: the others agree about its result, name them, and
// succeed without them. CHORUS_TEST_LONG=1 makes 200 of these.
func TestKilledInReconfigure(t *testing.T) {
	jobs := testutil.Pick(1, 3)
	if os.Getenv("CHORUS_TEST_LONG") != "" {
		jobs = 50
	}
	attempts, failed := 0, 0
	for job := range jobs {
		r := rand.New(rand.NewPCG(17, uint64(job)))
		fabric := []string{"shm", "tcp", "auto"}[job%3]
		t.Run(fmt.Sprintf("%d/%s", job, fabric), func(t *testing.T) {
			out := deathsJob(t, "reconfigure", fabric, 12*time.Millisecond, r)
			attempts += strings.Count(out, "failed ")
			failed += strings.Count(out, "failed true")
		})
	}
	t.Logf("%d kills, %d of them before the new world had come about", attempts, failed)
}
