package kernel

import (
	"fmt"
	"slices"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/gemm"
	"github.com/chorus-comms/chorus/kernel/library"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/ops"
	"github.com/chorus-comms/chorus/kernel/text"
)

// MatmulFamily multiplies matrices, also many at once.
const MatmulFamily text.Family = 5

func init() { text.Register(MatmulFamily, "matmul", matmulSource) }

// Matmul adds out = activation(alpha * a @ b + beta * c). Matrices are the last two dimensions. There is one for each
// place in the dimensions before, in which a, b and c are broadcast. The zero Operand is no c; out may be c. The
// activation is empty, or an operation of [Ops] with one input and no numbers, such as relu or gelu. Strides are any:
// a transposed matrix is one with strides exchanged. All have one type, which isn't bool. Or else a and b are int8 or
// uint8, and the others int32.
func (p *Plan) Matmul(out, a, b, c Operand, alpha, beta *Number, activation string) error {
	s := text.Spec{Family: MatmulFamily, Op: activation, Compute: text.Opmath(out.Type), Block: threads, Outs: 1, Ins: 3}
	return p.matmul(s, out, a, b, c, alpha, beta, nil)
}

// matmul adds a product, with scales or with alpha and beta.
func (p *Plan) matmul(s text.Spec, out, a, b, c Operand, alpha, beta *Number, scales *Scales) error {
	there, given := c.Type != dtype.Invalid, c
	if !there {
		c = out
	}
	cs, err := matmulCheck(&s, &out, &a, &b, &c, scales != nil)
	if err != nil {
		return err
	}
	d := len(out.Sizes)
	m, n, depth := out.Sizes[d-2], out.Sizes[d-1], a.Sizes[d-1]
	var product device.GEMM
	byLibrary := p.GEMM.Has(out.Type)
	described := (byLibrary || loader.Tuned.On()) && s.Op == "" && scales == nil && a.Type == out.Type &&
		!(there && beta.complex() == 0) && p.describe(&product, out, a, b, alpha)
	byLibrary = byLibrary && described
	var bias *Operand
	if there {
		bias = &c
	}
	one := func(x *Number) bool { return x.complex() == 1 }
	var fused device.FusedGEMM
	var fuses bool
	switch {
	case scales != nil:
		fuses = p.fusedProduct(&fused, out, a, b, bias, scales)
	case !there:
		fuses = s.Op == "" && one(alpha) && p.fusedProduct(&fused, out, a, b, nil, nil)
	case (s.Op == "" || s.Op == "relu") && one(alpha) && one(beta) && len(c.Sizes) == 1 && !loader.Tuned.On():
		fuses = p.fusedProduct(&fused, out, a, b, bias, nil)
		fused.Relu = s.Op == "relu"
	}
	if fuses {
		byLibrary = false
	} else if s.Op != "" && p.GEMM.Has(out.Type) { // a library has no activation, or not this one
		op := s.Op
		s.Op = ""
		if err := p.matmul(s, out, a, b, given, alpha, beta, nil); err != nil {
			return err
		}
		p.one[0], p.one[1] = out, out
		return p.Elementwise(op, s.Compute, p.one[1:], p.one[:1])
	}
	if byLibrary && there {
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
	if q.dims > text.MaxDims {
		return fmt.Errorf("kernel: matmul of %d matrices, in %d dimensions that don't join", q.count, q.dims)
	}
	s.Dims, s.Wide = uint8(q.dims), s.Wide || wide(q.count, m, n, depth, out.reach(), a.reach(), b.reach(), c.reach())
	if there {
		s.Form |= gemm.Plus
	}
	call := p.matmulCall(s, [...]*Operand{&out, &a, &b, &c}, cs, alpha, beta, scales)
	call.Tunable, call.Library.GEMM, call.Library.Fused = described, product, fused
	call.Library.Kind = libraryOf(byLibrary, fuses)
	return nil
}

// libraryOf is the library of a product that one of them may do.
func libraryOf(plain, fused bool) library.Kind {
	switch {
	case fused:
		return library.FusedGEMM
	case plain:
		return library.GEMM
	}
	return library.None
}

// matmulCall adds the run of a product of matrices, whose places are the plan's space.
func (p *Plan) matmulCall(s text.Spec, operands [4]*Operand, cs [2]int, alpha, beta *Number,
	scales *Scales) *loader.Call {
	out, a, b := operands[0], operands[1], operands[2]
	d := len(out.Sizes)
	m, n, depth := out.Sizes[d-2], out.Sizes[d-1], a.Sizes[d-1]
	call := p.tiles(s, device.Dim{X: gemm.Tiles(n), Y: gemm.Tiles(m), Z: p.space.count})
	if scales == nil {
		call.Shape, call.MatrixUnit = loader.AnyTiles, text.MultipliedByUnits(a.Type)
	}
	for _, o := range operands {
		call.Args.Pointer(o.Ptr)
	}
	if scales != nil {
		scales.add(call)
	}
	for _, v := range []int{m, n, depth, out.Strides[d-2], out.Strides[d-1], a.Strides[d-2], a.Strides[d-1],
		b.Strides[d-2], b.Strides[d-1], cs[0], cs[1]} {
		call.Index(v)
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
func matmulCheck(s *text.Spec, out, a, b, c *Operand, scaled bool) (cs [2]int, err error) {
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
		x, ok := ops.Named(s.Op)
		if !ok || x.Ins != 1 || x.Numbers+x.Integers > 0 || x.Results() != 1 || x.Expression(s.Compute) == "" {
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
	return t == out && text.Supported(t) && t != dtype.Bool
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

func matmulSource(s text.Spec) (text.Source, error) {
	var w writer
	w.Begin(s)
	if s.Form&gemm.Scaled != 0 {
		w.Dialect("float8")
		w.Define("SCALED", "")
	}
	w.Defines(s, 4)
	w.Define("LEFT(x)", matrixOf(s, 1, "x"))
	w.Define("RIGHT(x)", matrixOf(s, 2, "x"))
	w.Define("RESULT(x)", resultOf(s, "x"))
	w.DefineIf(s.Form&gemm.ScaledResult != 0, "RESULT_SCALE")
	if s.Form&gemm.Plus != 0 {
		w.Define("PLUS(x)", text.Converted(s.Compute, s.Types[3], "x"))
	}
	if x, ok := ops.Named(s.Op); ok {
		w.Define("ACTIVATION", x.Expression(s.Compute))
	}
	w.Unit(s, s.Types[1])
	gemm.DefineSizes(&w.Writer, s)
	return w.File("matmul", "matmul_"+s.Op)
}

// Scales are the factors of a product of matrices of 8 bits.
type Scales struct {
	// A and B are float32: one number, or one for each row of a, and one for each column of b.
	A, B Operand
	// Result is one number of float32, by which the result is divided; or the zero Operand.
	Result Operand
	// FNUZ has a bit for out, a and b, from the lowest on, of matrices in the type whose name ends in fnuz: it has no
	// negative zero, and one NaN.
	FNUZ int
}

// ScaledMatmul adds out = (a @ b * scales of a * scales of b + bias) / scale of out, for matrices a and b of numbers of
// 8 bits, float8_e4m3fn or float8_e5m2 each. It's computed in float32. out may have those types as well, or be float16,
// bfloat16 or float32, as may bias, which has a number for each column, or is the zero Operand.
func (p *Plan) ScaledMatmul(out, a, b, bias Operand, scales *Scales) error {
	plain := func(t dtype.DType) bool { return t == dtype.Float32 || t == dtype.Float16 || t == dtype.BFloat16 }
	s := text.Spec{Family: MatmulFamily, Compute: dtype.Float32, Block: threads, Outs: 1, Ins: 5, Form: gemm.Scaled}
	switch {
	case !text.IsFloat8(a.Type) || !text.IsFloat8(b.Type) || !text.IsFloat8(out.Type) && !plain(out.Type):
		return fmt.Errorf("kernel: scaled matmul of %v and %v to %v", a.Type, b.Type, out.Type)
	case bias.Type != dtype.Invalid && (!plain(bias.Type) || len(bias.Sizes) > 1):
		return fmt.Errorf("kernel: scaled matmul with a bias of %v, %v", bias.Type, bias.Sizes)
	case len(out.Sizes) != 2 || scales.FNUZ&^7 != 0 || scales.FNUZ&1 != 0 && !text.IsFloat8(out.Type):
		return fmt.Errorf("kernel: scaled matmul to %v of %v, with formats %d", out.Sizes, out.Type, scales.FNUZ)
	}
	s.Extra[0] = int32(scales.FNUZ)
	s.Types[4], s.Types[5] = dtype.Float32, dtype.Float32
	check := func(o *Operand, most int) error {
		if err := o.check("a scale"); err != nil {
			return err
		}
		if o.Type != dtype.Float32 || o.Value != nil || len(o.Sizes) != 1 || o.Sizes[0] != 1 && o.Sizes[0] != most {
			return fmt.Errorf("kernel: scales of %v, %v, for a matrix of %d", o.Type, o.Sizes, most)
		}
		return nil
	}
	if err := check(&scales.A, out.Sizes[0]); err != nil {
		return err
	}
	if err := check(&scales.B, out.Sizes[1]); err != nil {
		return err
	}
	if scales.Result.Type != dtype.Invalid {
		if err := check(&scales.Result, 1); err != nil {
			return err
		}
		s.Form |= gemm.ScaledResult
		s.Types[s.Outs+s.Ins] = dtype.Float32
		s.Ins++
	}
	s.Wide = wide(scales.A.reach(), scales.B.reach())
	return p.matmul(s, out, a, b, bias, nil, nil, scales)
}

// add adds the scales to a call: the addresses, then the steps.
func (x *Scales) add(c *loader.Call) {
	c.Args.Pointer(x.A.Ptr).Pointer(x.B.Ptr)
	if c.Spec.Form&gemm.ScaledResult != 0 {
		c.Args.Pointer(x.Result.Ptr)
	}
	for _, o := range []*Operand{&x.A, &x.B} {
		step := 0
		if o.Sizes[0] != 1 {
			step = o.Strides[0]
		}
		c.Index(step)
	}
}

// matrixOf is an element of operand k as a number that's computed in.
func matrixOf(s text.Spec, k int, x string) string {
	if isFNUZ(s, k) {
		return "from_" + fnuzName(s.Types[k]) + "(" + x + ")"
	}
	return text.Converted(s.Compute, s.Types[k], x)
}

// resultOf is a number that's computed in as an element of the result.
func resultOf(s text.Spec, x string) string {
	if isFNUZ(s, 0) {
		return "to_" + fnuzName(s.Types[0]) + "(" + x + ")"
	}
	return text.Narrowed(s.Types[0], s.Compute, x)
}

func isFNUZ(s text.Spec, k int) bool { return s.Form&gemm.Scaled != 0 && s.Extra[0]>>k&1 != 0 }

func fnuzName(t dtype.DType) string {
	if t == dtype.Float8E5M2 {
		return "f8e5m2fnuz"
	}
	return "f8e4m3fnuz"
}
