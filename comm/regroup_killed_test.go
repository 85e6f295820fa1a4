package comm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
)

func init() {
	programs["regroup"] = func() error { return regroupRank(false) }
	programs["regroup on device"] = func() error { return regroupRank(true) }
}

// A death is where a rank is killed: at a step of its attempt to make a new world, or some time after it has begun
// Regroup.
type death struct {
	Rank  int // in the first world
	Step  int // counted from 1; 0: at After
	After time.Duration
}

// regroupRank lives through the deaths of a job's ranks, its own excepted. Before each, a rank that's already marked
// for it dies in an operation, so that the others begin to regroup; and in that the next rank dies.
func regroupRank(onDevice bool) error {
	var deaths []death
	if err := json.Unmarshal([]byte(os.Getenv("CHORUS_TEST_DEATHS")), &deaths); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var opts []comm.NewOption
	if onDevice {
		opts = append(opts, comm.WithDevice("accinte"))
	}
	c, err := join(ctx, opts...)
	if err != nil {
		return err
	}
	// All are there before the first one dies.
	if err := c.Barrier(ctx); err != nil && !errors.Is(err, comm.ErrPeerLost) {
		return err
	}
	if onDevice {
		s, err := c.Stream().Device().CurrentStream(ctx)
		if err != nil {
			return err
		}
		if err := s.Synchronize(ctx); err != nil && (!errors.Is(err, comm.ErrPeerLost) || !errors.Is(s.Recover(ctx),
			comm.ErrPeerLost)) {
			return err
		}
	}
	me, size := c.Rank(), c.Size()
	die := func() { syscall.Kill(os.Getpid(), syscall.SIGKILL) }
	var steps atomic.Int64 // until death
	comm.SetAtRegroup(func(string) {
		if steps.Add(-1) == 0 {
			die()
		}
	})
	for i, d := range deaths {
		size--
		for first := true; ; first = false {
			if me == d.Rank {
				if i == 0 && first || !first {
					die() // in the middle of the others' operation
				}
				steps.Store(int64(d.Step))
				if d.Step == 0 {
					time.AfterFunc(d.After, die)
				}
			}
			if i == 0 || !first {
				if err := untilBroken(ctx, c, onDevice); err != nil {
					return err
				}
			}
			next, err := c.Regroup(ctx)
			if err != nil {
				return fmt.Errorf("death %d, of %d: %w", i, d.Rank, err)
			}
			c = next
			// It may have died when all were ready, and so may the next one, whose turn has begun.
			if err := sums(ctx, c); err != nil && !errors.Is(err, comm.ErrPeerLost) {
				return fmt.Errorf("after death %d: %w", i, err)
			}
			if c.Size() <= size {
				break
			}
		}
	}
	if err := sums(ctx, c); err != nil {
		return err
	}
	fmt.Printf("survived as %d of %d\n", c.Rank(), c.Size())
	return errors.Join(c.Barrier(ctx), c.Finalize(ctx))
}

// untilBroken uses a communicator until a rank of it dies, which must be what its operations say. On a device other
// streams' work waits for the dead rank's, too; the failure sticks to them.
func untilBroken(ctx context.Context, c *comm.Comm, onDevice bool) error {
	if !onDevice {
		for {
			if err := c.Barrier(ctx); err != nil {
				if !errors.Is(err, comm.ErrPeerLost) {
					return fmt.Errorf("not a *PeerLostError: %w", err)
				}
				return nil
			}
		}
	}
	s, err := c.Stream().Device().NewStream(device.Normal)
	if err != nil {
		return err
	}
	defer s.Close()
	ctx = device.WithStream(ctx, s)
	x, err := c.Zeros(dtype.Float32, 1000)
	if err != nil {
		return err
	}
	for {
		var w comm.Work
		issued := c.AllReduce(ctx, x, comm.Max, comm.Async(&w))
		if issued == nil {
			issued = errors.Join(c.AllReduce(ctx, x, comm.Max), w.Wait(ctx))
		}
		if issued != nil && !errors.Is(issued, comm.ErrPeerLost) {
			return fmt.Errorf("not a *PeerLostError: %w", issued)
		}
		failed := s.Synchronize(ctx)
		if failed == nil && issued == nil {
			continue
		}
		if failed != nil {
			if again := s.Recover(ctx); !errors.Is(failed, comm.ErrPeerLost) || !errors.Is(again, comm.ErrPeerLost) {
				return fmt.Errorf("the stream failed with %w, and then with %w", failed, again)
			}
		}
		return s.Synchronize(ctx) // it runs work again
	}
}

// deathsJob runs a job of six ranks in which all but two die, one after the other, each at a random step of an attempt
// or within a time after its beginning. It returns what a survivor has said.
func deathsJob(t *testing.T, program, fabric string, within time.Duration, r *rand.Rand) (said string) {
	t.Helper()
	const n, left = 6, 2
	deaths := make([]death, n-left)
	for i, rank := range r.Perm(n)[:n-left] {
		deaths[i] = death{Rank: rank, Step: 1 + r.IntN(9)}
		if r.IntN(2) == 0 {
			deaths[i] = death{Rank: rank, After: time.Duration(r.IntN(int(within/time.Microsecond))) * time.Microsecond}
		}
	}
	plan, err := json.Marshal(deaths)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("CHORUS_TEST_DEATHS", string(plan))
	cmds, outs := start(t, program, fabric, n)
	dies := map[int]bool{}
	for _, d := range deaths {
		dies[d.Rank] = true
	}
	survived := 0
	for rank, cmd := range cmds {
		err := cmd.Wait()
		if dies[rank] {
			if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
				t.Errorf("%s: rank %d, which was to be killed, ended with %v:\n%s", plan, rank, err, outs[rank])
			}
			continue
		}
		if err != nil || !strings.Contains(outs[rank].String(), fmt.Sprintf("survived as %d of %d", survived, left)) {
			t.Errorf("%s: rank %d: %v\n%s", plan, rank, err, outs[rank])
		}
		said = outs[rank].String()
		survived++
	}
	return said
}

// regroupWithin is how long an attempt of Regroup takes.
const regroupWithin = 6 * time.Millisecond

// Ranks of real processes are killed at random points of Regroup, and their survivors try again, until two are left.
// The first death of each job is in an operation; the others are in an attempt. CHORUS_TEST_LONG=1 makes 201 of these.
func TestKilledInRegroup(t *testing.T) {
	jobs := testutil.Pick(1, 4)
	if os.Getenv("CHORUS_TEST_LONG") != "" {
		jobs = 67
	}
	for job := range jobs {
		r := rand.New(rand.NewPCG(11, uint64(job)))
		fabric := []string{"shm", "tcp", "auto"}[job%3]
		t.Run(fmt.Sprintf("%d/%s", job, fabric), func(t *testing.T) { deathsJob(t, "regroup", fabric, regroupWithin, r) })
	}
}

// The same of ranks whose operations are on streams of devices.
func TestKilledInRegroupOnDevices(t *testing.T) {
	deathsJob(t, "regroup on device", "shm", regroupWithin, rand.New(rand.NewPCG(13, 14)))
}
