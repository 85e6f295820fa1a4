package gloo

import (
	"errors"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/kern"
	"github.com/chorus-comms/chorus/plan"
)

// post hands a message of the collective under way to the mesh.
func (g *group) post(peer int, p unsafe.Pointer, n int, send bool) *fabric.Msg {
	var m *fabric.Msg
	if k := len(g.free); k > 0 {
		m, g.free = g.free[k-1], g.free[:k-1]
	} else {
		m = new(fabric.Msg)
	}
	m.Reset(g.waiter)
	m.Peer, m.Key = peer, fabric.Key{Class: fabric.Collective, Tag: g.slot}
	m.Buf, m.Len = p, n
	g.open = append(g.open, m)
	if send {
		g.mesh.Send(m)
	} else {
		g.mesh.Recv(m)
	}
	return m
}

// await waits for a message of post's, which is the pool's again.
func (g *group) await(m *fabric.Msg) error {
	if err := g.mesh.Wait(m, g.waiter); err != nil {
		return err
	}
	if m.N != m.Len {
		return &fabric.TruncatedError{Peer: m.Peer, Sent: m.N, Capacity: m.Len}
	}
	take(&g.open, m)
	m.Buf = nil
	g.free = append(g.free, m)
	return nil
}

// all waits for all messages.
func (g *group) all() error {
	for len(g.open) > 0 {
		if err := g.await(g.open[0]); err != nil {
			return err
		}
	}
	return nil
}

// withdraw ends the messages of a collective that has failed.
func (g *group) withdraw() {
	for _, m := range g.open {
		if !m.Done() {
			g.mesh.Cancel(m)
		}
	}
	g.open = g.open[:0]
}

// next numbers a collective, or one of several of which it's made.
func (g *group) next(kind backend.Kind) {
	g.slot = slotOf(slots[kind.Operation().Family], g.tag)
	g.tag++
	g.mesh = g.meshes.meshOf(g.slot)
	g.mesh.begin(g.slot)
}

// carry carries a collective out, as PyTorch does.
func (g *group) carry(op *backend.Op) error {
	j, q := &g.work, &g.request
	row := op.Kind.Operation()
	if err := j.Prepare(op, &g.scratch); err != nil {
		return err
	}
	elem := j.Elem
	switch j.DType { // what PyTorch reduces instead
	case dtype.Bool:
		j.DType = dtype.Uint8
	case dtype.Complex64:
		j.DType, j.Elem = dtype.Float32, elem/2
	case dtype.Complex128:
		j.DType, j.Elem = dtype.Float64, elem/2
	}
	var err error
	switch row.Family {
	case backend.AllReduce:
		err = g.reduced(j.Out, j.In, j.InBytes, func() error { return g.allReduce(j.Out, j.InBytes) })
	case backend.Reduce:
		out := j.Out
		if g.rank != op.Root {
			if out, err = g.scratch.Take(j.InBytes); err != nil {
				return err
			}
		}
		err = g.reduced(out, j.In, j.InBytes, func() error { return g.reduce(out, j.InBytes, op.Root) })
	case backend.ReduceScatter:
		err = g.reduceScatter(op, row, elem)
	case backend.Broadcast:
		err = g.broadcast(j.Out, j.OutBytes, op.Root)
	case backend.AllGather:
		err = g.gathered(q, elem)
	case backend.Gather:
		all := shares(q.Counts, elem, j.InBytes, g.size)
		if g.rank == op.Root {
			move(within(j.Out, all[g.rank].off, j.InBytes), j.In, j.InBytes)
		}
		err = g.gather(j.In, j.Out, all, op.Root)
	case backend.Scatter:
		all := shares(q.Counts, elem, j.OutBytes, g.size)
		if g.rank == op.Root {
			move(j.Out, within(j.In, all[g.rank].off, j.OutBytes), j.OutBytes)
		}
		err = g.scatter(j.In, j.Out, all, op.Root)
	case backend.AllToAll:
		ins, outs := even(j.InBytes, g.size), even(j.OutBytes, g.size)
		if q.SendCounts != nil {
			ins, outs = blocks(q.SendCounts, elem), blocks(q.RecvCounts, elem)
		}
		to, from := outs[g.rank], ins[g.rank]
		move(within(j.Out, to.off, to.n), within(j.In, from.off, from.n), min(to.n, from.n))
		err = g.allToAll(j.In, j.Out, ins, outs)
	case backend.Scan:
		err = g.reduced(j.Out, j.In, j.InBytes, func() error { return g.scan(j.Out, j.InBytes) })
	case backend.Barrier:
		err = g.barrier()
	}
	if err == nil {
		j.Unpack()
	}
	return err
}

// move copies what isn't there.
func move(to, from unsafe.Pointer, bytes int) {
	if to != from && bytes > 0 {
		kern.Copy(to, from, bytes)
	}
}

// reduced reduces in place what is in from, and takes the average if it's asked for.
func (g *group) reduced(buf, from unsafe.Pointer, bytes int, run func() error) error {
	move(buf, from, bytes)
	if err := run(); err != nil {
		return err
	}
	if g.work.Average && bytes > 0 {
		kern.Average(g.work.DType, buf, bytes/g.work.Elem, g.size)
	}
	return nil
}

// reduceScatter reduces on all ranks, and takes this one's block: all at once where the input is one tensor, block by
// block where it's a list.
func (g *group) reduceScatter(op *backend.Op, row *backend.Operation, elem int) error {
	j, q := &g.work, &g.request
	tmp, err := g.scratch.Take(j.InBytes)
	if err != nil {
		return err
	}
	all := shares(q.Counts, elem, j.InBytes/g.size, g.size)
	mine := all[g.rank]
	run := func(b block) error {
		buf := within(tmp, b.off, b.n)
		move(buf, within(j.In, b.off, b.n), b.n)
		return g.allReduce(buf, b.n)
	}
	if row.In == backend.Whole {
		err = run(block{0, j.InBytes})
	} else {
		for r, b := range all {
			if r > 0 {
				g.mesh.end()
				g.next(backend.AllReduce)
			}
			if err = run(b); err != nil {
				break
			}
		}
	}
	if err != nil {
		return err
	}
	move(j.Out, within(tmp, mine.off, mine.n), mine.n)
	switch dt := op.First().DType(); {
	case mine.n == 0:
	case row.In == backend.Whole && dt == dtype.Bool: // PyTorch copies its slice as truth values
		out := unsafe.Slice((*uint8)(j.Out), mine.n)
		for i, x := range out {
			out[i] = min(x, 1)
		}
	case j.Average && dt == dtype.Complex64:
		scale(unsafe.Slice((*float32)(j.Out), mine.n/4), g.size)
	case j.Average && dt == dtype.Complex128:
		scale(unsafe.Slice((*float64)(j.Out), mine.n/8), g.size)
	case j.Average:
		kern.Average(j.DType, j.Out, mine.n/j.Elem, g.size)
	}
	return err
}

// gathered gathers on all ranks: the blocks are of one size or not.
func (g *group) gathered(q *plan.Request, elem int) error {
	j := &g.work
	if q.Counts == nil {
		move(within(j.Out, g.rank*j.InBytes, j.InBytes), j.In, j.InBytes)
		return g.allGather(j.Out, j.OutBytes)
	}
	all := blocks(q.Counts, elem)
	move(within(j.Out, all[g.rank].off, j.InBytes), j.In, j.InBytes)
	return g.allGatherV(j.Out, all)
}

// failed breaks the communicator with why a collective has failed.
func (g *group) failed(op *backend.Op, err error) error {
	at := g.Of(op)
	if p, ok := errors.AsType[*fabric.PanicError](err); ok {
		return g.Panicked(at, p)
	}
	if !g.Raised() {
		cause := g.CauseOf(at, op.Ctx, &g.work, func(peer int) int { return peer }, err, func() error {
			a := g.mesh.attendance()
			a.Elapsed = g.waiter.Elapsed()
			return &backend.TimeoutError{Where: at, Attendance: a}
		})
		if stray, ok := errors.AsType[*otherCollectiveError](err); ok {
			cause = g.mismatch(at, stray)
		}
		if lost, ok := cause.(*backend.PeerLostError); ok {
			cause = g.loss(at, lost.Peer)
		}
		g.Fail(cause)
	}
	return g.Err(at)
}

// loss is the error of a peer that is lost. It lets some time go by before this rank gives up, too: the others are to
// see first who was lost first, and so is this one.
func (g *group) loss(at backend.Where, peer int) error {
	time.Sleep(grace)
	peer, why := g.meshes.culprit(peer)
	return base.LossOf(at, peer, why)
}

// grace is more than all connections of a process that dies take to end.
const grace = 100 * time.Millisecond

// mismatch is the error of two ranks that are in different collectives.
func (g *group) mismatch(at backend.Where, stray *otherCollectiveError) error {
	e := &backend.MismatchError{Where: at, RankA: at.Reporter, RankB: stray.peer, OpA: at.Op, OpB: slotName(stray.there)}
	if e.RankB < e.RankA {
		e.RankA, e.RankB, e.OpA, e.OpB = e.RankB, e.RankA, e.OpB, e.OpA
	}
	return e
}
