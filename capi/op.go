//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"context"
	"unsafe"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// call is room for one operation: what it takes to turn a chorus_op into a comm.Op
// without allocating.
type call struct {
	op        comm.Op
	in, out   tensor.Header
	factor    tensor.Header
	ins, outs list
	inSplits  []int
	outSplits []int
	asking    *asking
	work      comm.Work // of an asynchronous one
}

// list is room for a list of tensors.
type list struct {
	headers []tensor.Header
	ts      []*tensor.Tensor
}

// set fills the list, which keeps its room.
func (l *list) set(what string, dt dtype.DType, bs []C.chorus_buffer, at location) ([]*tensor.Tensor, error) {
	if cap(l.headers) < len(bs) {
		l.headers, l.ts = make([]tensor.Header, len(bs)), make([]*tensor.Tensor, len(bs))
	}
	l.ts = l.ts[:len(bs)]
	for i, b := range bs {
		t, err := at.tensor(&l.headers[:len(bs)][i], dt, b.data, int(b.count))
		if err != nil {
			return nil, refused("%s %d: %v", what, i, err)
		}
		l.ts[i] = t
	}
	return l.ts, nil
}

// splits copies split sizes into room that is kept.
func splits(room *[]int, s []C.int64_t) []int {
	*room = (*room)[:0]
	for _, n := range s {
		*room = append(*room, int(n))
	}
	return *room
}

// fill turns o into k.op. ctx is what bounds a synchronous operation.
func (k *call) fill(m *communicator, o *C.chorus_op, ctx context.Context) error {
	if o == nil {
		return refused("chorus_submit got NULL")
	}
	if err := sized("chorus_op", o.size, unsafe.Sizeof(*o)); err != nil {
		return err
	}
	if o.kind <= 0 || o.kind > 255 || !comm.Kind(o.kind).Valid() {
		return refused("there is no operation %d", o.kind)
	}
	row := comm.Kind(o.kind).Operation()
	op := &k.op
	*op = comm.Op{Kind: comm.Kind(o.kind), Root: int(o.root), Peer: int(o.peer), Tag: int(o.tag), Ctx: ctx,
		Timeout: timeout(o.timeout_ns), Site: uint16(o.site)}
	if row.In == backend.Nothing && row.Out == backend.Nothing {
		return k.settings(o)
	}
	if o.dtype <= 0 || o.dtype >= dtype.Count {
		return refused("%v: there is no dtype %d", op.Kind, o.dtype)
	}
	dt := dtype.DType(o.dtype)
	at, err := m.locate(o.device)
	if err != nil {
		return err
	}
	takes, gives := row.Takes(m.Rank(), op.Root), row.Gives(m.Rank(), op.Root)
	if takes && row.In != backend.List {
		if op.In, err = at.tensor(&k.in, dt, o.in, int(o.in_count)); err != nil {
			return refused("%v: input: %v", op.Kind, err)
		}
	}
	if gives && row.Out != backend.List {
		if op.In != nil && o.out == o.in && o.out_count == o.in_count {
			op.Out = op.In
		} else if op.Out, err = at.tensor(&k.out, dt, o.out, int(o.out_count)); err != nil {
			return refused("%v: output: %v", op.Kind, err)
		}
	}
	if row.In == backend.List || row.Out == backend.List || row.Splits() {
		if err := k.lists(o, row, dt, takes, gives, m.Size(), at); err != nil {
			return err
		}
	}
	if row.Reduces {
		op.Reduce = comm.Reduction{Kind: backend.ReduceKind(max(0, min(o.reduction, 255))), Factor: float64(o.factor)}
		if o.factor_data != nil && op.Reduce.Kind == backend.PremulSumKind {
			if op.Reduce.FactorTensor, err = anywhere().tensor(&k.factor, dt, unsafe.Pointer(o.factor_data), 1); err != nil {
				return refused("%v: factor: %v", op.Kind, err)
			}
		}
	}
	return k.settings(o)
}

// lists fills the lists and splits that an operation uses.
func (k *call) lists(o *C.chorus_op, row *backend.Operation, dt dtype.DType, takes, gives bool, ranks int,
	at location) (err error) {
	n := o.n_lists
	missing := func(what string) error { return refused("%v: n_lists is %d and %s is NULL", k.op.Kind, n, what) }
	if n < 0 || n > C.CHORUS_MAX_RANKS {
		return refused("%v: n_lists is %d", k.op.Kind, n)
	}
	if int(n) != ranks { // it's refused by its length, and nothing of it is read
		k.op.Ins, k.op.Outs = make([]*tensor.Tensor, n), make([]*tensor.Tensor, n)
		k.op.InSplits, k.op.OutSplits = make([]int, n), make([]int, n)
		return nil
	}
	if row.In == backend.List && takes {
		if o.ins == nil && n > 0 {
			return missing("ins")
		}
		if k.op.Ins, err = k.ins.set("input", dt, slice(o.ins, n), at); err != nil {
			return err
		}
	}
	if row.Out == backend.List && gives {
		if o.outs == nil && n > 0 {
			return missing("outs")
		}
		if k.op.Outs, err = k.outs.set("output", dt, slice(o.outs, n), at); err != nil {
			return err
		}
	}
	if row.Splits() {
		if (o.in_splits == nil || o.out_splits == nil) && n > 0 {
			return missing("in_splits or out_splits")
		}
		k.op.InSplits, k.op.OutSplits = splits(&k.inSplits, slice(o.in_splits, n)), splits(&k.outSplits, slice(o.out_splits,
			n))
	}
	return nil
}

// settings fills in what every operation may carry.
func (k *call) settings(o *C.chorus_op) (err error) {
	if o.n_hints != 0 {
		k.op.Hints, err = hints(o.hints, o.n_hints)
	}
	return err
}

// results writes what a synchronous operation found out.
func (k *call) results(o *C.chorus_op) {
	o.source, o.seq = -1, C.uint64_t(k.op.Seq)
	if k.op.Kind == backend.Recv {
		o.source = C.int32_t(k.op.From)
	}
}

// context returns what a synchronous operation of this call watches.
func (k *call) context(checked C.int32_t) context.Context {
	if checked == 0 {
		return context.Background()
	}
	if k.asking == nil || k.asking.over.Load() {
		k.asking = newAsking()
	}
	k.asking.begin()
	return k.asking
}

// interrupted tells an operation that the host gave up from one that failed on its own.
func (k *call) interrupted(err error, checked C.int32_t) error {
	if err != nil && checked != 0 && k.asking.over.Load() {
		return &interruptedError{err}
	}
	return err
}

// interruptedError is the error of an operation that the host gave up.
type interruptedError struct{ err error }

func (e *interruptedError) Error() string { return "interrupted: " + e.err.Error() }
func (e *interruptedError) Unwrap() error { return e.err }

// borrow returns a call for a synchronous operation; giveBack ends its use.
func (m *communicator) borrow() *call {
	if k := m.idle.Swap(nil); k != nil {
		return k
	}
	return new(call)
}

func (m *communicator) giveBack(k *call) { m.idle.Store(k) }

//export goSubmit
func goSubmit(h C.chorus_comm, o *C.chorus_op, checked C.int32_t,
	currents *C.struct_shim_current) (status C.chorus_status) {
	defer contain(&status)
	m, err := find(h)
	if err != nil {
		return fail(err)
	}
	k, kept := m.borrow(), false
	ctx := k.context(checked)
	if m.Stream() == nil {
		err = k.fill(m, o, ctx)
	} else if err = k.fillOn(m, o, ctx, currents); err == nil {
		kept = !k.onHost()
	}
	if err == nil {
		err = k.interrupted(m.Submit(&k.op, nil), checked)
		if kept = kept && !k.op.Over; kept { // it's the stream's now
			o.source, o.seq = -1, 0
		} else {
			k.results(o)
		}
	}
	if !kept {
		m.giveBack(k)
	}
	if err != nil {
		return fail(err)
	}
	return C.CHORUS_OK
}

//export goIssue
func goIssue(h C.chorus_comm, o *C.chorus_op, out *C.chorus_work, mayWait C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	*out = 0
	m, err := find(h)
	if err != nil {
		return fail(err)
	}
	k := new(call)
	w := &work{m: m}
	ctx := context.Background()
	if o != nil && comm.Kind(o.kind).PointToPoint() {
		ctx = &w.canceled
	}
	if m.Stream() == nil {
		err = k.fill(m, o, ctx)
	} else if err = k.fillOn(m, o, ctx, nil); err == nil && mayWait == 0 && m.waits(k) {
		return C.CHORUS_PENDING
	}
	if err == nil {
		err = m.Submit(&k.op, &k.work)
	}
	if err != nil {
		return fail(err)
	}
	w.parts, w.ops = []part{&k.work}, []*call{k}
	return fail(giveWork(w, out))
}
