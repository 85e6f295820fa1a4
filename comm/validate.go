package comm

import (
	"fmt"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// validate checks everything that one rank can know about a call. It allocates only
// to report what is wrong.
func (c *Comm) validate(o *call) error {
	if err := c.usable(o.Ctx, o.Kind.String()); err != nil {
		return err
	}
	if o.noneAt != 0 {
		return c.noOption(o.Kind.String(), o.noneAt)
	}
	if o.Timeout <= 0 {
		return c.invalid(o.Kind.String(), "timeout %v", o.Timeout)
	}
	if o.Hints != nil { // going over a map takes a while even if there's none
		for k := range o.Hints {
			if !c.opHints.Has(k) {
				return c.invalid(o.Kind.String(), "unknown hint %q; an operation takes %v", k, c.opHints)
			}
		}
	}
	detail := c.check(o)
	if detail == "" {
		detail = c.placed(o)
	}
	if detail != "" {
		return c.invalid(o.Kind.String(), "%s", detail)
	}
	return nil
}

// noOption is the error of a call with a nil option; at counts from 1.
func (c *Comm) noOption(op string, at int) error { return c.invalid(op, "option %d is nil", at) }

// check returns what is wrong with a call, or "".
func (c *Comm) check(o *call) string {
	if o.hasInto && o.Kind != backend.AllReduce && o.Kind != backend.Reduce {
		return "Into applies to all_reduce and reduce only"
	}
	if o.from != nil && o.Kind != backend.Recv {
		return "From applies to recv only"
	}
	switch o.Kind {
	case backend.Send:
		return firstOf(c.peer(o.Peer, "destination"), tag(o.Tag), one("tensor", o.In, dtype.Invalid))
	case backend.Recv:
		if o.Peer == AnySource {
			return firstOf(tag(o.Tag), one("tensor", o.Out, dtype.Invalid))
		}
		return firstOf(c.peer(o.Peer, "source"), tag(o.Tag), one("tensor", o.Out, dtype.Invalid))
	case backend.Broadcast:
		return firstOf(c.peer(o.Root, "root"), one("tensor", o.Out, dtype.Invalid))
	case backend.AllReduce:
		return firstOf(one("tensor", o.In, dtype.Invalid), c.result(o, o.In, 1), c.reduction(o, o.In))
	case backend.Reduce:
		bad := firstOf(c.peer(o.Root, "root"), one("tensor", o.In, dtype.Invalid), c.reduction(o, o.In))
		if bad == "" && c.rank == o.Root {
			bad = c.result(o, o.In, 1)
		}
		return bad
	case backend.AllGatherSingle:
		return firstOf(one("input", o.In, dtype.Invalid), c.result(o, o.In, c.size))
	case backend.GatherSingle:
		bad := firstOf(c.peer(o.Root, "root"), one("input", o.In, dtype.Invalid))
		if bad == "" && c.rank == o.Root {
			bad = c.result(o, o.In, c.size)
		}
		return bad
	case backend.ReduceScatterSingle:
		bad := firstOf(one("output", o.Out, dtype.Invalid), one("input", o.In, kindOf(o.Out)), c.reduction(o, o.In))
		if bad == "" && o.In.NumEl() != c.size*o.Out.NumEl() {
			bad = fmt.Sprintf("the input has %d elements; it must have %d, %d for each of %d ranks", o.In.NumEl(), c.size*o.Out.NumEl(), o.Out.NumEl(), c.size)
		}
		if bad == "" {
			bad = inPlaceOrApart(o.In, o.Out, c.rank)
		}
		return bad
	case backend.AllToAllSingle:
		bad := firstOf(one("input", o.In, dtype.Invalid), c.result(o, o.In, 1))
		if bad == "" && o.In.NumEl()%c.size != 0 {
			bad = fmt.Sprintf("%d elements are not divisible by the world size %d", o.In.NumEl(), c.size)
		}
		if bad == "" && overlap(o.In, o.Out) {
			bad = "input and output overlap"
		}
		return bad
	case backend.AllToAllVSingle:
		return c.checkSplits(o)
	case backend.AllGather:
		return firstOf(one("tensor", o.In, dtype.Invalid), c.list("output", o.Outs, o.In, true), apart(o.In, o.Outs, c.rank))
	case backend.AllGatherV:
		bad := firstOf(one("tensor", o.In, dtype.Invalid), c.list("output", o.Outs, o.In, false), apart(o.In, o.Outs, c.rank))
		if bad == "" && o.Outs[c.rank].NumEl() != o.In.NumEl() {
			bad = fmt.Sprintf("output %d, this rank's own, has %d elements and the input %d", c.rank, o.Outs[c.rank].NumEl(), o.In.NumEl())
		}
		return bad
	case backend.Gather:
		bad := firstOf(c.peer(o.Root, "root"), one("tensor", o.In, dtype.Invalid))
		if bad == "" && c.rank == o.Root {
			bad = firstOf(c.list("output", o.Outs, o.In, true), apart(o.In, o.Outs, c.rank))
		}
		return bad
	case backend.ReduceScatter, backend.ReduceScatterV:
		bad := firstOf(one("output", o.Out, dtype.Invalid), c.list("input", o.Ins, o.Out, o.Kind == backend.ReduceScatter), c.reduction(o, o.Out), apart(o.Out, o.Ins, -1))
		if bad == "" && o.Ins[c.rank].NumEl() != o.Out.NumEl() {
			bad = fmt.Sprintf("input %d, this rank's own, has %d elements and the output %d", c.rank, o.Ins[c.rank].NumEl(), o.Out.NumEl())
		}
		return bad
	case backend.Scatter:
		bad := firstOf(c.peer(o.Root, "root"), one("output", o.Out, dtype.Invalid))
		if bad == "" && c.rank == o.Root {
			bad = firstOf(c.list("input", o.Ins, o.Out, true), apart(o.Out, o.Ins, c.rank))
		}
		return bad
	case backend.AllToAll:
		if len(o.Ins) != c.size { // before the first is looked at
			return fmt.Sprintf("the input list has %d tensors; it must have %d, one per rank", len(o.Ins), c.size)
		}
		bad := firstOf(one("input 0", o.Ins[0], dtype.Invalid), c.list("input", o.Ins, o.Ins[0], false), c.list("output", o.Outs, o.Ins[0], false))
		if bad == "" && o.Ins[c.rank].NumEl() != o.Outs[c.rank].NumEl() {
			bad = fmt.Sprintf("input %d has %d elements and output %d has %d; what a rank sends itself it receives", c.rank, o.Ins[c.rank].NumEl(), c.rank, o.Outs[c.rank].NumEl())
		}
		for _, in := range o.Ins {
			if bad == "" {
				bad = apart(in, o.Outs, -1)
			}
		}
		return bad
	}
	return ""
}

func firstOf(details ...string) string {
	for _, d := range details {
		if d != "" {
			return d
		}
	}
	return ""
}

func (c *Comm) peer(rank int, what string) string {
	if rank < 0 || rank >= c.size {
		return fmt.Sprintf("%s must be in range [0, %d), but got %d", what, c.size, rank)
	}
	return ""
}

func tag(t int) string {
	if t < 0 {
		return fmt.Sprintf("negative tag %d", t)
	}
	return ""
}

func kindOf(t *tensor.Tensor) dtype.DType {
	if t == nil {
		return dtype.Invalid
	}
	return t.DType()
}

// one checks a tensor by itself; want is Invalid if any dtype will do.
func one(what string, t *tensor.Tensor, want dtype.DType) string {
	switch {
	case t == nil:
		return what + " is nil"
	case !t.IsContiguous():
		return what + " is not contiguous; pass its Contiguous() copy"
	case want != dtype.Invalid && t.DType() != want:
		return fmt.Sprintf("%s is of dtype %v, not %v", what, t.DType(), want)
	}
	return ""
}

// list checks a list with one tensor per rank, all like model in dtype and, if equal, in size.
func (c *Comm) list(what string, ts []*tensor.Tensor, model *tensor.Tensor, equal bool) string {
	if model == nil {
		return "" // reported elsewhere
	}
	if len(ts) != c.size {
		return fmt.Sprintf("the %s list has %d tensors; it must have %d, one per rank", what, len(ts), c.size)
	}
	for i, t := range ts {
		if t == nil || !t.IsContiguous() || t.DType() != model.DType() {
			return one(fmt.Sprintf("%s %d", what, i), t, model.DType())
		}
		if equal && t.NumEl() != model.NumEl() {
			return fmt.Sprintf("%s %d has %d elements, not %d", what, i, t.NumEl(), model.NumEl())
		}
	}
	if what == "output" {
		for i := range ts {
			for j := range i {
				if overlap(ts[i], ts[j]) {
					return fmt.Sprintf("outputs %d and %d overlap", j, i)
				}
			}
		}
	}
	return ""
}

// result checks the output that belongs to an input: factor times its elements.
func (c *Comm) result(o *call, in *tensor.Tensor, factor int) string {
	if in == nil {
		return ""
	}
	out := o.Out
	if out == in {
		return ""
	}
	if bad := one("output", out, in.DType()); bad != "" {
		return bad
	}
	if out.NumEl() != factor*in.NumEl() {
		return fmt.Sprintf("the output has %d elements; it must have %d", out.NumEl(), factor*in.NumEl())
	}
	if factor == 1 && o.Kind != backend.AllToAllSingle {
		if overlap(in, out) && in.Pointer() != out.Pointer() {
			return "input and output overlap in part"
		}
		return ""
	}
	return inPlaceOrApart(out, in, c.rank)
}

// inPlaceOrApart demands that small is block rank of large, or elsewhere.
func inPlaceOrApart(large, small *tensor.Tensor, rank int) string {
	if !overlap(large, small) || small.Pointer() == unsafe.Add(large.Pointer(), rank*small.NBytes()) {
		return ""
	}
	return "input and output overlap, but not as this rank's block"
}

// apart demands that t overlaps no tensor of the list except the one at index own, which may be t itself.
func apart(t *tensor.Tensor, ts []*tensor.Tensor, own int) string {
	for i, x := range ts {
		if overlap(t, x) && !(i == own && x.Pointer() == t.Pointer() && x.NBytes() == t.NBytes()) {
			return fmt.Sprintf("input and output overlap (list entry %d)", i)
		}
	}
	return ""
}

// overlap reports whether two tensors share memory; nil ones, which other checks report, do not.
func overlap(a, b *tensor.Tensor) bool {
	if a == nil || b == nil || a.NBytes() == 0 || b.NBytes() == 0 {
		return false
	}
	x, y := uintptr(a.Pointer()), uintptr(b.Pointer())
	return x < y+uintptr(b.NBytes()) && y < x+uintptr(a.NBytes())
}

// reduction checks that the reduction is defined on the tensor's dtype.
func (c *Comm) reduction(o *call, t *tensor.Tensor) string {
	r := o.Reduce
	if t == nil {
		return ""
	}
	if r.Kind < backend.SumKind || r.Kind > backend.PremulSumKind {
		return fmt.Sprintf("no such reduction: %d", r.Kind)
	}
	if !reducible[r.Kind][t.DType()] {
		return fmt.Sprintf("reduction %v is not defined on dtype %v", r.Kind, t.DType())
	}
	if f := r.FactorTensor; f != nil {
		if f.NumEl() != 1 || f.DType() != t.DType() {
			return fmt.Sprintf("the factor must be one element of dtype %v, but is %d of %v", t.DType(), f.NumEl(), f.DType())
		}
		if t.DType().IsComplex() {
			return "a factor tensor must not be complex"
		}
	}
	return ""
}

// checkSplits checks an all-to-all with splits and turns them from rows into elements.
func (c *Comm) checkSplits(o *call) string {
	if bad := firstOf(one("input", o.In, dtype.Invalid), one("output", o.Out, kindOf(o.In))); bad != "" {
		return bad
	}
	if overlap(o.In, o.Out) {
		return "input and output overlap"
	}
	in, bad := c.splits("input", o.In, o.InSplits)
	if bad != "" {
		return bad
	}
	out, bad := c.splits("output", o.Out, o.OutSplits)
	if bad != "" {
		return bad
	}
	if in[c.rank] != out[c.rank] {
		return fmt.Sprintf("this rank sends itself %d elements and receives %d", in[c.rank], out[c.rank])
	}
	o.InSplits, o.OutSplits = in, out
	return ""
}

func (c *Comm) splits(what string, t *tensor.Tensor, rows []int) ([]int, string) {
	if len(rows) != c.size {
		return nil, fmt.Sprintf("there are %d %s splits; there must be %d, one per rank", len(rows), what, c.size)
	}
	height, width := 1, t.NumEl()
	if shape := t.Shape(); len(shape) > 0 {
		height, width = shape[0], 1
		for _, d := range shape[1:] {
			width *= d
		}
	}
	sum := 0
	elems := make([]int, len(rows))
	for i, n := range rows {
		if n < 0 || n > height {
			return nil, fmt.Sprintf("%s split %d is %d, of %d rows", what, i, n, height)
		}
		sum += n
		elems[i] = n * width
	}
	if sum > height {
		return nil, fmt.Sprintf("the %s splits add up to %d, more than the tensor's %d rows", what, sum, height)
	}
	return elems, ""
}
