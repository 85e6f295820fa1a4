package kernel

import (
	"fmt"
	"math"
	"strings"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/text"
)

// BagFamily joins the rows of a matrix that a bag of indexes names, and adds gradients of rows.
const BagFamily text.Family = 34

func init() { text.Register(BagFamily, "bag", bagSource) }

// BagMode says how rows of a bag are joined, with PyTorch's numbers.
type BagMode uint8

const (
	BagSum BagMode = iota
	BagMean
	BagMax
)

// Bags are the bags of indexes of an embedding, and what's known of them.
type Bags struct {
	Mode    BagMode
	Indexes Operand // of rows, int64 or int32, in one dimension
	Offsets Operand // the place of each bag's first index; of that type, in one dimension
	Weights Operand // of indexes, for sums, of the type of rows; the zero Operand: 1
	Padding int     // a row that no bag has; negative: none

	// Forward writes these, and backward reads them. They have the type of the indexes. Each may be the zero Operand
	// unless it's said.
	Bag  Operand // of each index: its bag; backward needs it
	Size Operand // of each bag: how many indexes it has, without padding; the backward of a mean needs it
	Max  Operand // of each bag and column: the row whose element is the largest, or -1; the backward of a maximum needs it

	// Bad is a word set to 1, unless it's null, if a row isn't there, or offsets don't begin with 0, go back, or go
	// beyond the indexes.
	Bad device.Ptr
}

// check says what's wrong with the parts of bags.
func (b *Bags) check(op string, row dtype.DType, bags, columns int) error {
	if b.Indexes.Type != dtype.Int64 && b.Indexes.Type != dtype.Int32 || len(b.Indexes.Sizes) != 1 {
		return fmt.Errorf("kernel: %s with indexes of %v, of %d dimensions", op, b.Indexes.Type, len(b.Indexes.Sizes))
	}
	if b.Mode > BagMax || b.Weights.Type != dtype.Invalid && (b.Mode != BagSum || b.Weights.Type != row) {
		return fmt.Errorf("kernel: %s in mode %d with weights of %v", op, b.Mode, b.Weights.Type)
	}
	n := b.Indexes.Sizes[0]
	for _, o := range []struct {
		*Operand
		name  string
		sizes []int
	}{{&b.Indexes, "indexes", []int{n}}, {&b.Weights, "weights", []int{n}}, {&b.Bag, "bags", []int{n}},
		{&b.Size, "sizes of bags", []int{bags}}, {&b.Max, "indexes of the largest", []int{bags, columns}}} {
		if o.Type == dtype.Invalid {
			continue
		}
		if err := o.check("an operand"); err != nil {
			return err
		}
		if o.Value != nil || fmt.Sprint(o.Sizes) != fmt.Sprint(o.sizes) {
			return fmt.Errorf("kernel: %s: %s of sizes %v, which must be %v", op, o.name, o.Sizes, o.sizes)
		}
		if o.name != "weights" && o.Type != b.Indexes.Type {
			return fmt.Errorf("kernel: %s: %s of %v with indexes of %v", op, o.name, o.Type, b.Indexes.Type)
		}
	}
	return nil
}

// EmbeddingBag adds joining the rows of each bag: the rows of a matrix, in, with the bag's indexes. out has a row for
// each bag. The row of an empty bag is 0.
func (p *Plan) EmbeddingBag(out, in Operand, b *Bags) error {
	if err := matrices("embedding_bag", out, in); err != nil {
		return err
	}
	bags, columns := out.Sizes[0], out.Sizes[1]
	if err := b.check("embedding_bag", in.Type, bags, columns); err != nil {
		return err
	}
	if b.Offsets.Type != b.Indexes.Type || len(b.Offsets.Sizes) != 1 || b.Offsets.Sizes[0] < bags ||
		b.Offsets.Sizes[0] > bags+1 || b.Offsets.Value != nil {
		return fmt.Errorf("kernel: embedding_bag of %d bags with offsets %v of %v", bags, b.Offsets.Sizes, b.Offsets.Type)
	}
	c := p.bag("embedding_bag", bags*columns, columns, in, out, b)
	if c == nil {
		return nil
	}
	c.Args.Pointer(b.Offsets.Ptr).Pointer(b.Size.Ptr).Pointer(b.Max.Ptr)
	c.Index(in.Sizes[0])
	c.Index(bags)
	c.Index(b.Offsets.Sizes[0])
	c.Index(step(b.Offsets, 0))
	c.Index(step(b.Size, 0))
	c.Index(step(b.Max, 0))
	c.Index(step(b.Max, 1))
	return nil
}

// EmbeddingBackward adds the gradient of the rows of an embedding, out, all of it, given that of what was joined.
// Without bags, whose Bag is the zero Operand then, grad has a row for each index. byFrequency divides the gradient of
// a row by how often the indexes have it. Gradients of a row are added in the order of indexes, except those of a
// maximum. It needs scratch memory.
func (p *Plan) EmbeddingBackward(out, grad Operand, b *Bags, byFrequency bool) error {
	const op = "embedding_backward"
	if err := matrices(op, out, grad); err != nil {
		return err
	}
	rows, columns := grad.Sizes[0], grad.Sizes[1]
	if err := b.check(op, grad.Type, rows, columns); err != nil {
		return err
	}
	n, there := b.Indexes.Sizes[0], func(o Operand) bool { return o.Type != dtype.Invalid }
	switch {
	case !there(b.Bag) && (rows != n || b.Mode != BagSum):
		return fmt.Errorf("kernel: %s of %d rows of gradients and %d indexes, without bags", op, rows, n)
	case b.Mode == BagMean && !there(b.Size), b.Mode == BagMax && !there(b.Max):
		return fmt.Errorf("kernel: %s in mode %d without what forward has written", op, b.Mode)
	}
	if err := p.Fill(out, Int(0)); err != nil {
		return err
	}
	if n == 0 || rows*columns == 0 || out.Sizes[0] == 0 {
		return nil
	}
	if b.Mode == BagMax {
		at, err := p.temporary(dtype.Int64, rows, columns)
		if err != nil {
			return err
		}
		if err := p.Elementwise(binPlace, dtype.Int64, []Operand{at}, []Operand{b.Max},
			Int(int64(out.Sizes[0]))); err != nil {
			return err
		}
		to := Operand{Ptr: out.Ptr, Type: out.Type, Sizes: grad.Sizes, Strides: []int{0, out.Strides[1]}}
		return p.Put("add", to, grad, 0, Index{Operand: at, Size: out.Sizes[0], Stride: out.Strides[0]})
	}
	keys, err := p.temporary(b.Indexes.Type, n)
	if err != nil {
		return err
	}
	order, err := p.temporary(dtype.Int64, n)
	if err != nil {
		return err
	}
	if err := p.Sort(keys, order, b.Indexes, 0, false); err != nil {
		return err
	}
	if c := p.bag(op, n*columns, columns, grad, out, b); c != nil {
		c.Args.Pointer(keys.Ptr).Pointer(order.Ptr).Pointer(b.Size.Ptr)
		c.Index(out.Sizes[0])
		c.Index(step(b.Size, 0))
		c.Args.Int32(map[bool]int32{true: 1}[byFrequency])
	}
	return nil
}

// EmbeddingWeightsBackward adds the gradient of the weights of indexes, given that of the sums, and the rows.
func (p *Plan) EmbeddingWeightsBackward(out, grad, in Operand, b *Bags) error {
	const op = "embedding_weights_backward"
	if err := matrices(op, grad, in); err != nil {
		return err
	}
	if err := b.check(op, grad.Type, grad.Sizes[0], grad.Sizes[1]); err != nil {
		return err
	}
	if b.Mode != BagSum || b.Bag.Type == dtype.Invalid || out.Type != in.Type || len(out.Sizes) != 1 ||
		out.Sizes[0] != b.Indexes.Sizes[0] || out.Value != nil {
		return fmt.Errorf("kernel: %s to %v of %v", op, out.Sizes, out.Type)
	}
	to := out
	to.Sizes, to.Strides = []int{out.Sizes[0], 1}, []int{out.Strides[0], 0}
	if c := p.bag(op, out.Sizes[0], in.Sizes[1], grad, to, b); c != nil {
		c.Args.Pointer(in.Ptr)
		c.Index(in.Sizes[0])
		c.Index(in.Strides[0])
		c.Index(in.Strides[1])
	}
	return nil
}

func matrices(op string, a, b Operand) error {
	for _, o := range []*Operand{&a, &b} {
		if err := o.check("an operand"); err != nil {
			return err
		}
		if !o.Type.IsFloating() || o.Type != a.Type || o.Value != nil || len(o.Sizes) != 2 || o.Sizes[1] != a.Sizes[1] {
			return fmt.Errorf("kernel: %s of %v of %v and %v of %v", op, a.Sizes, a.Type, b.Sizes, b.Type)
		}
	}
	return nil
}

// step is a stride of an operand that may not be there.
func step(o Operand, dim int) int {
	if dim < len(o.Strides) {
		return o.Strides[dim]
	}
	return 0
}

// bag adds a run of n threads with the arguments that all have.
func (p *Plan) bag(op string, n, columns int, in, out Operand, b *Bags) *loader.Call {
	if n == 0 {
		return nil
	}
	s := text.Spec{Family: BagFamily, Op: op, Compute: text.Opmath(in.Type), Block: threads, Outs: 1, Ins: 2,
		Form: uint8(b.Mode)}
	s.Types = [text.MaxOperands]dtype.DType{out.Type, in.Type, b.Indexes.Type}
	for _, o := range [...]*Operand{&out, &in, &b.Indexes, &b.Offsets, &b.Weights, &b.Bag, &b.Max} {
		s.Wide = s.Wide || wide(n, b.Indexes.Sizes[0], o.reach())
	}
	c := p.call(s, n)
	for _, at := range [...]device.Ptr{out.Ptr, in.Ptr, b.Indexes.Ptr, b.Weights.Ptr, b.Bag.Ptr, b.Bad} {
		c.Args.Pointer(at)
	}
	for _, v := range [...]int{b.Indexes.Sizes[0], columns, out.Strides[0], out.Strides[1], in.Strides[0], in.Strides[1],
		step(b.Indexes, 0), step(b.Weights, 0), step(b.Bag, 0)} {
		c.Index(v)
	}
	padding := int64(b.Padding)
	if padding < 0 {
		padding = math.MinInt64 // which no index is: -1 is one that isn't there
	}
	c.Args.Int64(padding)
	return c
}

func bagSource(s text.Spec) (text.Source, error) {
	var w writer
	w.Begin(s)
	w.Defines(s, 0)
	w.DefineIf(BagMode(s.Form) == BagMean, "MEAN")
	w.DefineIf(BagMode(s.Form) == BagMax, "MAX")
	w.Define(strings.ToUpper(s.Op), "")
	return w.File("bag", s.Op)
}
