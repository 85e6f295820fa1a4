package kernel

import (
	"fmt"
	"strings"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// SearchFamily finds elements in sorted lines by bisection.
const SearchFamily text.Family = 31

func init() { text.Register(SearchFamily, "search", searchSource) }

// The forms of a search, by the result.
const (
	searchPlace = iota // the first place that an element can be put at, or the last one
	searchFound        // whether the element is there
)

// Search adds finding the places where values would be put into sorted elements: the first one that leaves them sorted,
// or with right the last one. Elements lie along the last dimension of sorted. Its other dimensions are those of
// values, or it has one dimension, for all values. The result, int64 or int32, has the sizes of values. sorter has
// indexes of sorted elements in their order, int64, with the sizes of sorted; the zero Operand: they are in order.
func (p *Plan) Search(out, values, sorted, sorter Operand, right bool) error {
	if out.Type != dtype.Int64 && out.Type != dtype.Int32 {
		return fmt.Errorf("kernel: searchsorted with a result of %v", out.Type)
	}
	return p.search("searchsorted", searchPlace, out, values, sorted, sorter, right)
}

// Contains adds finding whether each of values is among sorted elements, a line in ascending order; or with invert
// whether it isn't. The result is bool.
func (p *Plan) Contains(out, values, sorted Operand, invert bool) error {
	if out.Type != dtype.Bool || len(sorted.Sizes) != 1 {
		return fmt.Errorf("kernel: isin with a result of %v, and elements of %d dimensions", out.Type, len(sorted.Sizes))
	}
	return p.search("isin", searchFound, out, values, sorted, Operand{}, invert)
}

func (p *Plan) search(op string, form uint8, out, values, sorted, sorter Operand, flag bool) error {
	rank, last := len(values.Sizes), len(sorted.Sizes)-1
	if sorted.Type != values.Type || sorted.Type.IsComplex() {
		return fmt.Errorf("kernel: %s of %v in %v", op, values.Type, sorted.Type)
	}
	if last < 0 || last > 0 && last != rank-1 {
		return fmt.Errorf("kernel: %s of %d dimensions in %d", op, rank, last+1)
	}
	if values.Value != nil || out.Value != nil || sorted.Value != nil || sorter.Value != nil || len(out.Sizes) != rank {
		return fmt.Errorf("kernel: %s of %v to %v", op, values.Sizes, out.Sizes)
	}
	there := sorter.Type != dtype.Invalid
	if there && (sorter.Type != dtype.Int64 || len(sorter.Sizes) != last+1) {
		return fmt.Errorf("kernel: %s with a sorter of %v, of %d dimensions", op, sorter.Type, len(sorter.Sizes))
	}
	q, operands := &p.space, [4]*Operand{&out, &values, &sorted, &sorter}
	if err := q.init(values.Sizes); err != nil {
		return err
	}
	q.ops = len(operands)
	for k, o := range operands {
		if k == 3 && !there {
			q.strides[k] = [maxRank]int{}
			continue
		}
		if err := o.check("an operand"); err != nil {
			return err
		}
		for d := range rank {
			switch {
			case k >= 2 && (last == 0 || d == last):
				q.strides[k][rank-1-d] = 0
			case o.Sizes[d] != values.Sizes[d]:
				return fmt.Errorf("kernel: %s of operands of sizes %v and %v", op, values.Sizes, o.Sizes)
			default:
				q.strides[k][rank-1-d] = o.Strides[d]
			}
		}
		if k == 3 && o.Sizes[last] != sorted.Sizes[last] {
			return fmt.Errorf("kernel: %s with a sorter of sizes %v", op, o.Sizes)
		}
	}
	if q.count == 0 {
		return nil
	}
	q.join()
	if q.dims > text.MaxDims {
		return fmt.Errorf("kernel: %s: more than %d dimensions that don't join", op, text.MaxDims)
	}
	s := text.Spec{Family: SearchFamily, Compute: text.Opmath(values.Type), Block: threads, Outs: 1, Ins: 3, Form: form,
		Dims: uint8(q.dims), Wide: wide(q.count, sorted.Sizes[last])}
	s.Types = [text.MaxOperands]dtype.DType{out.Type, values.Type, values.Type, dtype.Int64}
	for _, o := range operands {
		s.Wide = s.Wide || wide(o.reach())
	}
	c := p.call(s, q.count)
	for _, o := range operands {
		c.Args.Pointer(o.Ptr)
	}
	c.Index(q.count)
	c.Index(sorted.Sizes[last])
	c.Index(sorted.Strides[last])
	if there {
		c.Index(sorter.Strides[last])
	} else {
		c.Index(0)
	}
	c.Args.Int32(map[bool]int32{true: 1}[flag])
	if s.Dims > 0 {
		q.layout(&c.Args, s.Wide)
	}
	return nil
}

func searchSource(s text.Spec) (text.Source, error) {
	name := [...]string{"search_place", "search_found"}[s.Form]
	var w writer
	w.Begin(s)
	w.Defines(s, 4)
	w.Define(strings.ToUpper(name), "")
	return w.File("search", name)
}

// Bincount adds counting how often each of the numbers from 0 on is among in, a tensor of one dimension and an integer
// type. The counts are int64, or sums of weights of the type of out, with the input's size. A number that isn't less
// than the number of counts, or negative, isn't counted, and sets the word at bad to 1 unless that's null.
func (p *Plan) Bincount(out, in, weights Operand, bad device.Ptr) error {
	if !in.Type.IsInteger() || len(in.Sizes) != 1 || len(out.Sizes) != 1 {
		return fmt.Errorf("kernel: bincount of %v, of %d dimensions, to %d", in.Type, len(in.Sizes), len(out.Sizes))
	}
	add := Operand{Type: out.Type, Value: Int(1)}
	if weights.Type != dtype.Invalid {
		add = weights
	} else if out.Type != dtype.Int64 {
		return fmt.Errorf("kernel: bincount to %v", out.Type)
	}
	if err := p.Fill(out, Int(0)); err != nil || in.Sizes[0] == 0 {
		return err
	}
	at, err := p.temporary(dtype.Int64, in.Sizes[0])
	if err != nil {
		return err
	}
	// An index counts from the end if it's negative. Here it's none.
	if err := p.Elementwise(binPlace, dtype.Int64, []Operand{at}, []Operand{in}, Int(int64(out.Sizes[0]))); err != nil {
		return err
	}
	return p.counts(out, add, at, bad)
}

// counts adds joining what's added with the elements of a line at the indexes at.
func (p *Plan) counts(out, add, at Operand, bad device.Ptr) error {
	to := out
	to.Sizes, to.Strides = at.Sizes, []int{0}
	return p.Put("add", to, add, bad, Index{Operand: at, Size: out.Sizes[0], Stride: out.Strides[0]})
}

const (
	binPlace = `template <typename T> T bin_place(T x, T n) { return x < 0 || x > n ? n : x; }`

	// the range of a histogram, and the bin of an element
	binLow  = `template <typename T> T bin_low(T low, T high) { return low == high ? low - 1 : low; }`
	binHigh = `template <typename T> T bin_high(T low, T high) { return low == high ? high + 1 : high; }`
	binOf   = `template <typename T> T bin_of(T x, T low, T high, T n) {
	return x >= low && x <= high ? (x == high ? n - 1 : t_min(floor((x - low) * n / (high - low)), n - 1)) : n;
}`
)

// Histc adds counting the elements that lie in each of as many intervals of one length as out, of one dimension and
// the input's type, has elements. They lie between low and high; of low and high that are equal, between the smallest
// and the largest element. If these are equal too, they are 1 farther apart in both directions. Other elements aren't
// counted. A count stops growing where the type has no larger integer next to it.
func (p *Plan) Histc(out, in Operand, low, high float64) error {
	compute := text.Opmath(in.Type)
	if !in.Type.IsFloating() || out.Type != in.Type || len(out.Sizes) != 1 || out.Sizes[0] < 1 || low > high {
		return fmt.Errorf("kernel: histc of %v from %v to %v in %v of %v", in.Type, low, high, out.Sizes, out.Type)
	}
	if err := p.Fill(out, Int(0)); err != nil || in.Count() == 0 {
		return err
	}
	ends := [2]Operand{{Type: compute, Value: Float(low)}, {Type: compute, Value: Float(high)}}
	var found, ranges [2]Operand
	ones := make([]int, len(in.Sizes))
	for k := range ones {
		ones[k] = 1
	}
	for k := range found {
		var err error
		if found[k], err = p.temporary(compute, ones...); err != nil {
			return err
		}
		if ranges[k], err = p.temporary(compute, ones...); err != nil {
			return err
		}
	}
	if low == high {
		if err := p.Reduce("aminmax", compute, found[:], in, nil); err != nil {
			return err
		}
		ends = found
	}
	for k, op := range []string{binLow, binHigh} {
		if err := p.Elementwise(op, compute, ranges[k:k+1], ends[:]); err != nil {
			return err
		}
	}
	at, err := p.temporary(dtype.Int64, in.Sizes...)
	if err != nil {
		return err
	}
	if err := p.Elementwise(binOf, compute, []Operand{at}, []Operand{in, ranges[0], ranges[1]},
		Int(int64(out.Sizes[0]))); err != nil {
		return err
	}
	return p.counts(out, Operand{Type: out.Type, Value: Int(1)}, viewed(at, at.Count()), 0)
}
