package base

import (
	"fmt"
	"slices"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/tensor"
)

// Offer is what a rank brings into a split.
type Offer struct {
	ID   uint32 // the new communicator's number, if this rank is to give it one
	Own  int    // the backend's
	List []int  // what it passed
}

// Offers gives every rank's offer to every one of n ranks. run carries out an operation of the communicator's own.
func Offers(mine Offer, n int, op backend.Op, run func(op *backend.Op) error) (offers []Offer, seq uint64, err error) {
	const head = 3
	width := head + n
	row, all := make([]int64, width), make([]int64, width*n)
	row[0], row[1], row[2] = int64(mine.ID), int64(mine.Own), int64(len(mine.List))
	for i, r := range mine.List {
		row[head+i] = int64(r)
	}
	op.Kind, op.In, op.Out = backend.AllGatherSingle, tensor.Of(row), tensor.Of(all)
	if err := run(&op); err != nil {
		return nil, op.Seq, err
	}
	offers = make([]Offer, n)
	for r := range offers {
		row := all[r*width : (r+1)*width]
		o := Offer{ID: uint32(row[0]), Own: int(row[1])}
		for _, x := range row[head : head+min(max(int(row[2]), 0), n)] {
			o.List = append(o.List, int(x))
		}
		offers[r] = o
	}
	return offers, op.Seq, nil
}

// Agreed demands that every listed rank passed the very list that it stands in. Every rank comes to the same verdict.
func (l *Life) Agreed(offers []Offer) error {
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
