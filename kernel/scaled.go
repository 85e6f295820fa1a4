package kernel

import (
	"fmt"

	"github.com/chorus-comms/chorus/dtype"
)

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
	s := Spec{Family: MatmulFamily, Compute: dtype.Float32, Block: threads, Outs: 1, Ins: 5, Form: matmulScaled}
	switch {
	case !isFloat8(a.Type) || !isFloat8(b.Type) || !isFloat8(out.Type) && !plain(out.Type):
		return fmt.Errorf("kernel: scaled matmul of %v and %v to %v", a.Type, b.Type, out.Type)
	case bias.Type != dtype.Invalid && (!plain(bias.Type) || len(bias.Sizes) > 1):
		return fmt.Errorf("kernel: scaled matmul with a bias of %v, %v", bias.Type, bias.Sizes)
	case len(out.Sizes) != 2 || scales.FNUZ&^7 != 0 || scales.FNUZ&1 != 0 && !isFloat8(out.Type):
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
		s.Form |= matmulResult
		s.Types[s.Outs+s.Ins] = dtype.Float32
		s.Ins++
	}
	s.Wide = wide(scales.A.reach(), scales.B.reach())
	return p.matmul(s, out, a, b, bias, nil, nil, scales)
}

// add adds the scales to a call: the addresses, then the steps.
func (x *Scales) add(c *Call) {
	c.Args.Pointer(x.A.Ptr).Pointer(x.B.Ptr)
	if c.Spec.Form&matmulResult != 0 {
		c.Args.Pointer(x.Result.Ptr)
	}
	for _, o := range []*Operand{&x.A, &x.B} {
		step := 0
		if o.Sizes[0] != 1 {
			step = o.Strides[0]
		}
		c.index(step)
	}
}

// matrix is an element of operand k as a number that's computed in.
func (s Spec) matrix(k int, x string) string {
	if s.fnuz(k) {
		return "from_" + fnuzName(s.Types[k]) + "(" + x + ")"
	}
	return converted(s.Compute, s.Types[k], x)
}

// result is a number that's computed in as an element of the result.
func (s Spec) result(x string) string {
	if s.fnuz(0) {
		return "to_" + fnuzName(s.Types[0]) + "(" + x + ")"
	}
	return narrowed(s.Types[0], s.Compute, x)
}

func (s Spec) fnuz(k int) bool { return s.Form&matmulScaled != 0 && s.Extra[0]>>k&1 != 0 }

func fnuzName(t dtype.DType) string {
	if t == dtype.Float8E5M2 {
		return "f8e5m2fnuz"
	}
	return "f8e4m3fnuz"
}
