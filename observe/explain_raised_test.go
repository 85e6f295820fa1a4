package observe

import (
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/observe/record"
)

// TestRaisedWhileEnding has a dump asked for while a program ends that has raised an exception, and has closed its
// communicators by then: its last operation is reported all the same.
func TestRaisedWhileEnding(t *testing.T) {
	var dumps []*Dump
	for rank := range 2 {
		world, op := afterOne(rank)
		if rank == 0 {
			world.Begin(op, false)
		} else {
			record.Raise(record.Raised{What: "ValueError", At: Frame{Name: "f", File: "train.py", Line: 1}})
			world.Close()
		}
		dumps = append(dumps, world.Rank().Snapshot("request"))
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
