package kernel

import (
	"fmt"
	"slices"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
)

// MatmulFamily multiplies matrices, also many at once.
const MatmulFamily Family = 5

func init() { register(MatmulFamily, "matmul", matmulSource) }

// Matmul adds out = activation(alpha * a @ b + beta * c). Matrices are the last two dimensions. There is one for each
// place in the dimensions before, in which a, b and c are broadcast. The zero Operand is no c; out may be c. The
// activation is empty, or an operation of [Ops] with one input and no numbers, such as relu or gelu. Strides are any:
// a transposed matrix is one with strides exchanged. All have one type, which isn't bool. Or else a and b are int8 or
// uint8, and the others int32.
func (p *Plan) Matmul(out, a, b, c Operand, alpha, beta *Number, activation string) error {
	s := Spec{Family: MatmulFamily, Op: activation, Compute: Opmath(out.Type), Block: threads, Outs: 1, Ins: 3}
	return p.matmul(s, out, a, b, c, alpha, beta, nil)
}

// matmul adds a product, with scales or with alpha and beta.
func (p *Plan) matmul(s Spec, out, a, b, c Operand, alpha, beta *Number, scales *Scales) error {
	there, given := c.Type != dtype.Invalid, c
	if !there {
		c = out
	}
	cs, err := s.matmulCheck(&out, &a, &b, &c, scales != nil)
	if err != nil {
		return err
	}
	d := len(out.Sizes)
	m, n, depth := out.Sizes[d-2], out.Sizes[d-1], a.Sizes[d-1]
	var product device.Product
	library := p.Products.Has(out.Type)
	described := (library || Tuned.on.Load()) && s.Op == "" && scales == nil && a.Type == out.Type &&
		!(there && beta.complex() == 0) && p.describe(&product, out, a, b, alpha)
	library = library && described
	var bias *Operand
	if there {
		bias = &c
	}
	one := func(x *Number) bool { return x.complex() == 1 }
	var fused device.FusedProduct
	var fuses bool
	switch {
	case scales != nil:
		fuses = p.fusedProduct(&fused, out, a, b, bias, scales)
	case !there:
		fuses = s.Op == "" && one(alpha) && p.fusedProduct(&fused, out, a, b, nil, nil)
	case (s.Op == "" || s.Op == "relu") && one(alpha) && one(beta) && len(c.Sizes) == 1 && !Tuned.on.Load():
		fuses = p.fusedProduct(&fused, out, a, b, bias, nil)
		fused.Relu = s.Op == "relu"
	}
	if fuses {
		library = false
	} else if s.Op != "" && p.Products.Has(out.Type) { // a library has no activation, or not this one
		op := s.Op
		s.Op = ""
		if err := p.matmul(s, out, a, b, given, alpha, beta, nil); err != nil {
			return err
		}
		p.one[0], p.one[1] = out, out
		return p.Elementwise(op, s.Compute, p.one[1:], p.one[:1])
	}
	if library && there {
		if !slices.Equal(c.Sizes, out.Sizes) || !slices.Equal(c.Strides, out.Strides) || c.Ptr != out.Ptr {
			if err := p.Copy(out, c); err != nil {
				return err
			}
			c, cs = out, [2]int{out.Strides[d-2], out.Strides[d-1]}
		}
		product.Beta = beta.complex()
	}
	if fuses && scales != nil && scales.Result.Type != dtype.Invalid {
		if fused.ScaleOut, err = p.reciprocal(scales.Result); err != nil {
			return err
		}
	}
	if err := p.matrices(out, a, b, c); err != nil {
		return err
	}
	q := &p.space
	if q.count*m*n == 0 {
		return nil
	}
	q.join()
	if q.dims > MaxDims || q.count > 65535 {
		return fmt.Errorf("kernel: matmul of %d matrices, in %d dimensions that don't join", q.count, q.dims)
	}
	s.Dims = uint8(q.dims)
	s.Wide = s.Wide || wide(m, n, depth, out.reach(), a.reach(), b.reach(), c.reach())
	if there {
		s.Form |= matmulPlus
	}
	if tilesOf(m) > 65535 {
		return fmt.Errorf("kernel: matmul of %d rows", m)
	}
	call := p.matmulCall(s, [...]*Operand{&out, &a, &b, &c}, cs, alpha, beta, scales)
	call.library, call.described, call.product, call.fuses, call.fused = library, described, product, fuses, fused
	return nil
}

// matmulCall adds the run of a product of matrices, whose places are the plan's space.
func (p *Plan) matmulCall(s Spec, operands [4]*Operand, cs [2]int, alpha, beta *Number, scales *Scales) *Call {
	out, a, b := operands[0], operands[1], operands[2]
	d := len(out.Sizes)
	m, n, depth := out.Sizes[d-2], out.Sizes[d-1], a.Sizes[d-1]
	call := p.tiles(s, device.Dim{X: tilesOf(n), Y: tilesOf(m), Z: p.space.count})
	if scales == nil {
		call.shape = anyTiles
	}
	for _, o := range operands {
		call.Args.Pointer(o.Ptr)
	}
	if scales != nil {
		scales.add(call)
	}
	for _, v := range []int{m, n, depth, out.Strides[d-2], out.Strides[d-1], a.Strides[d-2], a.Strides[d-1],
		b.Strides[d-2], b.Strides[d-1], cs[0], cs[1]} {
		call.index(v)
	}
	if scales == nil {
		alpha.add(&call.Args, s.Compute)
		beta.add(&call.Args, s.Compute)
	}
	if s.Dims > 0 {
		p.space.layout(&call.Args, s.Wide)
	}
	return call
}

// matmulCheck says what's wrong with the operands of a product, and takes their types. cs are the strides of c as the
// others, with as many dimensions.
func (s *Spec) matmulCheck(out, a, b, c *Operand, scaled bool) (cs [2]int, err error) {
	d := len(out.Sizes)
	if d < 2 || len(a.Sizes) != d || len(b.Sizes) != d || len(c.Sizes) > d {
		return cs, fmt.Errorf("kernel: matmul of %v and %v to %v", a.Sizes, b.Sizes, out.Sizes)
	}
	for k, o := range []*Operand{out, a, b, c} {
		if err := o.shaped("an operand of matmul"); err != nil {
			return cs, err
		}
		if o.Value != nil || !scaled && !multiplied(k, o.Type, out.Type) {
			return cs, fmt.Errorf("kernel: matmul of %v with %v", out.Type, o.Type)
		}
		s.Types[k] = o.Type
	}
	if s.Op != "" {
		x, ok := OpNamed(s.Op)
		if !ok || x.Ins != 1 || x.Numbers+x.Integers > 0 || x.results() != 1 || x.expression(s.Compute) == "" {
			return cs, fmt.Errorf("kernel: matmul with %s of %v", s.Op, s.Compute)
		}
	}
	if a.Sizes[d-2] != out.Sizes[d-2] || b.Sizes[d-1] != out.Sizes[d-1] || b.Sizes[d-2] != a.Sizes[d-1] {
		return cs, fmt.Errorf("kernel: matmul of %v and %v to %v", a.Sizes, b.Sizes, out.Sizes)
	}
	for k := range 2 {
		if at := len(c.Sizes) - 1 - k; at >= 0 && c.Sizes[at] != 1 {
			if c.Sizes[at] != out.Sizes[d-1-k] {
				return cs, fmt.Errorf("kernel: matmul to %v plus %v", out.Sizes, c.Sizes)
			}
			cs[1-k] = c.Strides[at]
		}
	}
	return cs, nil
}

// multiplied reports whether operand k of a product may have a type, by that of the result.
func multiplied(k int, t, out dtype.DType) bool {
	if small := t == dtype.Int8 || t == dtype.Uint8; small && out == dtype.Int32 {
		return k == 1 || k == 2
	}
	return t == out && Supported(t) && t != dtype.Bool
}

// matrices makes the plan's space that of the dimensions before the last two.
func (p *Plan) matrices(operands ...Operand) error {
	cut := func(o *Operand) int { return max(len(o.Sizes)-2, 0) }
	if err := p.space.init(operands[0].Sizes[:cut(&operands[0])]); err != nil {
		return err
	}
	for _, o := range operands {
		o.Sizes, o.Strides = o.Sizes[:cut(&o)], o.Strides[:cut(&o)]
		if err := p.space.add(&o); err != nil {
			return err
		}
	}
	return nil
}

// Bits of the form of a product.
const (
	matmulPlus   = 1 << iota // c is added
	matmulScaled             // see Scales
	matmulResult             // the result has a scale
)

func matmulSource(s Spec) (Source, error) {
	var w writer
	w.begin(s)
	if s.Form&matmulScaled != 0 {
		w.WriteString(float8Header)
		w.define("SCALED", "")
	}
	w.defines(s, 4)
	w.define("LEFT(x)", s.matrix(1, "x"))
	w.define("RIGHT(x)", s.matrix(2, "x"))
	w.define("RESULT(x)", s.result("x"))
	w.defineIf(s.Form&matmulResult != 0, "RESULT_SCALE")
	if s.Form&matmulPlus != 0 {
		w.define("PLUS(x)", converted(s.Compute, s.Types[3], "x"))
	}
	if x, ok := OpNamed(s.Op); ok {
		w.define("ACTIVATION", x.expression(s.Compute))
	}
	if panelsOf(s).lanes > 0 {
		w.panels(s)
	} else {
		w.tileSizes(tileEachOf(s))
	}
	return w.file("matmul", "matmul_"+s.Op)
}
