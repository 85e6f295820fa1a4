package native

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/fabric"
)

// Split implements backend.Backend. Every rank learns every rank's list, so that
// all of them come to the same verdict.
func (g *group) Split(ctx context.Context, name string, ranks []int, timeout time.Duration,
	hints map[string]string) (backend.Backend, error) {
	s := g.settings
	if len(hints) > 0 {
		own, err := parseHints(hints)
		if err != nil {
			return nil, g.refuseSplit(err.Error())
		}
		if own.fabric != "" || own.host != "" || own.calibration != "" || len(own.fabricOptions) > 0 {
			return nil, g.refuseSplit("a split shares its parent's fabric and calibration; it takes no hints about them")
		}
		s.algo, s.chunkBytes = own.algo, own.chunkBytes
		if own.stageBytes > 0 {
			s.stageBytes = own.stageBytes
		}
		s.prefer = own.prefer
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	mine := base.Offer{Own: s.stageBytes, List: ranks}
	if len(ranks) > 0 && g.lowest(ranks) == g.Rank {
		mine.ID = g.world.newID()
	}
	offers, seq, err := base.Offers(mine, len(g.Members), backend.Op{Ctx: ctx, Timeout: timeout},
		func(op *backend.Op) error { return g.own(base.ForSplit, op) })
	if err != nil {
		g.notifySplitFailed(ranks, seq, err)
		return nil, err
	}
	if err := g.Agreed(offers); err != nil {
		return nil, err
	}
	if len(ranks) == 0 {
		return nil, nil
	}
	members := make([]int, len(ranks))
	for i, r := range ranks {
		members[i] = g.Members[r]
		s.stageBytes = min(s.stageBytes, max(minStage, offers[r].Own))
	}
	at := g.Where()
	at.Op = "split"
	id := offers[g.lowest(ranks)].ID
	if id == 0 {
		return nil, &backend.InternalError{Where: at,
			Err: errors.New("this world has had all the communicators that it can have")}
	}
	g.addChild(childComm{seq: seq, id: id, ranks: ranks})
	from := &splitOrigin{parent: g, seq: seq, start: start}
	child, err := g.world.newGroup(ctx, id, name, members, s, from)
	if err != nil {
		return nil, from.failure(ctx, err)
	}
	return child, nil
}

func (g *group) refuseSplit(detail string) error {
	at := g.Where()
	at.Op = "split"
	err := &backend.InvalidArgumentError{Where: at, Detail: detail}
	g.Refused(at.Op, err)
	return err
}

// unopened is the error of a rank that couldn't make its part of a new communicator, and has tried since start. rankOf
// gives the ranks of those who make it.
func unopened(ctx context.Context, start time.Time, at backend.Where, rankOf func(peer int) int, err error) error {
	var lost *fabric.PeerError
	var absent *fabric.AbsentError
	var other *peerGaveUpError
	var unable *fabric.UnableError
	late := errors.As(err, &absent) && ctx.Err() == nil // in less time than ctx has
	switch {
	case fabric.Exhausted(err):
		return &backend.InternalError{Where: at, Err: err}
	case errors.As(err, &other):
		n := other.Translated(rankOf)
		if n.Kind == base.Lost && n.Rank == at.Reporter {
			n.Rank = n.By
		}
		return n.Err(at)
	case errors.As(err, &unable):
		return base.LossOf(at, rankOf(unable.Peer), unable)
	case errors.As(err, &lost):
		return base.LossOf(at, rankOf(lost.Peer), lost)
	case late, ctx.Err() == context.DeadlineExceeded:
		e := &backend.TimeoutError{Where: at, Attendance: backend.Attendance{Elapsed: time.Since(start)}}
		if stall, ok := errors.AsType[*stallError](err); ok {
			stall.attend(&e.Attendance, rankOf)
		} else if absent != nil {
			for _, p := range absent.Peers {
				e.Missing = append(e.Missing, rankOf(p))
			}
		}
		return e
	case ctx.Err() != nil:
		return &backend.CanceledError{Where: at, Err: context.Cause(ctx)}
	case errors.Is(err, errors.ErrUnsupported):
		return &backend.UnsupportedError{Where: at, Detail: err.Error()}
	}
	return &backend.InternalError{Where: at, Err: err}
}

// lowest returns the rank of a list that has the lowest fabric rank; it numbers the new communicator.
func (g *group) lowest(ranks []int) int {
	return slices.MinFunc(ranks, func(a, b int) int { return g.Members[a] - g.Members[b] })
}
