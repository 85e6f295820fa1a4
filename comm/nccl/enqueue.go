package nccl

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// number is how the library calls elements of a type that it reduces, and how many of its own one is.
func (l *Library) number(dt dtype.DType) (abi.DataType, int, bool) {
	switch dt {
	case dtype.Bool: // 0 and 1
		return abi.Uint8, 1, true
	case dtype.Complex64: // two parts
		return abi.Float32, 2, true
	case dtype.Complex128:
		return abi.Float64, 2, true
	}
	n, ok := abi.DataTypes[dt]
	return n, 1, ok && (n < abi.Float8E4M3 || l.version >= float8Since)
}

// float8Since is the first version with types of 8 bits, which no symbol shows.
const float8Since abi.Version = 22403

// redOps are the library's reductions.
var redOps = map[backend.ReduceKind]abi.RedOp{backend.SumKind: abi.Sum, backend.ProductKind: abi.Prod,
	backend.MinKind: abi.Min, backend.MaxKind: abi.Max, backend.AvgKind: abi.Avg}

// boolOps are those of 0 and 1, by what they're on bytes.
var boolOps = map[backend.ReduceKind]abi.RedOp{backend.SumKind: abi.Max, backend.MaxKind: abi.Max,
	backend.BOrKind: abi.Max, backend.ProductKind: abi.Min, backend.MinKind: abi.Min, backend.BAndKind: abi.Min}

// reduces reports whether the library has a reduction on a type.
func (l *Library) reduces(k backend.ReduceKind, dt dtype.DType) bool {
	_, _, ok := l.number(dt)
	switch {
	case !ok:
		return false
	case dt == dtype.Bool:
		_, ok = boolOps[k]
	case dt.IsComplex(): // what is done to both parts alike
		return k == backend.SumKind || k == backend.AvgKind || k == backend.PremulSumKind
	case k == backend.PremulSumKind:
		return dt.IsFloating()
	default:
		_, ok = redOps[k]
	}
	return ok
}

// reduces reports whether the communicator has a reduction on a type. The kernel for one rank, which only multiplies,
// has no types of 8 bits (NCCL 2.31, src/device/onerank.cu).
func (r *rank) reduces(k backend.ReduceKind, dt dtype.DType) bool {
	float8 := dt == dtype.Float8E4M3FN || dt == dtype.Float8E5M2
	return r.lib.reduces(k, dt) && !(r.size == 1 && k == backend.PremulSumKind && float8)
}

// Enqueue implements backend.Enqueuer.
func (r *rank) Enqueue(ops ...*backend.Op) error {
	if err := r.usable(r.Of(ops[0])); err != nil {
		return err
	}
	for _, op := range ops {
		if op.Kind == backend.Recv && op.Peer == backend.AnySource || op.Tag != 0 {
			return &backend.UnsupportedError{Where: r.Of(op), Detail: r.lib.name + " has neither tags nor any source"}
		}
		if op.Kind.Operation().Reduces && !r.reduces(op.Reduce.Kind, op.First().DType()) {
			return &backend.UnsupportedError{Where: r.Of(op),
				Detail: fmt.Sprintf("%s has no reduction %v on %v", r.lib.name, op.Reduce, op.First().DType())}
		}
	}
	x := &calls{rank: r, stream: abi.Stream(ops[0].Stream.Handle())}
	given := false // to a call that may be held
	defer func() {
		if !given {
			x.free()
		}
	}()
	if err := x.configure(ops); err != nil {
		return err
	}
	if i, j := entangled(ops); j > 0 {
		return &backend.InvalidArgumentError{Where: r.Of(ops[j]), Detail: fmt.Sprintf("operation %d of the batch uses what "+
			"operation %d uses, and one of them writes it: %s carries out both at the same time", j, i, r.lib.name)}
	}
	begin, ctx := time.Now(), context.Background() // which gets its deadline where something waits
	if r.compares || r.blocking {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, begin.Add(ops[0].Timeout))
		defer cancel()
	}
	for _, op := range ops {
		op.Algorithm, op.From = r.lib.name, op.Peer
		if op.Kind.PointToPoint() {
			continue
		}
		if b := r.note(op); r.compares && r.size > 1 {
			if err := r.compare(ctx, op, b.String()); err != nil {
				return err
			}
		}
	}
	unbind, err := r.dev.Bind() // groups are a thread's, and so is the device
	if err != nil {
		return &backend.InternalError{Where: r.Of(ops[0]), Err: err}
	}
	defer unbind()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.c == 0 {
		return r.Err(r.Of(ops[0]))
	}
	if ops[0].Stream.Capturing() {
		r.captured = true
	} else {
		r.learn()
	}
	if r.blocking { // until the other ranks come, if it has to connect to them first
		given = true
		err = r.apart(ctx, r.Broken(), func() error { defer x.free(); x.all(ops); return x.err })
	} else if x.all(ops); x.err == nil && x.progress {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, begin.Add(ops[0].Timeout))
		defer cancel()
		err = r.await(ctx, x.name, r.c)
	} else {
		err = x.err
	}
	if !errors.Is(err, errHeld) {
		for _, made := range x.made {
			r.lib.RedOpDestroy(made, r.c)
		}
		if err == nil {
			for _, enqueue := range x.after {
				enqueue()
			}
			err = x.err
		}
		for _, t := range x.staged {
			t.Free() // which the stream's work outlives
		}
	}
	return r.outcome(ctx, r.Of(ops[0]), ops[0].Timeout, err)
}

// outcome is the error of a call whose work of the library's has ended with err, within the time of ctx. A mistake of
// the caller's is the error of that call alone.
func (r *rank) outcome(ctx context.Context, at backend.Where, timeout time.Duration, err error) error {
	switch refused, ok := errors.AsType[*Error](err); {
	case err == nil:
		return nil
	case ok && (refused.Result == abi.InvalidArgument || refused.Result == abi.InvalidUsage):
		return &backend.InvalidArgumentError{Where: at, Detail: err.Error(), Err: err}
	case r.Raised():
	case ok && refused.Result == abi.RemoteError:
		go r.lost(err)
		<-r.Broken()
	case ctx.Err() != nil:
		go r.failUnlessReported(&backend.TimeoutError{Where: at, Attendance: backend.Attendance{Elapsed: timeout}})
		<-r.Broken()
	default:
		go r.failUnlessReported(&backend.InternalError{Where: at, Err: err})
		<-r.Broken()
	}
	return r.Err(at)
}

// calls are the library's for an operation, or several. The first that fails is the last.
type calls struct {
	*rank
	stream   abi.Stream
	name     string // of the last one
	err      error
	progress bool // it hasn't returned yet what it ends with
	depth    int  // of groups
	made     []abi.RedOp
	configs  []*abi.Config  // of the operations that have one; nil if none has
	with     unsafe.Pointer // that of the operation whose turn it is; nil if it has none

	staged []*tensor.Tensor // memory of operations, until they are enqueued
	after  []func()         // enqueue what comes behind the library's work
}

// configure packs what the operations' hints say.
func (x *calls) configure(ops []*backend.Op) error {
	for i, op := range ops {
		packed, err := x.operationConfig(op)
		if err != nil {
			return err
		}
		if packed != nil && x.configs == nil {
			x.configs = make([]*abi.Config, len(ops))
		}
		if packed != nil {
			x.configs[i] = packed
		}
	}
	return nil
}

// free lets go of the configurations.
func (x *calls) free() {
	for _, c := range x.configs {
		if c != nil {
			c.Free()
		}
	}
}

// do is a call's result.
func (x *calls) do(name string, call func() abi.Result) {
	if x.err != nil {
		return
	}
	if x.with != nil && !strings.HasPrefix(name, "ncclGroup") && !strings.HasPrefix(name, "ncclRedOp") {
		name += "Config"
	}
	result := call()
	x.name, x.progress, x.err = name, x.progress || result == abi.InProgress, x.lib.failed(name, result, x.c)
}

// all calls what operations are, as a group if there are several.
func (x *calls) all(ops []*backend.Op) {
	if len(ops) > 1 {
		x.begin()
	}
	for i, op := range ops {
		if x.with = nil; x.configs != nil && x.configs[i] != nil {
			x.with = x.configs[i].Pointer()
		}
		x.operation(op)
	}
	if len(ops) > 1 {
		x.end()
	}
}

func (x *calls) begin() {
	x.do("ncclGroupStart", x.lib.GroupStart)
	if x.err == nil {
		x.depth++
	}
}

// end ends a group also if a call in it has failed.
func (x *calls) end() {
	if x.depth == 0 {
		return
	}
	x.depth--
	if err := x.err; err != nil {
		x.lib.GroupEnd()
		return
	}
	x.do("ncclGroupEnd", x.lib.GroupEnd)
}

// address is where a tensor is; 0 for none.
func address(t *tensor.Tensor) uintptr {
	if t == nil {
		return 0
	}
	return uintptr(t.Pointer())
}

func (x *calls) send(p uintptr, bytes, peer int) {
	if bytes > 0 {
		x.do("ncclSend", func() abi.Result {
			return x.lib.Send(p, uint64(bytes), abi.Uint8, int32(peer), x.c, x.stream)
		})
	}
}

func (x *calls) recv(p uintptr, bytes, peer int) {
	if bytes > 0 {
		x.do("ncclRecv", func() abi.Result {
			return x.lib.Recv(p, uint64(bytes), abi.Uint8, int32(peer), x.c, x.stream)
		})
	}
}

func (x *calls) broadcast(in, out uintptr, bytes, root int) {
	if bytes > 0 {
		x.do("ncclBroadcast", func() abi.Result {
			if x.with != nil {
				return x.lib.BroadcastWith(in, out, uint64(bytes), abi.Uint8, int32(root), x.c, x.stream, x.with)
			}
			return x.lib.Broadcast(in, out, uint64(bytes), abi.Uint8, int32(root), x.c, x.stream)
		})
	}
}

func (x *calls) gather(in, out uintptr, bytes int) {
	if bytes > 0 {
		x.do("ncclAllGather", func() abi.Result {
			if x.with != nil {
				return x.lib.AllGatherWith(in, out, uint64(bytes), abi.Uint8, x.c, x.stream, x.with)
			}
			return x.lib.AllGather(in, out, uint64(bytes), abi.Uint8, x.c, x.stream)
		})
	}
}

// operation calls what an operation is.
func (x *calls) operation(op *backend.Op) {
	switch op.Kind {
	case backend.Send:
		x.send(address(op.In), op.In.NBytes(), op.Peer)
	case backend.Recv:
		x.recv(address(op.Out), op.Out.NBytes(), op.Peer)
	case backend.Broadcast:
		x.broadcast(address(op.Out), address(op.Out), op.Out.NBytes(), op.Root)
	case backend.Barrier:
		p := address(x.token)
		x.do("ncclAllReduce", func() abi.Result {
			return x.lib.AllReduce(p, p, 1, abi.Uint8, abi.Sum, x.c, x.stream)
		})
	case backend.AllReduce, backend.Reduce, backend.ReduceScatter, backend.ReduceScatterSingle, backend.ReduceScatterV:
		x.reduction(op)
	case backend.Scan:
		x.scan(op)
	case backend.AllGatherSingle:
		x.gather(address(op.In), address(op.Out), op.In.NBytes())
	case backend.AllGather, backend.AllGatherV:
		x.gatherList(op)
	case backend.AllToAllSingle:
		x.allToAll(op)
	case backend.GatherSingle:
		x.gatherSingle(op)
	default:
		x.exchange(op)
	}
}

// allToAll is the library's own, if it has one.
func (x *calls) allToAll(op *backend.Op) {
	bytes := op.In.NBytes() / x.size
	if x.lib.AllToAll == nil || bytes == 0 {
		x.exchange(op)
		return
	}
	in, out := address(op.In), address(op.Out)
	x.do("ncclAlltoAll", func() abi.Result {
		if x.with != nil {
			return x.lib.AllToAllWith(in, out, uint64(bytes), abi.Uint8, x.c, x.stream, x.with)
		}
		return x.lib.AllToAll(in, out, uint64(bytes), abi.Uint8, x.c, x.stream)
	})
}

// gatherSingle is the library's own, if it has one.
func (x *calls) gatherSingle(op *backend.Op) {
	bytes := op.In.NBytes()
	if x.lib.Gather == nil || bytes == 0 {
		x.exchange(op)
		return
	}
	in, out := address(op.In), address(op.Out)
	x.do("ncclGather", func() abi.Result {
		if x.with != nil {
			return x.lib.GatherWith(in, out, uint64(bytes), abi.Uint8, int32(op.Root), x.c, x.stream, x.with)
		}
		return x.lib.Gather(in, out, uint64(bytes), abi.Uint8, int32(op.Root), x.c, x.stream)
	})
}

// exchange is messages between all ranks, or one and the others: each block of what a rank puts in goes to the rank
// that it's for.
func (x *calls) exchange(op *backend.Op) {
	row, me, n := op.Kind.Operation(), x.rank.rank, x.size
	if first := op.First(); first == nil || row.In != backend.List && row.Out != backend.List && first.NBytes() == 0 {
		return
	}
	var ins, outs []block
	if row.Takes(me, op.Root) {
		ins = blocks(row.In, op.In, op.Ins, op.InSplits, n)
	}
	if row.Gives(me, op.Root) {
		outs = blocks(row.Out, op.Out, op.Outs, op.OutSplits, n)
	}
	x.begin()
	for q := range n {
		switch {
		case len(ins) == n: // one for each
			x.send(ins[q].p, ins[q].bytes, q)
		case len(ins) == 1 && q == op.Root:
			x.send(ins[0].p, ins[0].bytes, q)
		}
		switch {
		case row.Out >= backend.Whole && outs != nil:
			x.recv(outs[q].p, outs[q].bytes, q)
		case row.Out == backend.Part && q == op.Root:
			x.recv(outs[0].p, outs[0].bytes, q)
		}
	}
	x.end()
}

// block is a part of what a rank puts in, or gets.
type block struct {
	p     uintptr
	bytes int
}

// blocks are all of them.
func blocks(side backend.Side, t *tensor.Tensor, list []*tensor.Tensor, splits []int, n int) (all []block) {
	switch side {
	case backend.Part:
		return []block{{address(t), t.NBytes()}}
	case backend.List:
		for _, t := range list {
			all = append(all, block{address(t), t.NBytes()})
		}
	case backend.Whole:
		p := address(t)
		for q := range n {
			bytes := t.NBytes() / n
			if splits != nil {
				bytes = splits[q] * t.DType().Size()
			}
			all = append(all, block{p, bytes})
			p += uintptr(bytes)
		}
	}
	return all
}

// reduction is what combines elements.
func (x *calls) reduction(op *backend.Op) {
	dt, per, _ := x.lib.number(op.First().DType())
	red := x.redOp(op, dt)
	count := func(t *tensor.Tensor) uint64 { return uint64(t.NumEl() * per) }
	switch op.Kind {
	case backend.AllReduce:
		if n := count(op.In); n > 0 {
			x.do("ncclAllReduce", func() abi.Result {
				if x.with != nil {
					return x.lib.AllReduceWith(address(op.In), address(op.Out), n, dt, red, x.c, x.stream, x.with)
				}
				return x.lib.AllReduce(address(op.In), address(op.Out), n, dt, red, x.c, x.stream)
			})
		}
	case backend.Reduce:
		x.reduce(address(op.In), address(op.Out), count(op.In), dt, red, op.Root)
	case backend.ReduceScatterSingle:
		x.scatter(address(op.In), address(op.Out), count(op.Out), dt, red)
	default:
		x.scatterList(op, dt, per, red)
	}
}

func (x *calls) reduce(in, out uintptr, n uint64, dt abi.DataType, red abi.RedOp, root int) {
	if n > 0 {
		x.do("ncclReduce", func() abi.Result {
			if x.with != nil {
				return x.lib.ReduceWith(in, out, n, dt, red, int32(root), x.c, x.stream, x.with)
			}
			return x.lib.Reduce(in, out, n, dt, red, int32(root), x.c, x.stream)
		})
	}
}

func (x *calls) scatter(in, out uintptr, n uint64, dt abi.DataType, red abi.RedOp) {
	if n > 0 {
		x.do("ncclReduceScatter", func() abi.Result {
			if x.with != nil {
				return x.lib.ReduceScatterWith(in, out, n, dt, red, x.c, x.stream, x.with)
			}
			return x.lib.ReduceScatter(in, out, n, dt, red, x.c, x.stream)
		})
	}
}

// redOp returns an operation's reduction, which it makes for a factor.
func (x *calls) redOp(op *backend.Op, dt abi.DataType) abi.RedOp {
	of := op.First().DType()
	if of == dtype.Bool {
		return boolOps[op.Reduce.Kind]
	}
	if op.Reduce.Kind == backend.AvgKind && x.size == 1 {
		return abi.Sum // NCCL 2.31 refuses the average of one rank's 8-bit floats
	}
	if op.Reduce.Kind != backend.PremulSumKind {
		return redOps[op.Reduce.Kind]
	}
	factor, where := op.Reduce.FactorTensor, abi.ScalarHostImmediate
	if factor == nil {
		part := map[dtype.DType]dtype.DType{dtype.Complex64: dtype.Float32, dtype.Complex128: dtype.Float64}[of]
		if part == dtype.Invalid {
			part = of
		}
		factor = tensor.Must(tensor.Empty(part))
		if err := factor.Fill(op.Reduce.Factor); err != nil && x.err == nil {
			x.err = err
		}
	} else if !factor.OnHost() {
		where = abi.ScalarDevice
	}
	made := new(abi.RedOp)
	x.do("ncclRedOpCreatePreMulSum", func() abi.Result {
		return x.lib.RedOpCreatePreMulSum(made, factor.Pointer(), dt, where, x.c)
	})
	runtime.KeepAlive(factor)
	if x.err == nil {
		x.made = append(x.made, *made)
	}
	return *made
}

// scan is a reduce-scatter in which each rank has what it puts in for the ranks from itself on, and what changes
// nothing for those before it: no library has the operation.
func (x *calls) scan(op *backend.Op) {
	bytes, me, n := op.In.NBytes(), x.rank.rank, x.size
	if bytes == 0 || x.err != nil {
		return
	}
	dt, per, _ := x.lib.number(op.In.DType())
	all := x.stage(op, op.In.DType(), n*op.In.NumEl())
	if x.err != nil {
		return
	}
	ctx := device.WithStream(context.Background(), op.Stream)
	for q := range n {
		block := tensor.Must(all.Narrow(0, q*op.In.NumEl(), op.In.NumEl()))
		if q >= me {
			x.copy(op, address(block), address(op.In), bytes)
		} else if err := tensor.Fill(ctx, block, neutral(op.Reduce.Kind, op.In.DType())); err != nil {
			x.err = err
			return
		}
	}
	x.scatter(address(all), address(op.Out), uint64(op.In.NumEl()*per), dt, x.redOp(op, dt))
}

// neutral is what a reduction changes nothing by.
func neutral(k backend.ReduceKind, dt dtype.DType) any {
	if dt == dtype.Bool {
		return boolOps[k] == abi.Min
	}
	switch {
	case k == backend.ProductKind:
		return 1
	case k == backend.SumKind && dt.IsFloating():
		return math.Copysign(0, -1)
	case k != backend.MinKind && k != backend.MaxKind:
		return 0
	case dt == dtype.Float8E4M3FN: // has no infinity
		return map[backend.ReduceKind]float64{backend.MinKind: 448, backend.MaxKind: -448}[k]
	case dt.IsFloating():
		return math.Inf(map[backend.ReduceKind]int{backend.MinKind: 1, backend.MaxKind: -1}[k])
	}
	bits := 8 * dt.Size()
	if !dt.IsSigned() {
		return map[backend.ReduceKind]uint64{backend.MinKind: math.MaxUint64 >> (64 - bits), backend.MaxKind: 0}[k]
	}
	return map[backend.ReduceKind]int64{backend.MinKind: math.MaxInt64 >> (64 - bits),
		backend.MaxKind: math.MinInt64 >> (64 - bits)}[k]
}
