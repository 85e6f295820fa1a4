package native

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/internal/hash64"
	"github.com/chorus-comms/chorus/kern"
	"github.com/chorus-comms/chorus/plan"
	"github.com/chorus-comms/chorus/tensor"
)

// collectiveOf maps an operation to the collective that carries it out.
var collectiveOf = [...]plan.Collective{
	backend.Broadcast: plan.Broadcast, backend.AllReduce: plan.AllReduce, backend.Reduce: plan.Reduce,
	backend.AllGather: plan.AllGather, backend.AllGatherSingle: plan.AllGather, backend.AllGatherV: plan.AllGather,
	backend.ReduceScatter: plan.ReduceScatter, backend.ReduceScatterSingle: plan.ReduceScatter, backend.ReduceScatterV: plan.ReduceScatter,
	backend.AllToAll: plan.AllToAll, backend.AllToAllSingle: plan.AllToAll, backend.AllToAllVSingle: plan.AllToAll,
	backend.Barrier: plan.Barrier, backend.Scatter: plan.Scatter, backend.Gather: plan.Gather, backend.GatherSingle: plan.Gather,
}

// request fills q and j from op. It touches no data: what lists and factors need is prepare's.
func (g *group) request(op *backend.Op, t *tuning, q *plan.Request, j *job) {
	n := len(g.members)
	*q = plan.Request{Collective: collectiveOf[op.Kind], World: n, Rank: g.rank, Root: op.Root, Topo: g.topo, StageBytes: g.stageBytes, ChunkBytes: t.chunk}
	*j = job{stores: t.prefer.stores}
	if first := op.First(); first != nil {
		j.dt = first.DType()
		j.elem = j.dt.Size()
	}
	q.ElemSize = j.elem
	switch op.Kind {
	case backend.Barrier:
		q.ElemSize = 1
	case backend.Broadcast:
		q.Count, q.InPlace = op.Out.NumEl(), true
		j.set(nil, op.Out)
		if g.rank == op.Root {
			j.in, j.inBytes = j.out, j.outBytes
		}
	case backend.AllReduce:
		q.Count = op.In.NumEl()
		j.set(op.In, op.Out)
		q.InPlace = j.in == j.out
	case backend.Reduce:
		q.Count = op.In.NumEl()
		j.set(op.In, op.Out) // Out is the root's alone
		q.InPlace = j.in == j.out
	case backend.AllGatherSingle, backend.GatherSingle:
		q.Count = op.In.NumEl()
		j.set(op.In, op.Out)
		q.InPlace = j.outBytes > 0 && j.in == unsafe.Add(j.out, g.rank*j.inBytes)
	case backend.AllGather, backend.Gather:
		q.Count = op.In.NumEl()
		j.set(op.In, nil)
	case backend.AllGatherV:
		q.Counts = counts(op.Outs)
		j.set(op.In, nil)
	case backend.ReduceScatterSingle:
		q.Count = op.Out.NumEl()
		j.set(op.In, op.Out)
		q.InPlace = j.outBytes > 0 && j.out == unsafe.Add(j.in, g.rank*j.outBytes)
	case backend.ReduceScatter, backend.Scatter:
		q.Count = op.Out.NumEl()
		j.set(nil, op.Out)
	case backend.ReduceScatterV:
		q.Counts = counts(op.Ins)
		j.set(nil, op.Out)
	case backend.AllToAllSingle:
		q.Count = op.In.NumEl() / n
		j.set(op.In, op.Out)
	case backend.AllToAllVSingle:
		q.SendCounts, q.RecvCounts = op.InSplits, op.OutSplits
		j.set(op.In, op.Out)
	case backend.AllToAll:
		q.SendCounts, q.RecvCounts = counts(op.Ins), counts(op.Outs)
	}
	if q.Collective.Reduces() {
		j.red = op.Reduce.Kind.Kernel()
		j.average = op.Reduce.Kind == backend.AvgKind
		if op.Reduce.Kind == backend.PremulSumKind { // prepare leaves the scaled input elsewhere
			q.InPlace = q.Collective == plan.AllReduce
		}
	}
}

// unpacking is what is left to do after an operation on a list: to empty a buffer into the list's tensors.
type unpacking struct {
	outs []*tensor.Tensor
	buf  unsafe.Pointer
}

// prepares reports whether prepare has work with an operation.
func prepares(op *backend.Op) bool {
	return op.Ins != nil || op.Outs != nil || op.Reduce.Kind == backend.PremulSumKind
}

// prepare gives the job its flat buffers: a list of tensors becomes one buffer, the
// tensors themselves if they lie one after the other, a packed copy otherwise; and
// an input that is to be scaled is scaled elsewhere.
func (g *group) prepare(op *backend.Op, j *job) (after unpacking, err error) {
	if op.Ins != nil {
		if err := g.pack(op.Ins, j); err != nil {
			return after, err
		}
	}
	if op.Outs != nil {
		if after, err = g.unpackLater(op.Outs, j); err != nil {
			return after, err
		}
	}
	if op.Reduce.Kind == backend.PremulSumKind {
		err = g.premultiply(op, j)
	}
	return after, err
}

func (j *job) set(in, out *tensor.Tensor) {
	if in != nil {
		j.in, j.inBytes = in.Pointer(), in.NBytes()
	}
	if out != nil {
		j.out, j.outBytes = out.Pointer(), out.NBytes()
	}
}

func counts(ts []*tensor.Tensor) []int {
	c := make([]int, len(ts))
	for i, t := range ts {
		c[i] = t.NumEl()
	}
	return c
}

// adjacent reports whether the tensors are views that lie one after the other in
// one storage, and how many bytes they are together.
func adjacent(ts []*tensor.Tensor) (start unsafe.Pointer, total int, ok bool) {
	ok = true
	var first *tensor.Tensor
	for _, t := range ts {
		n := t.NBytes()
		if n == 0 {
			continue
		}
		if first == nil {
			first, start = t, t.Pointer()
		} else if !t.SharesStorage(first) || uintptr(t.Pointer()) != uintptr(start)+uintptr(total) {
			ok = false
		}
		total += n
	}
	return start, total, ok
}

// pack makes the job's input of a list.
func (g *group) pack(ts []*tensor.Tensor, j *job) error {
	start, total, ok := adjacent(ts)
	if !ok {
		buf, err := g.scratch.take(total)
		if err != nil {
			return err
		}
		off := 0
		for _, t := range ts {
			kern.Copy(unsafe.Add(buf, off), t.Pointer(), t.NBytes())
			off += t.NBytes()
		}
		start = buf
	}
	j.in, j.inBytes = start, total
	return nil
}

// unpackLater makes the job's output of a list.
func (g *group) unpackLater(ts []*tensor.Tensor, j *job) (unpacking, error) {
	start, total, ok := adjacent(ts)
	j.out, j.outBytes = start, total
	if ok {
		return unpacking{}, nil
	}
	buf, err := g.scratch.take(total)
	if err != nil {
		return unpacking{}, err
	}
	j.out = buf
	return unpacking{outs: ts, buf: buf}, nil
}

func (u *unpacking) unpack() {
	off := 0
	for _, t := range u.outs {
		kern.Copy(t.Pointer(), unsafe.Add(u.buf, off), t.NBytes())
		off += t.NBytes()
	}
}

// premultiply scales this rank's input into memory that isn't the caller's input:
// the output of an all-reduce, scratch otherwise.
func (g *group) premultiply(op *backend.Op, j *job) error {
	if j.inBytes == 0 {
		return nil
	}
	factor := op.Reduce.Factor
	if t := op.Reduce.FactorTensor; t != nil {
		factor = t.At(make([]int, t.Dim())...)
	}
	scaled := j.out
	if op.Kind != backend.AllReduce {
		var err error
		if scaled, err = g.scratch.take(j.inBytes); err != nil {
			return err
		}
	}
	kern.Scale(j.dt, scaled, j.in, j.inBytes/j.elem, factor)
	j.in = scaled
	return nil
}

// A description is what ranks compare before they exchange data:
//
//	0 operation, 1 dtype, 2 reduction, 3 purpose, 4..7 root, 8..15 count,
//	16..23 hash of uneven counts (where all ranks know them), 24..31 hash of the hints
func fillDesc(d *fabric.Desc, k descKey, t *tuning, q *plan.Request) {
	*d = fabric.Desc{}
	d[0], d[1], d[3] = byte(k.kind), byte(k.dt), byte(k.purpose)
	if q.Collective.Reduces() {
		d[2] = byte(k.reduce)
	}
	if q.Collective.Rooted() {
		binary.LittleEndian.PutUint32(d[4:], uint32(q.Root))
	}
	binary.LittleEndian.PutUint64(d[8:], uint64(q.Count))
	if q.Counts != nil {
		binary.LittleEndian.PutUint64(d[16:], hash64.Ints(q.Counts))
	}
	binary.LittleEndian.PutUint64(d[24:], t.hash())
}

// descKey is what a description holds besides what the shape of an operation says.
type descKey struct {
	kind    backend.Kind
	dt      dtype.DType
	reduce  backend.ReduceKind
	purpose purpose
}

// describe returns the description of an operation of c's shape.
func (g *group) describe(op *backend.Op, c *compiled, dt dtype.DType) *fabric.Desc {
	if k := (descKey{op.Kind, dt, op.Reduce.Kind, g.purpose}); k != c.descOf {
		fillDesc(&c.desc, k, c.shape.tuned, &c.req)
		c.descOf = k
	}
	return &c.desc
}

// purpose is what a collective of the communicator's own is for; 0 for those of the program.
type purpose uint8

const (
	forSplit purpose = iota + 1
	forNewWindow
	forCloseWindow
)

var purposes = [...]string{"", "split", "new_window", "close_window"}

func (p purpose) String() string {
	if int(p) < len(purposes) {
		return purposes[p]
	}
	return fmt.Sprintf("purpose(%d)", uint8(p))
}

// own runs a collective of the communicator's own.
func (g *group) own(p purpose, op *backend.Op) error {
	g.purpose = p
	defer func() { g.purpose = 0 }()
	if err := g.Submit(op); err != nil {
		return err
	}
	return g.Wait(op)
}

// operation names what a description is of.
func operation(d fabric.Desc) string {
	if d[3] != 0 {
		return purpose(d[3]).String()
	}
	return backend.Kind(d[0]).String()
}

// describe says in words what a description holds.
func describe(d fabric.Desc) string {
	var b strings.Builder
	kind := backend.Kind(d[0])
	b.WriteString(operation(d))
	if kind == backend.Barrier || d[3] != 0 {
		return b.String()
	}
	fmt.Fprintf(&b, "(%v", dtype.DType(d[1]))
	uneven := binary.LittleEndian.Uint64(d[16:])
	if n := binary.LittleEndian.Uint64(d[8:]); n > 0 || uneven == 0 {
		fmt.Fprintf(&b, "[%d]", n)
	}
	if d[2] != 0 {
		fmt.Fprintf(&b, ", %v", backend.ReduceKind(d[2]))
	}
	if kind < backend.Kind(len(collectiveOf)) && collectiveOf[kind].Rooted() {
		fmt.Fprintf(&b, ", root %d", int32(binary.LittleEndian.Uint32(d[4:])))
	}
	if uneven != 0 {
		fmt.Fprintf(&b, ", sizes #%08x", uint32(uneven))
	}
	if h := binary.LittleEndian.Uint64(d[24:]); h != 0 {
		fmt.Fprintf(&b, ", hints #%08x", uint32(h))
	}
	b.WriteString(")")
	return b.String()
}
