// Package fake is a backend whose operations succeed at once and move nothing:
// for tests of programs that use a communicator, at any rank and world size.
//
//	import _ "github.com/chorus-comms/chorus/comm/fake"
//
//	st := store.NewHash(time.Minute) // where nobody else comes
//	c, err := comm.New(ctx, comm.WithBackend("fake"), comm.WithRank(3, 1024), comm.WithStore(st))
//
// Where the ranks would all pass the same, the results are what a real backend
// would leave: a world of one copies inputs to outputs. In larger worlds outputs
// keep what they hold.
package fake

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/fabric"
)

// Name is the name under which the backend is registered.
const Name = "fake"

func init() { backend.Register(Name, open) }

func open(_ context.Context, c backend.Config) (backend.Backend, error) {
	return &comm{name: c.Name, rank: c.Rank, size: c.Size, abort: fabric.NewAbort()}, nil
}

type comm struct {
	name       string
	rank, size int
	seq        atomic.Uint64
	abort      *fabric.Abort
}

func (c *comm) Capabilities() backend.Capabilities {
	return backend.Capabilities{Name: Name, Abort: true, AnySource: true, Tags: true, InProcess: true, NoOp: true}
}

func (c *comm) where(op *backend.Op) backend.Where {
	return backend.Where{Comm: c.name, Rank: c.rank, Op: op.Kind.String(), Seq: op.Seq}
}

func (c *comm) Submit(op *backend.Op) error {
	if cause := c.abort.Cause(); cause != nil {
		return cause
	}
	if err := op.Ctx.Err(); err != nil {
		return &backend.AbortedError{Where: c.where(op), By: c.rank, Reason: err.Error()}
	}
	op.Algorithm = Name
	op.From = op.Peer
	if op.Kind.PointToPoint() {
		return nil
	}
	op.Seq = c.seq.Add(1)
	if c.size > 1 {
		return nil
	}
	in, out := op.In, op.Out
	if in == nil && len(op.Ins) > 0 {
		in = op.Ins[0]
	}
	if out == nil && len(op.Outs) > 0 {
		out = op.Outs[0]
	}
	if in != nil && out != nil && in != out && in.NumEl() == out.NumEl() {
		return out.CopyFrom(in)
	}
	return nil
}

func (c *comm) Wait(*backend.Op) error { return nil }

func (c *comm) Split(_ context.Context, name string, group []int, _ time.Duration, _ map[string]string) (backend.Backend, error) {
	for r, m := range group {
		if m == c.rank {
			return &comm{name: name, rank: r, size: len(group), abort: fabric.NewAbort()}, nil
		}
	}
	return nil, nil
}

func (c *comm) Abort(cause error) {
	c.abort.Raise(&backend.AbortedError{Where: backend.Where{Comm: c.name, Rank: c.rank}, By: c.rank, Reason: cause.Error()})
}

func (c *comm) Broken() <-chan struct{} { return c.abort.Done() }
func (c *comm) Cause() error            { return c.abort.Cause() }

func (c *comm) Finalize(context.Context) error { return nil }
