// Package fake is a backend whose operations succeed at once and move nothing:
// for tests of programs that use a communicator, at any rank and world size.
//
//	import _ "github.com/chorus-comms/chorus/comm/fake"
//
//	st := store.NewHash(time.Minute) // which no other rank uses
//	c, err := comm.New(ctx, comm.WithBackend("fake"), comm.WithRank(3, 1024), comm.WithStore(st))
//
// In a world of one the results are those of a real backend. In larger worlds
// outputs keep what they hold.
package fake

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
)

// Name is the name under which the backend is registered.
const Name = "fake"

func init() { backend.Register(Name, open) }

func open(_ context.Context, c backend.Config) (backend.Backend, error) {
	return begin(c.Name, c.Rank, c.Size), nil
}

type comm struct {
	base.Life
	rank, size int
	seq        atomic.Uint64
	scratch    base.Scratch
}

func begin(name string, rank, size int) *comm {
	c := &comm{rank: rank, size: size}
	c.Begin(name, rank, func(uint64, error) {})
	return c
}

func (c *comm) Capabilities() backend.Capabilities {
	return backend.Capabilities{Name: Name, Devices: []string{"cpu"}, Abort: true, AnySource: true, Tags: true,
		InProcess: true, NoOp: true}
}

func (c *comm) Submit(op *backend.Op) error {
	if c.Raised() {
		return c.Err(c.Of(op))
	}
	if err := op.Ctx.Err(); err != nil {
		return &backend.AbortedError{Where: c.Of(op), By: c.rank, Reason: err.Error()}
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
	return base.Alone(op, &c.scratch)
}

func (c *comm) Wait(*backend.Op) error { return nil }

func (c *comm) Split(_ context.Context, name string, group []int, _ time.Duration,
	_ map[string]string) (backend.Backend, error) {
	if r := slices.Index(group, c.rank); r >= 0 {
		return begin(name, r, len(group)), nil
	}
	return nil, nil
}

func (c *comm) Finalize(context.Context) error {
	c.End()
	c.scratch.Free()
	return nil
}
