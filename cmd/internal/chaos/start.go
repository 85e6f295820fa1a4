package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/internal/wire"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// mostTries bounds the tries of a start: five until all ranks are there, one that is about to end when the last of them
// comes, and two more.
const mostTries = 8

// How a retried start fails first.
const (
	startLate     = iota // the culprit comes when the others have given up
	startCanceled        // the culprit gives up in the middle, and tries again at once
	startTwice           // it does so twice
	startWays
)

// retried makes the world's communicator of a program whose start fails on some rank, and is tried again under the same
// name on the same store. A start has succeeded when a barrier has.
func (r *rank) retried(join func(ctx context.Context, more ...comm.NewOption) (*comm.Comm, error)) (c *comm.Comm,
	err error) {
	f := r.p.Fault
	if r.in.culprit() {
		r.in.fire()
		if f.Wrong%startWays == startLate {
			time.Sleep(f.Delay)
		}
	}
	for try := range mostTries {
		ctx, cancel := context.WithCancel(context.Background())
		if r.in.culprit() && try < f.Wrong%startWays {
			time.AfterFunc(f.Delay/time.Duration(try+1), cancel)
		}
		c, err = join(ctx, comm.WithNameAgain())
		cancel()
		if err == nil { // but others may not have got as far
			if err = c.Barrier(context.Background()); err == nil {
				return c, nil
			}
			end, cancel := context.WithTimeout(context.Background(), finalizing)
			_ = c.Finalize(end)
			cancel()
		}
	}
	return nil, fmt.Errorf("%d tries to join failed: %w", mostTries, err)
}

// crossing adds a step in which two parts of the world make a communicator each at one place, of as many ranks each.
func (m *maker) crossing() {
	p := &m.p
	f := &p.Fault
	f.Rank = -1
	ranks := m.Perm(p.Size)
	n := 1 + m.IntN(p.Size/2)
	cross := step{Do: cross, Groups: [2][]int{ranks[:n], ranks[n : 2*n]}}
	p.Steps = append(p.Steps[:f.Step:f.Step], append([]step{cross}, p.Steps[f.Step:]...)...)
}

// cross makes this rank's communicator of the two, which has the right members or is refused with both lists.
func (r *rank) cross(s *step) error {
	mine := s.Groups[0]
	if indexOf(mine, r.rank) < 0 {
		mine = s.Groups[1]
	}
	me := indexOf(mine, r.rank)
	if me < 0 {
		return nil
	}
	r.in.fire()
	ctx := context.Background()
	c, err := comm.New(ctx, comm.WithName("crossed"), comm.WithNameAgain(),
		comm.WithStore(store.NewPrefix(r.in.rendezvous.name+"/crossed", r.in.rendezvous.store)), comm.WithRank(me, len(mine)),
		comm.WithJobRanks(mine, r.p.Size), comm.WithFabric(r.p.Fabric), comm.WithHints(r.hints),
		comm.WithTimeout(r.p.Patient), comm.WithAbortOnError(false))
	if errors.Is(err, comm.ErrMismatch) {
		for _, g := range s.Groups {
			if list := "ranks " + listed(g) + " of the job"; !strings.Contains(err.Error(), list) {
				return &wrongError{fmt.Sprintf("a mismatch that doesn't name %s: %v", list, err)}
			}
		}
		return nil
	}
	if err != nil {
		return err
	}
	sum := []int64{1 << r.rank}
	want := int64(0)
	for _, q := range mine {
		want |= 1 << q
	}
	if err := c.AllReduce(ctx, tensor.Of(sum), comm.Sum); err != nil {
		return err
	}
	if err := c.Finalize(ctx); err != nil {
		return err
	}
	if sum[0] != want {
		return &wrongError{fmt.Sprintf("ranks %#x are in a communicator of %#x", sum[0], want)}
	}
	return nil
}

// listed writes a group as the library does.
func listed(group []int) string {
	for i := 1; i < len(group); i++ {
		if group[i] < group[i-1] {
			return strings.ReplaceAll(strings.Trim(fmt.Sprint(group), "[]"), " ", ", ")
		}
	}
	return wire.RankList(group)
}
