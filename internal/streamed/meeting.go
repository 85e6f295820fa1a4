package streamed

import (
	"context"
	"fmt"
	"strings"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/kern"
	"github.com/chorus-comms/chorus/tensor"
)

// key says which parts belong together.
type key struct {
	kind     backend.Kind // Send: a message; else a collective
	split    bool
	seq, run uint64
	from, to int // of a message
}

// part is what one rank brings.
type part struct {
	rank int        // of a message: 0 for the sender, 1 for the receiver
	op   backend.Op // with tensors that the process can touch
	list []int      // of a split
}

// meeting is where the parts of one operation come together.
type meeting struct {
	parts  []*part // by rank
	come   int
	done   chan struct{} // closed when err is there
	err    error
	groups map[int]*group // of a split, by the first in the list
}

// arrive brings a part. The last one to come acts for all.
func (g *group) arrive(k key, p *part, n int, act func(m *meeting) error) *meeting {
	g.mu.Lock()
	m := g.meetings[k]
	if m == nil {
		m = &meeting{parts: make([]*part, n), done: make(chan struct{})}
		g.meetings[k] = m
	}
	m.parts[p.rank] = p
	m.come++
	all := m.come == n
	if all {
		delete(g.meetings, k)
	}
	g.mu.Unlock()
	if all {
		m.err = act(m)
		close(m.done)
	}
	return m
}

// await waits for the end, unless the communicator breaks, or ctx ends, before all have come.
func (r *rank) await(ctx context.Context, k key, p *part, m *meeting) error {
	select {
	case <-m.done:
		return m.err
	case <-ctx.Done():
	case <-r.Broken():
	}
	g := r.group
	g.mu.Lock()
	if m.come == len(m.parts) {
		g.mu.Unlock()
		<-m.done
		return m.err
	}
	if m.parts[p.rank], m.come = nil, m.come-1; m.come == 0 {
		delete(g.meetings, k)
	}
	g.mu.Unlock()
	if r.Raised() {
		return r.Err(r.Where())
	}
	return context.Cause(ctx)
}

// meet brings a part and waits.
func (r *rank) meet(ctx context.Context, k key, p *part, act func(m *meeting) error) (*meeting, error) {
	m := r.group.arrive(k, p, len(r.group.ranks), act)
	return m, r.await(ctx, k, p, m)
}

// attendance says who is in a collective that not all have come to.
func (g *group) attendance(seq uint64) (arrived, missing []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for k, m := range g.meetings {
		if k.kind == backend.Send || k.split || k.seq != seq {
			continue
		}
		for r, p := range m.parts {
			if p == nil {
				missing = append(missing, r)
			} else {
				arrived = append(arrived, r)
			}
		}
		break
	}
	return arrived, missing
}

// differ is the error of parts that don't fit; nil if a and b say the same.
func differ(at backend.Where, ra, rb int, a, b string) error {
	if a == b {
		return nil
	}
	return &backend.MismatchError{Where: at, RankA: ra, RankB: rb, OpA: a, OpB: b}
}

// size is how a message is called in errors.
func size(t *tensor.Tensor) string { return fmt.Sprintf("%v[%d]", t.DType(), t.NumEl()) }

// message moves the data of a send to its receive.
func (r *rank) message(m *meeting) error {
	from, to := m.parts[0].op, m.parts[1].op
	if err := differ(r.Of(&to), to.Peer, from.Peer, size(from.In), size(to.Out)); err != nil {
		r.Fail(err)
		return err
	}
	copy(data(to.Out), data(from.In))
	return nil
}

// collective does what the table says of an operation. All results are there before the first is delivered, since
// outputs may be inputs.
func (r *rank) collective(m *meeting) error {
	n, op := len(m.parts), &m.parts[0].op
	row := op.Kind.Operation()
	fail := func(err error) error {
		if err != nil {
			r.Fail(err)
		}
		return err
	}
	ins, outs, results := make([][][]byte, n), make([][][]byte, n), make([][][]byte, n)
	for q, p := range m.parts {
		if err := fail(differ(r.Of(op), 0, q, describe(op, n), describe(&p.op, n))); err != nil {
			return err
		}
		if row.Gives(q, op.Root) {
			outs[q] = blocks(row.Out, p.op.Out, p.op.Outs, p.op.OutSplits, n)
		}
		if ins[q] = outs[q]; row.In != backend.Nothing { // a broadcast's source is its output
			ins[q] = nil
		}
		if row.Takes(q, op.Root) {
			ins[q] = blocks(row.In, p.op.In, p.op.Ins, p.op.InSplits, n)
		}
	}
	for q := range outs {
		for b, out := range outs[q] {
			first, end, block := row.Sources(q, n, op.Root, b)
			for s := first; s < end; s++ {
				if in := ins[s][block]; len(in) != len(out) {
					return fail(differ(r.Of(op), s, q, fmt.Sprintf("%v with %d bytes for rank %d", op.Kind, len(in), q),
						fmt.Sprintf("%v with %d bytes from rank %d", op.Kind, len(out), s)))
				}
			}
			result := room(len(out))
			if results[q] = append(results[q], result); len(out) == 0 {
				continue
			}
			if !row.Reduces {
				copy(result, ins[first][block])
				continue
			}
			srcs := make([]unsafe.Pointer, end-first)
			for s := range srcs {
				srcs[s] = scaled(&m.parts[first+s].op, ins[first+s][block])
			}
			dt := op.First().DType()
			kern.Reduce(op.Reduce.Kind.Kernel(), dt, []unsafe.Pointer{unsafe.Pointer(&result[0])}, srcs, len(out)/dt.Size())
			if op.Reduce.Kind == backend.AvgKind {
				kern.Average(dt, unsafe.Pointer(&result[0]), len(out)/dt.Size(), n)
			}
		}
	}
	for q := range outs {
		for b, out := range outs[q] {
			copy(out, results[q][b])
		}
	}
	return nil
}

// scaled is a rank's block as it goes into a reduction.
func scaled(op *backend.Op, in []byte) unsafe.Pointer {
	if op.Reduce.Kind != backend.PremulSumKind {
		return unsafe.Pointer(&in[0])
	}
	factor := op.Reduce.Factor
	if t := op.Reduce.FactorTensor; t != nil {
		factor = t.At(make([]int, t.Dim())...)
	}
	dt, out := op.First().DType(), room(len(in))
	kern.Scale(dt, unsafe.Pointer(&out[0]), unsafe.Pointer(&in[0]), len(in)/dt.Size(), factor)
	return unsafe.Pointer(&out[0])
}

// room is memory that is aligned for every type.
func room(bytes int) []byte {
	words := make([]complex128, bytes/16+1)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*16)[:bytes]
}

// data is a tensor's memory.
func data(t *tensor.Tensor) []byte { return unsafe.Slice((*byte)(t.Pointer()), t.NBytes()) }

// blocks cuts what a rank puts in, or gets, into its blocks.
func blocks(side backend.Side, t *tensor.Tensor, list []*tensor.Tensor, splits []int, n int) (all [][]byte) {
	switch side {
	case backend.Part:
		return [][]byte{data(t)}
	case backend.List:
		for _, t := range list {
			all = append(all, data(t))
		}
	case backend.Whole:
		rest := data(t)
		for q := range n {
			size := t.NBytes() / n
			if splits != nil {
				size = splits[q] * t.DType().Size()
			}
			all, rest = append(all, rest[:size]), rest[size:]
		}
	}
	return all
}

// describe says what all ranks of n must have in common.
func describe(op *backend.Op, n int) string {
	row, first := op.Kind.Operation(), op.First()
	if first == nil {
		return row.Name
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%v(%v", row.Name, first.DType())
	if !row.Uneven {
		count := first.NumEl()
		if op.In != nil && row.In == backend.Whole {
			count /= n
		}
		fmt.Fprintf(&b, "[%d]", count)
	}
	if row.Reduces {
		fmt.Fprintf(&b, ", %v", op.Reduce.Kind)
	}
	if row.Root {
		fmt.Fprintf(&b, ", root %d", op.Root)
	}
	return b.String() + ")"
}
