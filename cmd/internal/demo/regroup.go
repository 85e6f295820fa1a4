package demo

import (
	"errors"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/tensor"
)

// Lost says how a run went on without a rank.
type Lost struct {
	Ranks   int     `json:"ranks_left"`
	Step    int     `json:"step"` // from which the others went on
	Steps   int     `json:"steps"`
	Seconds float64 `json:"regroup_seconds"` // from the error to the next step
	Error   string  `json:"error"`           // that told of it
}

// resume makes a communicator of the ranks that are left after an operation has failed with cause, and brings them to
// the same state. Nothing else has to change: a batch is divided among the ranks that there are, so that its mean is
// the same.
func (t *trainer) resume(cause error) error {
	if !t.cfg.Regroup || !errors.Is(cause, comm.ErrPeerLost) {
		return cause
	}
	start := time.Now()
	if t.c.Stream() != nil { // the error is the stream's, too
		s, err := t.paramsT.On().CurrentStream(t.ctx)
		if err != nil {
			return err
		}
		_ = s.Recover(t.ctx) // it's cause
	}
	c, err := t.c.Regroup(t.ctx)
	if err != nil {
		return errors.Join(cause, err)
	}
	t.c = c
	if err := t.align(); err != nil {
		if errors.Is(err, comm.ErrPeerLost) { // another one
			return t.resume(err)
		}
		return err
	}
	t.lost = &Lost{Ranks: c.Size(), Step: t.done, Steps: t.cfg.Epochs * t.perEpoch(), Seconds: time.Since(start).Seconds(),
		Error: cause.Error()}
	return nil
}

// align gives all ranks the state of the one that has come furthest: of the step in which a rank died some may
// have had the result, and taken it, and others not.
func (t *trainer) align() error {
	mine := []float64{float64(t.last.Epoch), float64(t.done), t.sum, t.last.Loss, t.last.Accuracy, t.last.Speed}
	all := make([]float64, len(mine)*t.c.Size())
	if err := t.c.AllGatherSingle(t.ctx, tensor.Of(all), tensor.Of(mine)); err != nil {
		return err
	}
	first := 0
	for r := range t.c.Size() {
		if of, best := all[r*len(mine):], all[first*len(mine):]; of[0] > best[0] || of[0] == best[0] && of[1] > best[1] {
			first = r
		}
	}
	state := all[first*len(mine):]
	t.last.Epoch, t.done, t.sum = int(state[0]), int(state[1]), state[2]
	t.last.Loss, t.last.Accuracy, t.last.Speed = state[3], state[4], state[5]
	if err := t.c.Broadcast(t.ctx, t.paramsT, first); err != nil {
		return err
	}
	return errors.Join(t.c.Broadcast(t.ctx, tensor.Of(t.momentum), first), t.agree())
}
