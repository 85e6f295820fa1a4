package comm

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// validate checks everything that one rank can know about a call. It allocates only
// to report what is wrong.
func (c *Comm) validate(x *placement, o *call) error {
	if err := c.usable(o.Ctx, o.Kind.String()); err != nil {
		return err
	}
	if o.nilOption != 0 {
		return c.noOption(o.Kind.String(), o.nilOption)
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
		detail = c.placed(x, o)
	}
	if detail != "" {
		return c.invalid(o.Kind.String(), "%s", detail)
	}
	return nil
}

// usable is the first check of every call: an operation of a communicator that is
// finalized, or with a context that has ended, does not begin.
func (c *Comm) usable(ctx context.Context, op string) error {
	if c.gate.closed() {
		return &FinalizedError{Where: c.at(op)}
	}
	if ctx.Err() != nil {
		return &CanceledError{Where: c.at(op), Err: context.Cause(ctx)}
	}
	return nil
}

// passes accepts the plain calls that most programs make most, whose checks would take much of the time of a small
// operation: collectives of one tensor of the host, or of none. It leaves all other calls to validate.
func (c *Comm) passes(x *placement, o *call) bool {
	if o.Timeout <= 0 || c.gate.closed() || x.device != nil || o.Ctx.Err() != nil {
		return false
	}
	t := o.Out
	switch {
	case o.Kind == backend.Barrier:
	case t == nil || !t.IsContiguous() || !t.OnHost():
		return false
	case o.Kind == backend.AllReduce:
		k := o.Reduce.Kind
		if o.In != t || o.Reduce.FactorTensor != nil || int(k) >= len(reducible) || !reducible[k][t.DType()] {
			return false
		}
	case o.Kind != backend.Broadcast || uint(o.Root) >= uint(c.size):
		return false
	}
	o.onDevice = false
	return true
}

// placed finds out where a call's tensors are, and returns what is wrong with that, or "". Those without elements may
// be anywhere.
func (c *Comm) placed(p *placement, o *call) string {
	first := o.First()
	if first == nil {
		o.onDevice = p.device != nil
		return ""
	}
	if first.NBytes() == 0 {
		if t := o.find(func(t *tensor.Tensor) bool { return t.NBytes() > 0 }); t != nil {
			first = t
		}
	}
	o.onDevice = !first.OnHost() || first.NBytes() == 0 && !p.host
	if bad := c.here(first); bad != "" && first.NBytes() > 0 {
		return bad
	}
	if o.In != o.Out || o.Ins != nil || o.Outs != nil {
		on := first.On()
		if t := o.find(func(t *tensor.Tensor) bool { return t.On() != on && t.NBytes() > 0 }); t != nil {
			return apartFrom(first, t)
		}
	}
	if f := o.Reduce.FactorTensor; f != nil && !f.OnHost() && f.On() != first.On() {
		return apartFrom(first, f)
	}
	return ""
}

// find returns a tensor of the call for which f holds, or nil.
func (o *call) find(f func(t *tensor.Tensor) bool) *tensor.Tensor {
	for _, t := range [2]*tensor.Tensor{o.In, o.Out} {
		if t != nil && f(t) {
			return t
		}
	}
	for _, list := range [2][]*tensor.Tensor{o.Ins, o.Outs} {
		for _, t := range list {
			if t != nil && f(t) {
				return t
			}
		}
	}
	return nil
}

// here reports a tensor that isn't where the communicator's are.
func (c *Comm) here(t *tensor.Tensor) string {
	p := c.placement.Load()
	if on := t.OnHost(); on && p.host || !on && t.On() == p.device {
		return ""
	}
	if _, none := c.b.(*worldless); none {
		return noWorld
	}
	return fmt.Sprintf("the tensor is on %s, the communicator is for %s (see WithDevice)", t.Device(), c.Device())
}

func apartFrom(a, b *tensor.Tensor) string {
	return fmt.Sprintf("one tensor is on %s, another on %s", a.Device(), b.Device())
}

// noOption is the error of a call with a nil option; at counts from 1.
func (c *Comm) noOption(op string, at int) error { return c.invalid(op, "option %d is nil", at) }

// check returns what is wrong with a call, or "".
func (c *Comm) check(o *call) string {
	if c.size == 0 {
		return noWorld
	}
	row := o.Kind.Operation()
	if o.hasInto && !(row.Into() && row.Reduces) {
		return "Into doesn't apply to " + row.Name
	}
	if o.from != nil && o.Kind != backend.Recv {
		return "From applies to recv only"
	}
	bad := ""
	switch {
	case row.Root:
		bad = c.peer(o.Root, "root")
	case o.Kind == backend.Send:
		bad = firstOf(c.peer(o.Peer, "destination"), tag(o.Tag))
	case o.Kind == backend.Recv:
		if o.Peer != AnySource {
			bad = c.peer(o.Peer, "source")
		}
		bad = firstOf(bad, tag(o.Tag))
	}
	if bad != "" {
		return bad
	}
	in, out := "input", "output" // as errors call them
	if row.In == backend.Nothing {
		out = "tensor"
	} else if row.In == backend.Part && row.Out != backend.Whole {
		in = "tensor"
	}
	takes, gives := row.Takes(c.rank, o.Root), row.Gives(c.rank, o.Root)
	switch {
	case row.In == backend.List && row.Out == backend.List:
		return c.exchange(o)
	case row.Out == backend.List:
		return c.list(row, in, o.In, "output", o.Outs, gives)
	case row.In == backend.List:
		bad = c.list(row, out, o.Out, "input", o.Ins, takes)
	case takes && gives:
		bad = c.pair(o, row, in, out)
	case takes:
		bad = one(in, o.In, dtype.Invalid)
	case gives:
		bad = one(out, o.Out, dtype.Invalid)
	}
	if bad == "" && row.Reduces {
		bad = c.reduction(o, o.First())
	}
	return bad
}

// pair checks one tensor that goes in and one that comes out.
func (c *Comm) pair(o *call, row *backend.Operation, inName, outName string) string {
	in, out := o.In, o.Out
	if bad := one(inName, in, dtype.Invalid); bad != "" {
		return bad
	}
	if out != in {
		if bad := one(outName, out, in.DType()); bad != "" {
			return bad
		}
	}
	switch {
	case row.Splits():
		return c.checkSplits(o)
	case row.Out == backend.Part && row.In == backend.Whole:
		if n := out.NumEl(); in.NumEl() != c.size*n {
			return fmt.Sprintf("the input has %d elements; it must have %d, %d for each of %d ranks", in.NumEl(), c.size*n, n,
				c.size)
		}
		return inPlaceOrApart(in, out, c.rank)
	case row.In == backend.Part && row.Out == backend.Whole:
		if n := c.size * in.NumEl(); out.NumEl() != n {
			return fmt.Sprintf("the output has %d elements; it must have %d", out.NumEl(), n)
		}
		return inPlaceOrApart(out, in, c.rank)
	case out.NumEl() != in.NumEl():
		return fmt.Sprintf("the output has %d elements; it must have %d", out.NumEl(), in.NumEl())
	case row.In == backend.Part:
		if overlap(in, out) && in.Pointer() != out.Pointer() {
			return "input and output overlap in part"
		}
		return ""
	case in.NumEl()%c.size != 0:
		return fmt.Sprintf("%d elements are not divisible by the world size %d", in.NumEl(), c.size)
	case overlap(in, out):
		return "input and output overlap"
	}
	return ""
}

// list checks one tensor and, if this rank has it, the list on the other side. The sizes of a root's list are for the
// backend, as the others learn only there that they differ.
func (c *Comm) list(row *backend.Operation, name string, t *tensor.Tensor, listName string, ts []*tensor.Tensor,
	has bool) string {
	if bad := one(name, t, dtype.Invalid); bad != "" || !has {
		return bad
	}
	if bad := c.blocks(listName, ts, t, !row.Uneven && !row.Root); bad != "" {
		return bad
	}
	own := c.rank // what may be t itself
	if row.Reduces {
		own = -1
	}
	if bad := apart(t, ts, own); bad != "" {
		return bad
	}
	if n := ts[c.rank].NumEl(); n != t.NumEl() {
		other := "output"
		if listName == other {
			other = "input"
		}
		return fmt.Sprintf("%s %d, this rank's own, has %d elements and the %s %d", listName, c.rank, n, other, t.NumEl())
	}
	return ""
}

// exchange checks a list that goes in and one that comes out.
func (c *Comm) exchange(o *call) string {
	if len(o.Ins) != c.size { // before the first is looked at
		return fmt.Sprintf("the input list has %d tensors; it must have %d, one per rank", len(o.Ins), c.size)
	}
	bad := firstOf(one("input 0", o.Ins[0], dtype.Invalid), c.blocks("input", o.Ins, o.Ins[0], false), c.blocks("output",
		o.Outs, o.Ins[0], false))
	if bad == "" && o.Ins[c.rank].NumEl() != o.Outs[c.rank].NumEl() {
		bad = fmt.Sprintf("input %d has %d elements and output %d has %d; what a rank sends itself it receives", c.rank,
			o.Ins[c.rank].NumEl(), c.rank, o.Outs[c.rank].NumEl())
	}
	for _, in := range o.Ins {
		if bad == "" {
			bad = apart(in, o.Outs, -1)
		}
	}
	return bad
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
	switch {
	case t < 0:
		return fmt.Sprintf("negative tag %d", t)
	case t >= ownTags && t != objectTag:
		return fmt.Sprintf("tag %d is greater than the greatest, %d", t, ownTags-1)
	}
	return ""
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

// blocks checks a list with one tensor per rank, all like model in dtype and, if equal, in size.
func (c *Comm) blocks(what string, ts []*tensor.Tensor, model *tensor.Tensor, equal bool) string {
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
	if !o.Kind.Operation().Admits(r.Kind) {
		return fmt.Sprintf("%v takes no reduction %v", o.Kind, r.Kind)
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
	if overlap(o.In, o.Out) {
		return "input and output overlap"
	}
	inRows, outRows := o.InSplits, o.OutSplits
	if o.value != nil { // in a batch it's checked several times
		inRows, outRows = o.value.InSplits, o.value.OutSplits
	}
	in, bad := c.splits("input", o.In, inRows)
	if bad != "" {
		return bad
	}
	out, bad := c.splits("output", o.Out, outRows)
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
