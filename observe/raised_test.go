package observe

import (
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/tensor"
)

// TestRaisedWhileEnding has a dump asked for while a program ends that has raised an exception, and has closed its
// communicators by then: what it did last is told all the same.
func TestRaisedWhileEnding(t *testing.T) {
	x := tensor.Of(make([]float32, 8))
	var dumps []*Dump
	for rank := range 2 {
		world := Open(Settings{Entries: 8}, "train", "world", rank, 2)
		op := &backend.Op{Kind: backend.AllReduce, In: x, Out: x}
		id := world.Begin(op, false)
		op.Seq = 1
		world.End(id, op, nil)
		if rank == 0 {
			world.Begin(op, false)
		} else {
			world.rank.raised.Store(&Raised{What: "ValueError", At: Frame{Name: "f", File: "train.py", Line: 1}})
			world.Close()
		}
		dumps = append(dumps, world.rank.Snapshot("request"))
		if rank == 0 {
			world.Close()
		}
	}
	r := Explain(dumps)
	if len(r.Findings) != 1 || r.Findings[0].Kind != KindRaised {
		t.Fatalf("%v", r)
	}
	if p := r.Findings[0].Culprits[0]; !strings.HasPrefix(p.After, "all_reduce #1 ") {
		t.Errorf("after %q: %v", p.After, r)
	}
}
