package driver

import "github.com/chorus-comms/chorus/dtype"

// FusedGEMM is out = (a @ b * scale of a * scale of b + bias) * scale of out. Out overlaps nothing else.
//
// Matrices of int8 give int32, without scales and bias. Matrices of float8 may have two types of it; out has one of
// these, float16, bfloat16 or float32. Matrices of one of the latter three give the same type. They have no scales, and
// the bias has their type.
type FusedGEMM struct {
	Rows, Columns, Depth int // of out, and of the sums: 1 at least
	Out, A, B            Matrix
	OutType              dtype.DType
	AType, BType         dtype.DType
	FNUZ                 bool // types of 8 bits are those whose names end in fnuz

	// Scales are float32 in memory of the device: a number for a matrix; with Lines, one for each row of a, and one for
	// each column of b. Null is 1.
	ScaleA, ScaleB Ptr
	Lines          bool
	ScaleOut       Ptr // one number; of out of 8 bits

	Bias     Ptr // a number for each column, or null
	BiasType dtype.DType
	Relu     bool // negative numbers of the sum become 0; of matrices without scales, with a bias
}

// Matrices are the product's: out, a and b.
func (p *FusedGEMM) Matrices() [3]NamedMatrix {
	return [3]NamedMatrix{{&p.Out, "out", p.OutType, p.Rows, p.Columns}, {&p.A, "a", p.AType, p.Rows, p.Depth},
		{&p.B, "b", p.BType, p.Depth, p.Columns}}
}

// NamedVector is numbers that a product has beside its matrices.
type NamedVector struct {
	Ptr   Ptr
	Name  string
	Bytes int
}

// Vectors are the product's: scales of a, b and out, and the bias. Their addresses may be null.
func (p *FusedGEMM) Vectors() [4]NamedVector {
	rows, columns := 1, 1
	if p.Lines {
		rows, columns = p.Rows, p.Columns
	}
	return [4]NamedVector{{p.ScaleA, "scale of a", 4 * rows}, {p.ScaleB, "scale of b", 4 * columns},
		{p.ScaleOut, "scale of out", 4}, {p.Bias, "bias", p.BiasType.Size() * p.Columns}}
}

// Check refuses a product that is none, before a library sees it, and by [ErrUnsupported] one of other types.
func (p *FusedGEMM) Check(device string) error {
	const op = "multiply fused"
	if err := checkMatrices(device, op, p.Depth, 1, p.Matrices()); err != nil {
		return err
	}
	small := func(t dtype.DType) bool { return t == dtype.Float8E4M3FN || t == dtype.Float8E5M2 }
	wide := func(t dtype.DType) bool { return t == dtype.Float32 || t == dtype.Float16 || t == dtype.BFloat16 }
	integers := p.AType == dtype.Int8 && p.BType == dtype.Int8 && p.OutType == dtype.Int32
	floats := small(p.AType) && small(p.BType) && (small(p.OutType) || wide(p.OutType))
	plain := wide(p.OutType) && p.AType == p.OutType && p.BType == p.OutType
	switch {
	case !integers && !floats && !plain:
		return Errorf(ErrUnsupported, device, op, "%v and %v to %v", p.AType, p.BType, p.OutType)
	case !floats && (p.FNUZ || p.ScaleA != 0 || p.ScaleB != 0), integers && p.Bias != 0, p.Relu && (!plain || p.Bias == 0),
		plain && p.Bias != 0 && p.BiasType != p.OutType, p.ScaleOut != 0 && !small(p.OutType),
		p.Bias != 0 && !wide(p.BiasType), p.Lines && (p.ScaleA == 0 || p.ScaleB == 0):
		return Errorf(ErrInvalidArgument, device, op, "scales at %v, %v and %v of %v and %v to %v, lines: %t, bias of %v",
			p.ScaleA, p.ScaleB, p.ScaleOut, p.AType, p.BType, p.OutType, p.Lines, p.BiasType)
	}
	for _, x := range p.Vectors() {
		if x.Ptr%4 != 0 && x.Name != "bias" || x.Name == "bias" && x.Ptr != 0 && int(x.Ptr)%p.BiasType.Size() != 0 {
			return Errorf(ErrInvalidArgument, device, op, "%s at %v isn't aligned to its elements", x.Name, x.Ptr)
		}
	}
	return nil
}
