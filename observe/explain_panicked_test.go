package observe

import (
	"slices"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/observe/record"
	"github.com/chorus-comms/chorus/tensor"
)

// afterOne is the recorder of a rank of two that has done an all-reduce, and that operation.
func afterOne(rank int) (*record.Recorder, *backend.Op) {
	x := tensor.Of(make([]float32, 8))
	r := record.Open(record.Settings{Entries: 8}, "train", "world", rank, 2)
	op := &backend.Op{Kind: backend.AllReduce, In: x, Out: x}
	id := r.Begin(op, false)
	op.Seq = 1
	r.End(id, op, nil)
	return r, op
}

// TestPanickedLongBefore has a rank panic. Its record is older than the wait of the other rank, which doesn't know of
// the panic: the panicked rank is the culprit all the same, because it has ended.
func TestPanickedLongBefore(t *testing.T) {
	var dumps []*Dump
	for rank := range 2 {
		r, op := afterOne(rank)
		if rank == 0 {
			r.Begin(op, false)
		}
		d := r.Rank().Snapshot("request")
		if rank == 1 {
			d.Chorus.Panics = true
			d.Chorus.Time -= int64(time.Hour)
		}
		dumps = append(dumps, d)
		r.Close()
	}
	if r := Explain(dumps); len(r.Findings) != 1 || r.Findings[0].Kind != KindPanicked ||
		!slices.Equal(r.Findings[0].Ranks, []int{1}) || r.Findings[0].Seq != 2 {
		t.Errorf("%v", r)
	}
	dumps[1].Chorus.Panics = false // now it may have gone on
	if r := Explain(dumps); len(r.Findings) != 0 {
		t.Errorf("%v", r)
	}
}
