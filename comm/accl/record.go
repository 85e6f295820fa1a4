package accl

import (
	"fmt"

	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/accl/engine"
	"github.com/chorus-comms/chorus/observe/record"
)

// calls returns the engine's calls for a communicator; those for none are in that of all ranks. An engine in another
// process keeps no records.
func (l *link) calls(comm uint32) []record.EngineCall {
	const ofAll = 1
	if l.engine == nil {
		return nil
	}
	var all []record.EngineCall
	for _, r := range l.engine.Records() {
		of := uint32(ofAll)
		if len(r.Members) > 0 && r.Members[0].Port != 0 { // see communicator
			of = r.Members[0].Port
		}
		if of == comm {
			all = append(all, callOf(&r))
		}
	}
	return all
}

func callOf(r *engine.Record) record.EngineCall {
	c := record.EngineCall{Op: r.Scenario.String(), Count: uint64(r.Count), Status: "active"}
	if !r.Began.IsZero() {
		c.Began = r.Began.UnixNano()
	}
	if r.Done {
		c.Cycles, c.Nanos, c.Status = r.Cycles, int64(max(1, r.Cycles)*abi.CycleNS), "done"
		if r.Status != 0 {
			c.Status = r.Status.Error()
		}
	}
	if w := r.Waits; w != nil {
		c.Since = w.Since.UnixNano()
		switch w.Kind {
		case abi.Eager:
			c.Waits = fmt.Sprintf("segment %d", w.Segment)
		case abi.RendezvousAddress:
			c.Waits = "the address to write to"
		default:
			c.Waits = "the data"
		}
		if w.Rank >= 0 {
			c.Peer = &w.Rank
		}
	}
	return c
}
