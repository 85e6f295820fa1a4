package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// AttentionFamily computes softmax(q @ k.T) @ v without the matrix between, and its gradients.
const AttentionFamily text.Family = 40

func init() { text.Register(AttentionFamily, "attention", attentionSource) }

// mostHead is how many elements a head has at most, and headChunk how many of them are in local memory at once.
const mostHead, headChunk = 256, 32

// attentionTile is how many queries and keys a block has in local memory at once.
func attentionTile(compute dtype.DType) int {
	if text.Is64(compute) {
		return 16
	}
	return 32
}

// Options of a kernel of attention, in Spec.Extra[2].
const (
	attentionCausal  = 1 << iota
	attentionDropout // by random numbers
	attentionBool    // a mask that says which keys count
	attentionAdded   // a mask that is added
	attentionNoFirst // the first result isn't wanted
	attentionNoSecond
	attentionState // the seed of dropout is in memory
)

// Attention says how queries attend to keys.
type Attention struct {
	// Mask is broadcast to batches, heads, queries and keys: bool, true where a key counts; or numbers that are added to
	// the scaled products. The zero Operand: none.
	Mask   Operand
	Causal bool    // query i attends to keys 0 to i
	Scale  *Number // of products; nil: 1 / sqrt(size of a head)

	// Dropout is the probability with which a weight becomes 0. The weights that stay are those for which
	// [Plan.Bernoulli] of 1 - Dropout gives 1, in a dense tensor of batches, heads, queries and keys. The others are
	// multiplied by 1 / (1 - Dropout).
	Dropout float64
	Random  Random
}

// Attention adds out = softmax(scale * q @ k.T + mask) @ v. Operands have dimensions of batches, heads, rows, and
// elements of a head, of which there are at most 256. Strides are any. k and v may have fewer heads: each is for as
// many heads of q, one after the other. The logarithms of the sums of exponentials, lse, have the first three
// dimensions of out, and float32 or float64 elements; the zero Operand: none. A row without a key that counts becomes
// 0, with lse 0.
func (p *Plan) Attention(out, lse, q, k, v Operand, a *Attention) error {
	s := text.Spec{Family: AttentionFamily, Op: "forward", Outs: 2, Ins: 3}
	list := [text.MaxOperands]Operand{out, lse, q, k, v}
	if lse.Type == dtype.Invalid {
		s.Extra[2] |= attentionNoSecond
	}
	x, err := p.attention(&s, &list, q, k, v, out, a)
	if err != nil || x.batches*x.heads*x.rows == 0 {
		return err
	}
	return p.attentionCall(s, &list, &x, a, x.heads, x.rows)
}

// AttentionBackward adds the gradients of q, k and v, each of which may be the zero Operand, given that of out, and out
// and lse of [Plan.Attention] with the same a. They have the same bits each time. It needs scratch memory.
func (p *Plan) AttentionBackward(dq, dk, dv, grad, out, lse, q, k, v Operand, a *Attention) error {
	s := text.Spec{Family: AttentionFamily, Op: "query", Outs: 2, Ins: 6}
	list := [text.MaxOperands]Operand{dq, {}, q, k, v, grad, out, lse}
	if dq.Type == dtype.Invalid {
		s.Extra[2] |= attentionNoFirst
	}
	x, err := p.attention(&s, &list, q, k, v, out, a)
	if err != nil {
		return err
	}
	for i, o := range []Operand{dq, dk, dv, grad} {
		like := [...]*Operand{&q, &k, &v, &out}[i]
		if o.Type != dtype.Invalid && !sameSizes(&o, like) || i == 3 && o.Type == dtype.Invalid {
			return fmt.Errorf("kernel: gradients of attention of sizes %v, not %v", o.Sizes, like.Sizes)
		}
	}
	if lse.Type == dtype.Invalid {
		return fmt.Errorf("kernel: the gradient of attention needs the logarithms of sums")
	}
	if x.batches*x.heads == 0 {
		return nil
	}
	deltas := x.batches * x.heads * x.rows
	if deltas > 0 { // else the gradients of keys are 0
		at, err := p.scratch(deltas * s.Compute.Size())
		if err != nil {
			return err
		}
		list[1] = Operand{Ptr: at, Type: s.Compute}
		if err := p.attentionCall(s, &list, &x, a, x.heads, x.rows); err != nil {
			return err
		}
	}
	s.Op, s.Extra[2] = "keys", s.Extra[2]&^(attentionNoFirst|attentionNoSecond)
	if dk.Type == dtype.Invalid {
		s.Extra[2] |= attentionNoFirst
	}
	if dv.Type == dtype.Invalid {
		s.Extra[2] |= attentionNoSecond
	}
	if x.keys == 0 || dk.Type == dtype.Invalid && dv.Type == dtype.Invalid {
		return nil
	}
	delta := list[1]
	if delta.Type == dtype.Invalid {
		delta = Operand{Type: s.Compute}
	}
	list = [text.MaxOperands]Operand{dk, dv, q, k, v, grad, delta, lse}
	return p.attentionCall(s, &list, &x, a, x.heads/x.group, x.keys)
}

// attentionSizes are those of an operation.
type attentionSizes struct {
	batches, heads, group, rows, keys, size, vsize int
}

// attention checks operands, and fills a spec in. list are the first kernel's results and inputs.
func (p *Plan) attention(s *text.Spec, list *[text.MaxOperands]Operand, q, k, v, out Operand, a *Attention) (
	x attentionSizes, err error) {
	for i, o := range [...]*Operand{&q, &k, &v, &out} {
		if err := o.check("an operand of attention"); err != nil {
			return x, err
		}
		if o.Value != nil || len(o.Sizes) != 4 || !o.Type.IsFloating() || o.Type != q.Type {
			return x, fmt.Errorf("kernel: attention: operand %d is of %v and has %d dimensions, and q is of %v; there must "+
				"be 4 of batches, heads, rows and elements, of one floating-point type", i, o.Type, len(o.Sizes), q.Type)
		}
	}
	x = attentionSizes{q.Sizes[0], q.Sizes[1], 1, q.Sizes[2], k.Sizes[2], q.Sizes[3], v.Sizes[3]}
	shared := k.Sizes[1]
	if shared > 0 {
		x.group = x.heads / shared
	}
	if shared > 0 && x.heads == 0 || k.Sizes[0] != x.batches || v.Sizes[0] != x.batches || v.Sizes[1] != shared ||
		v.Sizes[2] != x.keys || k.Sizes[3] != x.size || x.group*shared != x.heads || out.Sizes[0] != x.batches ||
		out.Sizes[1] != x.heads || out.Sizes[2] != x.rows || out.Sizes[3] != x.vsize {
		return x, fmt.Errorf("kernel: attention of q %v, k %v and v %v to %v", q.Sizes, k.Sizes, v.Sizes, out.Sizes)
	}
	if x.size > mostHead || x.vsize > mostHead {
		return x, fmt.Errorf("kernel: attention with heads of %d and %d elements, of at most %d", x.size, x.vsize, mostHead)
	}
	if !(a.Dropout >= 0 && a.Dropout <= 1) {
		return x, fmt.Errorf("kernel: attention with a dropout of %v", a.Dropout)
	}
	s.Compute, s.Block = text.Opmath(q.Type), threads
	s.Extra[0], s.Extra[1] = int32(chunks(x.size)), int32(chunks(x.vsize))
	for i := range int(s.Outs + s.Ins) {
		o := &list[i]
		if o.Type == dtype.Invalid {
			continue
		}
		lse := s.Op == "forward" && i == 1 || s.Op == "query" && i == 7
		if lse && (o.Type != dtype.Float32 && o.Type != dtype.Float64 || len(o.Sizes) != 3 || len(o.Strides) != 3 ||
			o.Sizes[0] != x.batches || o.Sizes[1] != x.heads || o.Sizes[2] != x.rows) {
			return x, fmt.Errorf("kernel: attention with logarithms of sums of %v in %v", o.Sizes, o.Type)
		}
	}
	if a.Causal {
		s.Extra[2] |= attentionCausal
	}
	if a.Dropout > 0 {
		s.Extra[2] |= attentionDropout
		if a.Random.State != 0 {
			s.Extra[2] |= attentionState
		}
	}
	if a.Mask.Type != dtype.Invalid {
		if err := p.space.init([]int{x.batches, x.heads, x.rows, x.keys}); err != nil {
			return x, err
		}
		if err := a.Mask.check("the mask"); err != nil {
			return x, err
		}
		switch {
		case a.Mask.Value != nil || a.Mask.Type != dtype.Bool && !a.Mask.Type.IsFloating():
			return x, fmt.Errorf("kernel: attention with a mask of %v", a.Mask.Type)
		case a.Mask.Type == dtype.Bool:
			s.Extra[2] |= attentionBool
		default:
			s.Extra[2] |= attentionAdded
		}
		if err := p.space.add(&a.Mask); err != nil {
			return x, err
		}
		s.Ins++
	}
	return x, nil
}

func chunks(n int) int { return max((n+headChunk-1)/headChunk, 1) }

func sameSizes(a, b *Operand) bool {
	if len(a.Sizes) != len(b.Sizes) || len(a.Strides) != len(a.Sizes) {
		return false
	}
	for k := range a.Sizes {
		if a.Sizes[k] != b.Sizes[k] {
			return false
		}
	}
	return true
}

// attentionCall adds a run in which each block has some of n rows of so many heads a batch.
func (p *Plan) attentionCall(s text.Spec, list *[text.MaxOperands]Operand, x *attentionSizes, a *Attention, heads,
	n int) error {
	operands := int(s.Outs + s.Ins)
	masked := s.Extra[2]&(attentionBool|attentionAdded) != 0
	if masked {
		list[operands-1] = a.Mask
	}
	tiles := (n + attentionTile(s.Compute) - 1) / attentionTile(s.Compute)
	blocks := x.batches * heads * tiles
	for k := range operands {
		o := &list[k]
		s.Types[k] = o.Type
		if o.Type == dtype.Invalid {
			s.Types[k] = s.Compute
		}
		s.Wide = s.Wide || wide(o.reach())
	}
	s.Wide = s.Wide || wide(x.batches*x.heads*x.rows, blocks)
	c := p.blocks(s, device.Dim{X: max(blocks, 1), Y: 1, Z: 1})
	c.MatrixUnit = text.MultipliedByUnits(s.Types[s.Outs])
	for k := range operands {
		c.Args.Pointer(list[k].Ptr)
	}
	for _, v := range [...]int{x.heads, x.group, x.rows, x.keys, x.size, x.vsize, tiles} {
		c.Index(v)
	}
	scale := Number{Float: 1 / math.Sqrt(float64(max(x.size, 1)))}
	if a.Scale != nil {
		scale = *a.Scale
	}
	scale.add(&c.Args, s.Compute)
	if a.Dropout > 0 {
		keep := 1 - a.Dropout
		c.Args.Float32(float32(keep))
		inverse := Number{}
		if keep > 0 {
			inverse.Float = 1 / keep
		}
		inverse.add(&c.Args, s.Compute)
		addRandom(c, &a.Random)
		c.Args.Uint64(uint64(a.Random.GPU.Threads(max(x.batches*x.heads*x.rows*x.keys, 1))))
	}
	// the strides, of 4 dimensions each
	var buf [text.MaxOperands * 4 * 8]byte
	b, size := buf[:0], 4
	if s.Wide {
		size = 8
	}
	for k := range operands {
		o := &list[k]
		for d := range 4 {
			stride := 0
			if at := d; masked && k == operands-1 { // broadcast
				if at -= 4 - len(o.Sizes); at >= 0 && o.Sizes[at] != 1 {
					stride = o.Strides[at]
				}
			} else if d < len(o.Strides) {
				stride = o.Strides[d]
			}
			if s.Wide {
				b = binary.NativeEndian.AppendUint64(b, uint64(stride))
			} else {
				b = binary.NativeEndian.AppendUint32(b, uint32(stride))
			}
		}
	}
	c.Args.Bytes(b, size)
	return nil
}

func attentionSource(s text.Spec) (text.Source, error) {
	if s.Op != "forward" && s.Op != "query" && s.Op != "keys" {
		return text.Source{}, fmt.Errorf("kernel: there is no attention %q", s.Op)
	}
	tile := attentionTile(s.Compute)
	var w writer
	w.Begin(s)
	w.Line("typedef struct { I s[%d][4]; } layout;", s.Outs+s.Ins)
	w.Defines(s, 0)
	for k, name := range [...]string{"CAUSAL", "DROPOUT", "BOOL_MASK", "ADDED_MASK", "NO_FIRST", "NO_SECOND"} {
		w.DefineIf(s.Extra[2]>>k&1 != 0, name)
	}
	w.Generator(s.Extra[2]&attentionState != 0)
	w.DefineIf(s.Extra[2]&(attentionBool|attentionAdded) != 0, "MASKED")
	if s.Extra[2]&attentionDropout != 0 {
		w.Dialect("philox")
	}
	w.Define(strings.ToUpper(s.Op), "")
	w.Unit(s, s.Inputs()[0])
	w.Define("TILE", tile)
	w.Define("CHUNK", headChunk)
	w.Define("CHUNKS", s.Extra[0])
	w.Define("VALUE_CHUNKS", s.Extra[1])
	w.Define("SCORES", tile*tile/threads)
	w.Define("RESULTS", tile*headChunk/threads)
	w.Define("RIGHT_SIZE", max(tile*(headChunk+1), headChunk*(tile+1)))
	return w.File("attention", "attention_"+s.Op)
}
