package base

import (
	"fmt"
	"slices"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/internal/wire"
	"github.com/chorus-comms/chorus/tensor"
)

// Offer is what a rank brings into a split.
type Offer struct {
	ID   uint32 // the new communicator's number, if this rank is to give it one
	Own  int    // the backend's
	List []int  // what it passed; has the rank itself, unless it's empty
}

// A summary stands for the list of an offer.
type summary struct{ length, hash int64 }

func (o *Offer) summary() summary { return summary{int64(len(o.List)), int64(wire.HashInts(o.List))} }

// Offers gives every rank's offer to every one of n ranks. run carries out an operation of the communicator's own.
//
// The lists of a large world are larger than all else that a split moves, and mostly agree. So ranks compare summaries,
// and offers have their lists only if some don't agree, for Agreed to name them.
func Offers(mine Offer, n int, op backend.Op, run func(op *backend.Op) error) (offers []Offer, seq uint64, err error) {
	its := mine.summary()
	heads, seq, err := gather([]int64{int64(mine.ID), int64(mine.Own), its.length, its.hash}, n, op, run)
	if err != nil {
		return nil, seq, err
	}
	offers, summaries := make([]Offer, n), make([]summary, n)
	for r, head := range heads {
		offers[r], summaries[r] = Offer{ID: uint32(head[0]), Own: int(head[1])}, summary{head[2], head[3]}
	}
	if agree(summaries) {
		return offers, seq, nil
	}
	row := make([]int64, 1+n)
	row[0] = its.length
	for i, r := range mine.List {
		row[1+i] = int64(r)
	}
	lists, second, err := gather(row, n, op, run)
	if err != nil {
		return nil, second, err
	}
	for r, row := range lists {
		for _, x := range row[1 : 1+min(max(int(row[0]), 0), n)] {
			offers[r].List = append(offers[r].List, int(x))
		}
	}
	return offers, seq, nil
}

// gather gives every rank's row to every one of n ranks.
func gather(row []int64, n int, op backend.Op, run func(op *backend.Op) error) (rows [][]int64, seq uint64, err error) {
	all := make([]int64, n*len(row))
	op.Kind, op.In, op.Out = backend.AllGatherSingle, tensor.Of(row), tensor.Of(all)
	if err := run(&op); err != nil {
		return nil, op.Seq, err
	}
	return slices.Collect(slices.Chunk(all, len(row))), op.Seq, nil
}

// agree reports whether each list was passed by as many ranks as it has. These are the ranks in it, since each stands
// in its own list.
func agree(summaries []summary) bool {
	passed := map[summary]int64{}
	for _, s := range summaries {
		passed[s]++
	}
	for s, n := range passed {
		if s.length > 0 && s.length != n {
			return false
		}
	}
	return true
}

// Agreed demands that every listed rank passed the very list that it stands in. Every rank comes to the same verdict.
func (l *Life) Agreed(offers []Offer) error {
	summaries := make([]summary, len(offers))
	for r := range offers {
		summaries[r] = offers[r].summary()
	}
	if agree(summaries) {
		return nil
	}
	for r, o := range offers {
		for _, m := range o.List {
			if m < 0 || m >= len(offers) || !slices.Equal(offers[m].List, o.List) {
				e := &backend.MismatchError{Where: l.In("split"), RankA: r, RankB: m,
					OpA: fmt.Sprintf("split%v", o.List), OpB: "split of an invalid rank"}
				if m >= 0 && m < len(offers) {
					e.OpB = fmt.Sprintf("split%v", offers[m].List)
				}
				return e
			}
		}
	}
	return nil
}
