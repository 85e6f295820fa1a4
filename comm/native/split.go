package native

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/tensor"
)

// Split implements backend.Backend. Every rank learns every rank's list, so that
// all of them come to the same verdict.
func (g *group) Split(ctx context.Context, name string, ranks []int, timeout time.Duration, hints map[string]string) (backend.Backend, error) {
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
	offers, seq, err := g.exchangeOffers(ctx, ranks, s.stageBytes, timeout)
	if err != nil {
		g.tellUnsplit(ranks, seq, err)
		return nil, err
	}
	if err := g.checkLists(offers); err != nil {
		return nil, err
	}
	if len(ranks) == 0 {
		return nil, nil
	}
	members := make([]int, len(ranks))
	for i, r := range ranks {
		members[i] = g.members[r]
		s.stageBytes = min(s.stageBytes, offers[r].stage)
	}
	at := g.Where()
	at.Op = "split"
	id := offers[g.lowest(ranks)].id
	if id == 0 {
		return nil, &backend.InternalError{Where: at, Err: errors.New("this world has had all the communicators that it can have")}
	}
	g.splitOff(offspring{seq: seq, id: id, ranks: ranks})
	child, err := g.world.newGroup(ctx, id, name, members, s)
	if err != nil {
		return nil, unopened(ctx, start, at, g.rankOf, err)
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
	var other *gaveUpError
	var unable *fabric.UnableError
	switch {
	case fabric.Exhausted(err):
		return &backend.InternalError{Where: at, Err: err}
	case errors.As(err, &other):
		n := other.Translated(rankOf)
		if n.Kind == base.Lost && n.Rank == at.Rank {
			n.Rank = n.By
		}
		return n.Err(at)
	case errors.As(err, &unable):
		return base.LossOf(at, rankOf(unable.Peer), unable)
	case errors.As(err, &lost):
		return base.LossOf(at, rankOf(lost.Peer), lost)
	case ctx.Err() == context.DeadlineExceeded:
		e := &backend.TimeoutError{Where: at, Attendance: backend.Attendance{Elapsed: time.Since(start)}}
		if errors.As(err, &absent) {
			for _, p := range absent.Peers {
				e.Missing = append(e.Missing, rankOf(p))
			}
		}
		return e
	case ctx.Err() != nil:
		return &backend.CanceledError{Where: at, Err: context.Cause(ctx)}
	}
	return &backend.InternalError{Where: at, Err: err}
}

// lowest returns the rank of a list that has the lowest fabric rank; it numbers the new communicator.
func (g *group) lowest(ranks []int) int {
	return slices.MinFunc(ranks, func(a, b int) int { return g.members[a] - g.members[b] })
}

// offer is what a rank brings into a split.
type offer struct {
	id    uint32 // of the new communicator, if this rank is to number it
	stage int    // bytes of stage that it can have
	list  []int  // what it passed
}

// exchangeOffers gathers every rank's offer, in an operation whose number it returns.
func (g *group) exchangeOffers(ctx context.Context, ranks []int, stage int, timeout time.Duration) (offers []offer, seq uint64, err error) {
	const head = 3
	n := len(g.members)
	width := head + n
	mine, all := make([]int64, width), make([]int64, width*n)
	if len(ranks) > 0 && g.lowest(ranks) == g.rank {
		mine[0] = int64(g.world.newID())
	}
	mine[1], mine[2] = int64(stage), int64(len(ranks))
	for i, r := range ranks {
		mine[head+i] = int64(r)
	}
	op := &backend.Op{Kind: backend.AllGatherSingle, In: tensor.Of(mine), Out: tensor.Of(all), Ctx: ctx, Timeout: timeout}
	if err := g.own(forSplit, op); err != nil {
		return nil, op.Seq, err
	}
	offers = make([]offer, n)
	for r := range offers {
		row := all[r*width : (r+1)*width]
		o := offer{id: uint32(row[0]), stage: max(minStage, int(row[1]))}
		for _, x := range row[head : head+min(max(int(row[2]), 0), n)] {
			o.list = append(o.list, int(x))
		}
		offers[r] = o
	}
	return offers, op.Seq, nil
}

// checkLists demands that every listed rank passed the very list that it stands in.
func (g *group) checkLists(offers []offer) error {
	for r, o := range offers {
		for _, m := range o.list {
			if m < 0 || m >= len(offers) || !slices.Equal(offers[m].list, o.list) {
				e := &backend.MismatchError{Where: g.Where(), RankA: r, RankB: m, OpA: fmt.Sprintf("split%v", o.list), OpB: "split of an invalid rank"}
				if m >= 0 && m < len(offers) {
					e.OpB = fmt.Sprintf("split%v", offers[m].list)
				}
				e.Op = "split"
				return e
			}
		}
	}
	return nil
}
