package accl

import (
	"cmp"
	"context"
	"errors"
	"math"
	"unsafe"

	"github.com/chorus-comms/chorus/accl"
	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/kern"
	"github.com/chorus-comms/chorus/plan"
)

// units are the types of elements that are only moved, by their size.
var units = map[int]abi.DataType{1: abi.Int8, 2: abi.Float16, 4: abi.Int32, 8: abi.Int64}

// native is a collective of the engines.
type native struct {
	name    string
	reduces bool
	run     func(x *engineCollective, opts ...accl.Option) error
}

var natives = map[plan.Collective]native{
	plan.Barrier: {"accl_barrier", false, func(x *engineCollective, opts ...accl.Option) error {
		return x.Barrier(x.ctx, opts...)
	}},
	plan.Broadcast: {"accl_bcast", false, func(x *engineCollective, opts ...accl.Option) error {
		return x.Bcast(x.ctx, x.out, x.count, x.q.Root, opts...)
	}},
	plan.Scatter: {"accl_scatter", false, func(x *engineCollective, opts ...accl.Option) error {
		return x.Scatter(x.ctx, x.in, x.out, x.count, x.q.Root, opts...)
	}},
	plan.Gather: {"accl_gather", false, func(x *engineCollective, opts ...accl.Option) error {
		return x.Gather(x.ctx, x.in, x.out, x.count, x.q.Root, opts...)
	}},
	plan.AllGather: {"accl_allgather", false, func(x *engineCollective, opts ...accl.Option) error {
		return x.Allgather(x.ctx, x.in, x.out, x.count, opts...)
	}},
	plan.AllToAll: {"accl_alltoall", false, func(x *engineCollective, opts ...accl.Option) error {
		return x.Alltoall(x.ctx, x.in, x.out, x.count, opts...)
	}},
	plan.Reduce: {"accl_reduce", true, func(x *engineCollective, opts ...accl.Option) error {
		return x.Reduce(x.ctx, x.f, x.in, x.out, x.count, x.q.Root, opts...)
	}},
	plan.AllReduce: {"accl_allreduce", true, func(x *engineCollective, opts ...accl.Option) error {
		return x.Allreduce(x.ctx, x.f, x.in, x.out, x.count, opts...)
	}},
	plan.ReduceScatter: {"accl_reduce_scatter", true, func(x *engineCollective, opts ...accl.Option) error {
		return x.ReduceScatter(x.ctx, x.f, x.in, x.out, x.count, opts...)
	}},
}

// An engineCollective is a collective that an engine carries out.
type engineCollective struct {
	*accl.Driver
	ctx     context.Context
	q       *plan.Request
	in, out *accl.Buffer
	f       abi.ReduceFunction
	typ     abi.DataType
	count   int
}

// own carries out what the engines have, as base.RunnerConfig says.
func (l *link) own(w *fabric.Waiter, c *base.Collective) (name string, err error) {
	x := engineCollective{Driver: l.driver, ctx: context.Background(), q: &c.Request, count: c.Request.Count}
	n, ok := natives[c.Request.Collective]
	if !ok || !x.fits(c, n) {
		return "", nil
	}
	comm, err := l.communicator(c)
	if err != nil {
		return "", err
	}
	if x.in, err = l.buffer(c.In, c.InBytes, x.typ); err == nil {
		x.out, err = l.buffer(c.Out, c.OutBytes, x.typ)
	}
	defer func() { err = errors.Join(err, x.in.Free(), x.out.Free()) }()
	if err != nil {
		return "", err
	}
	var late error
	opts := []accl.Option{accl.On(comm), accl.Waits(func(done <-chan struct{}) error {
		err := w.Await(done)
		late = cmp.Or(late, err)
		return err
	})}
	if c.Hints[compress.Name] == abi.Float16.String() && x.typ == abi.Float32 {
		opts = append(opts, accl.Compress(abi.Float16))
	}
	if err := n.run(&x, opts...); err != nil { // the engine touches no buffer any more
		return "", cmp.Or(late, err)
	}
	if c.Average && c.Out != nil {
		kern.Average(c.DType, c.Out, c.OutBytes/c.Elem, c.Request.World)
	}
	l.count.Add(1)
	return n.name, nil
}

// fits reports whether the engines have the collective for the operation's elements, and chooses how they see them. All
// ranks come to the same answer, for they look at what all have in common.
func (x *engineCollective) fits(c *base.Collective, n native) bool {
	q := x.q
	if q.Counts != nil || q.SendCounts != nil || q.Count*q.World*c.Elem > math.MaxInt32 {
		return false
	}
	if q.Collective == plan.Barrier {
		return true
	}
	if x.typ = abi.DataTypeOf(c.DType); x.count == 0 {
		return false
	}
	if n.reduces {
		if c.Kernel == kern.Max {
			x.f = abi.Max
		}
		return x.typ != abi.None && x.typ != abi.Int8 && (c.Kernel == kern.Sum || c.Kernel == kern.Max)
	}
	if c.DType != dtype.Float32 { // which may be compressed
		size := c.Elem
		if size > 8 {
			size = 8
			x.count *= c.Elem / size
		}
		x.typ = units[size]
	}
	return x.typ != abi.None
}

// buffer gives the engine memory of a tensor; nil if there's none.
func (l *link) buffer(p unsafe.Pointer, n int, t abi.DataType) (*accl.Buffer, error) {
	if n == 0 {
		return nil, nil
	}
	return l.driver.Wrap(bytesAt(p, n), t, accl.HostOnly())
}

// communicator returns the engines' communicator of the operation's.
func (l *link) communicator(c *base.Collective) (*accl.Communicator, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.comms[c.Comm]; known != nil {
		return known, nil
	}
	ranks := make([]abi.Rank, len(c.Members))
	for i, r := range c.Members {
		ranks[i] = l.driver.Member(r)
		ranks[i].Port = c.Comm // what tells communicators of the same ranks apart
	}
	made, err := l.driver.Communicator(ranks, c.Request.Rank)
	if err == nil {
		l.comms[c.Comm] = made
	}
	return made, err
}
