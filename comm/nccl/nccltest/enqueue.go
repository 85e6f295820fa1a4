//go:build linux

package nccltest

import (
	"errors"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// group is what a thread has called since it began one.
type group struct {
	depth int
	items []item
	err   abi.Result
}

// item is an operation of a communicator on a stream.
type item struct {
	c      *communicator
	stream abi.Stream
	name   string
	op     backend.Op
	from   *tensor.Tensor // what is copied to op.Out first: a broadcast's source; nil if that's it
	do     func() error   // instead of op: transfers through windows
}

// factor is of a reduction that was made.
type factor struct {
	dt     abi.DataType
	number *tensor.Tensor // one element; of ScalarDevice: device memory
}

func (l *Library) groupStart() abi.Result {
	if r := l.fail("ncclGroupStart", -1); r != abi.Success {
		return r
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.groups[unix.Gettid()]
	if g == nil {
		g = &group{}
		l.groups[unix.Gettid()] = g
	}
	g.depth++
	return abi.Success
}

func (l *Library) groupEnd() abi.Result {
	l.mu.Lock()
	g := l.groups[unix.Gettid()]
	if g == nil {
		l.mu.Unlock()
		return l.wrong(abi.InvalidUsage, "ncclGroupEnd: no group has begun on this thread")
	}
	if g.depth--; g.depth > 0 {
		l.mu.Unlock()
		return abi.Success
	}
	delete(l.groups, unix.Gettid())
	l.mu.Unlock()
	if g.err != abi.Success {
		return g.err
	}
	if r := l.fail("ncclGroupEnd", -1); r != abi.Success {
		return r
	}
	return l.issue(g.items)
}

// threadsSince is the first version that issues each operation of a communicator that doesn't block on a thread of its
// own; before, only what connects ranks was.
const threadsSince abi.Version = 22304

// issue launches operations: on the caller's thread, or on one of its own for communicators that don't block.
func (l *Library) issue(items []item) abi.Result {
	var comms []*communicator
	for _, it := range items {
		if l.version >= threadsSince && !it.c.blocking && !slices.Contains(comms, it.c) {
			comms = append(comms, it.c)
		}
	}
	if len(comms) == 0 {
		return l.launchAll(items)
	}
	for _, c := range comms {
		c.async.Store(int32(abi.InProgress))
	}
	go func() {
		r := l.launchAll(items)
		for _, c := range comms {
			c.async.Store(int32(r))
		}
	}()
	return abi.InProgress
}

// launchAll launches what belongs together at once: one communicator's on one stream.
func (l *Library) launchAll(items []item) abi.Result {
	for len(items) > 0 {
		first := items[0]
		var these, others []item
		for _, it := range items {
			if it.c == first.c && it.stream == first.stream {
				these = append(these, it)
			} else {
				others = append(others, it)
			}
		}
		if r := l.launch(these); r != abi.Success {
			return r
		}
		items = others
	}
	return abi.Success
}

// enqueue puts an operation on its stream, or into the group of the thread.
func (l *Library) enqueue(name string, h abi.Comm, s abi.Stream, f func(c *communicator, it *item) error) abi.Result {
	r := l.with(name, h, func(c *communicator) abi.Result {
		if c.revoked.Load() || c.asleep.Load() {
			return l.wrong(abi.InvalidUsage, "%s: the communicator is revoked, or suspended", name)
		}
		if abi.Result(c.async.Load()) == abi.InProgress {
			return l.wrong(abi.InvalidArgument, "%s: the communicator's last call is still in progress", name)
		}
		it := item{c: c, stream: s, name: name}
		if err := f(c, &it); err != nil {
			return l.wrong(abi.InvalidArgument, "%s: %v", name, err)
		}
		l.mu.Lock()
		g := l.groups[unix.Gettid()]
		if g != nil {
			g.items = append(g.items, it)
		}
		l.mu.Unlock()
		if g == nil {
			return l.issue([]item{it})
		}
		return abi.Success
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.groups[unix.Gettid()]; g != nil && r != abi.Success {
		g.err = r
	}
	return r
}

// heldByGraph counts a graph that captures an operation, until nothing has the operation any more: the graph and
// whatever was instantiated of it are gone.
func (c *communicator) heldByGraph(d device.Driver, s abi.Stream) *[16]byte {
	g, ok := d.(device.Graphs)
	if !ok {
		return nil
	}
	if status, err := g.CaptureStatus(device.StreamHandle(s)); err != nil || status == device.NotCapturing {
		return nil
	}
	held := new([16]byte) // larger than what the allocator packs together
	c.graphs.Add(1)
	runtime.AddCleanup(held, func(c *communicator) { c.graphs.Add(-1) }, c)
	return held
}

// launch enqueues a function that carries operations out when the stream gets there.
func (l *Library) launch(items []item) abi.Result {
	c := items[0].c
	if c.b.Load() == nil {
		return l.wrong(abi.InvalidUsage, "%s: the communicator has not begun", items[0].name)
	}
	held := c.heldByGraph(l.opts.Driver, items[0].stream)
	err := l.opts.Driver.HostFunc(device.StreamHandle(items[0].stream), items[0].name, func() error {
		defer runtime.KeepAlive(held)
		if !c.enter() {
			return nil
		}
		err := c.perform(items)
		c.running.Done()
		if err != nil {
			c.hang(err)
		}
		return nil
	})
	if err != nil {
		return l.wrong(abi.UnhandledCudaError, "%v", err)
	}
	return abi.Success
}

// enter begins an operation, unless the communicator is aborted.
func (c *communicator) enter() bool {
	c.ending.Lock()
	defer c.ending.Unlock()
	select {
	case <-c.aborted:
		return false
	default:
		c.running.Add(1)
		return true
	}
}

// perform carries operations out: messages together, collectives one after another. A message is over for its sender
// when its receiver has said so.
func (c *communicator) perform(items []item) (err error) {
	b := *c.b.Load()
	ops := make([]backend.Op, len(items)) // runs of a graph have their own
	var received, posted []*backend.Op
	post := func(op *backend.Op) bool {
		if err == nil {
			err = b.Submit(op)
		}
		return err == nil
	}
	for i := range items {
		ops[i] = items[i].op
		switch op := &ops[i]; op.Kind {
		case backend.Recv:
			if post(op) {
				received = append(received, op)
			}
		case backend.Send:
			if post(op) {
				posted = append(posted, op)
			}
			if r := receipt(op, backend.Recv); post(r) {
				posted = append(posted, r)
			}
		}
	}
	for i := range items {
		if items[i].do != nil {
			err = errors.Join(err, items[i].do())
		} else if op := &ops[i]; !op.Kind.PointToPoint() && err == nil {
			err = c.collective(b, op, items[i].from)
		}
	}
	for _, op := range received {
		err = errors.Join(err, b.Wait(op))
		if r := receipt(op, backend.Send); post(r) {
			posted = append(posted, r)
		}
	}
	for _, op := range posted {
		err = errors.Join(err, b.Wait(op))
	}
	return err
}

// receipt is the message with which a receiver says that it has one.
func receipt(of *backend.Op, kind backend.Kind) *backend.Op {
	op := &backend.Op{Kind: kind, Ctx: of.Ctx, Timeout: of.Timeout, Peer: of.Peer, Tag: of.Tag + 1}
	if t := tensor.Of(make([]byte, 1)); kind == backend.Send {
		op.In = t
	} else {
		op.Out = t
	}
	return op
}

func (c *communicator) collective(b backend.Backend, op *backend.Op, from *tensor.Tensor) error {
	c.lane.Lock()
	defer c.lane.Unlock()
	if from != nil {
		if err := op.Out.CopyFrom(from); err != nil {
			return err
		}
	}
	err := b.Submit(op)
	if err == nil {
		err = b.Wait(op)
	}
	return err
}

// hang behaves as the library's kernels do after a fault: it ends when the communicator is aborted. A lost peer is
// reported.
func (c *communicator) hang(err error) {
	if errors.Is(err, backend.ErrPeerLost) || errors.Is(err, backend.ErrAborted) {
		c.async.CompareAndSwap(int32(abi.Success), int32(abi.RemoteError))
	}
	<-c.aborted
}

// memory is n elements at an address of a device, as this process can touch them.
func (l *Library) memory(p uintptr, n uint64, dt dtype.DType) (*tensor.Tensor, error) {
	v, err := l.kernels.View(device.Ptr(p), int(n)*dt.Size())
	if err != nil {
		return nil, err
	}
	return tensor.FromPointer(dt, v, int(n))
}

// types is abi.DataTypes turned around.
var types = func() map[abi.DataType]dtype.DType {
	m := map[abi.DataType]dtype.DType{}
	for dt, n := range abi.DataTypes {
		m[n] = dt
	}
	return m
}()

// fill makes a collective of in and out elements; none stands for no tensor.
func (l *Library) fill(it *item, kind backend.Kind, in, out uintptr, ins, outs uint64, dt abi.DataType) (err error) {
	t, ok := types[dt]
	if !ok {
		return errors.New("no such type")
	}
	it.op = backend.Op{Kind: kind, Ctx: it.c.ctx, Timeout: ever}
	if ins > 0 {
		it.op.In, err = l.memory(in, ins, t)
	}
	if outs > 0 && err == nil {
		it.op.Out, err = l.memory(out, outs, t)
	}
	return err
}

var kinds = map[abi.RedOp]backend.ReduceKind{abi.Sum: backend.SumKind, abi.Prod: backend.ProductKind,
	abi.Max: backend.MaxKind, abi.Min: backend.MinKind, abi.Avg: backend.AvgKind}

// reducing adds the reduction.
func (l *Library) reducing(it *item, red abi.RedOp) error {
	if k, ok := kinds[red]; ok {
		it.op.Reduce = backend.Reduction{Kind: k}
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f, ok := l.redOps[red]
	if !ok {
		return errors.New("no such reduction")
	}
	it.op.Reduce = backend.Reduction{Kind: backend.PremulSumKind, FactorTensor: f.number}
	return nil
}

func (l *Library) premul(op *abi.RedOp, p unsafe.Pointer, dt abi.DataType, residence int32, h abi.Comm) abi.Result {
	return l.with("ncclRedOpCreatePreMulSum", h, func(*communicator) abi.Result {
		t, ok := types[dt]
		var number *tensor.Tensor
		var err error
		switch {
		case !ok || !t.IsFloating():
			err = errors.New("no such type")
		case residence == abi.ScalarDevice:
			number, err = l.memory(uintptr(p), 1, t)
		default:
			number = tensor.Must(tensor.Empty(t, 1))
			var there *tensor.Tensor
			if there, err = tensor.FromPointer(t, p, 1); err == nil {
				err = number.CopyFrom(there)
			}
		}
		if err != nil {
			return l.wrong(abi.InvalidArgument, "ncclRedOpCreatePreMulSum: %v", err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.next++
		*op = abi.NumOps + abi.RedOp(l.next)
		l.redOps[*op] = factor{dt, number}
		return abi.Success
	})
}

func (l *Library) redOpDestroy(op abi.RedOp, _ abi.Comm) abi.Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.redOps[op]; !ok {
		return abi.InvalidArgument
	}
	delete(l.redOps, op)
	return abi.Success
}

func (l *Library) allReduce(in, out uintptr, n uint64, dt abi.DataType, red abi.RedOp, h abi.Comm,
	s abi.Stream) abi.Result {
	return l.enqueue("ncclAllReduce", h, s, func(_ *communicator, it *item) error {
		return errors.Join(l.fill(it, backend.AllReduce, in, out, n, n, dt), l.reducing(it, red))
	})
}

func (l *Library) reduce(in, out uintptr, n uint64, dt abi.DataType, red abi.RedOp, root int32, h abi.Comm,
	s abi.Stream) abi.Result {
	return l.enqueue("ncclReduce", h, s, func(c *communicator, it *item) error {
		outs := n
		if c.rank != int(root) {
			outs = 0
		}
		err := errors.Join(l.fill(it, backend.Reduce, in, out, n, outs, dt), l.reducing(it, red))
		it.op.Root = int(root)
		return err
	})
}

func (l *Library) reduceScatter(in, out uintptr, n uint64, dt abi.DataType, red abi.RedOp, h abi.Comm,
	s abi.Stream) abi.Result {
	return l.enqueue("ncclReduceScatter", h, s, func(c *communicator, it *item) error {
		return errors.Join(l.fill(it, backend.ReduceScatterSingle, in, out, n*uint64(c.n), n, dt), l.reducing(it, red))
	})
}

func (l *Library) broadcast(in, out uintptr, n uint64, dt abi.DataType, root int32, h abi.Comm,
	s abi.Stream) abi.Result {
	return l.enqueue("ncclBroadcast", h, s, func(c *communicator, it *item) (err error) {
		if err = l.fill(it, backend.Broadcast, 0, out, 0, n, dt); err == nil && c.rank == int(root) && in != out {
			it.from, err = l.memory(in, n, types[dt])
		}
		it.op.Root = int(root)
		return err
	})
}

func (l *Library) allGather(in, out uintptr, n uint64, dt abi.DataType, h abi.Comm, s abi.Stream) abi.Result {
	return l.enqueue("ncclAllGather", h, s, func(c *communicator, it *item) error {
		return l.fill(it, backend.AllGatherSingle, in, out, n, n*uint64(c.n), dt)
	})
}

func (l *Library) allToAll(in, out uintptr, n uint64, dt abi.DataType, h abi.Comm, s abi.Stream) abi.Result {
	return l.enqueue("ncclAlltoAll", h, s, func(c *communicator, it *item) error {
		return l.fill(it, backend.AllToAllSingle, in, out, n*uint64(c.n), n*uint64(c.n), dt)
	})
}

func (l *Library) gather(in, out uintptr, n uint64, dt abi.DataType, root int32, h abi.Comm, s abi.Stream) abi.Result {
	return l.enqueue("ncclGather", h, s, func(c *communicator, it *item) error {
		outs := uint64(0)
		if c.rank == int(root) {
			outs = n * uint64(c.n)
		}
		err := l.fill(it, backend.GatherSingle, in, out, n, outs, dt)
		it.op.Root = int(root)
		return err
	})
}

func (l *Library) scatter(in, out uintptr, n uint64, dt abi.DataType, root int32, h abi.Comm, s abi.Stream) abi.Result {
	return l.enqueue("ncclScatter", h, s, func(c *communicator, it *item) error {
		ins := uint64(0)
		if c.rank == int(root) {
			ins = n * uint64(c.n)
		}
		err := l.fill(it, backend.Scatter, in, out, ins, n, dt)
		if it.op.Root = int(root); ins > 0 && err == nil {
			it.op.Ins, err = it.op.In.Chunk(c.n, 0)
		}
		it.op.In = nil
		return err
	})
}

// message is one end of a message, whose number among those of the two ranks is its tag: streams of a rank may get to
// theirs in any order.
func (l *Library) message(name string, kind backend.Kind, p uintptr, n uint64, dt abi.DataType, peer int32, h abi.Comm,
	s abi.Stream) abi.Result {
	return l.enqueue(name, h, s, func(c *communicator, it *item) error {
		if peer < 0 || int(peer) >= c.n {
			return errors.New("no such peer")
		}
		count, ins, outs := &c.sent[peer], n, uint64(0)
		if kind == backend.Recv {
			count, ins, outs = &c.sent[c.n+int(peer)], 0, n
		}
		*count++
		err := l.fill(it, kind, p, p, ins, outs, dt)
		it.op.Peer, it.op.Tag = int(peer), 2**count // and one more for the receipt
		return err
	})
}

func (l *Library) send(p uintptr, n uint64, dt abi.DataType, peer int32, h abi.Comm, s abi.Stream) abi.Result {
	return l.message("ncclSend", backend.Send, p, n, dt, peer, h, s)
}

func (l *Library) recv(p uintptr, n uint64, dt abi.DataType, peer int32, h abi.Comm, s abi.Stream) abi.Result {
	return l.message("ncclRecv", backend.Recv, p, n, dt, peer, h, s)
}
