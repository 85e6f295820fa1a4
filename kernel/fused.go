package kernel

import (
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
)

// Fused are the types of matrices that a library of fused products multiplies, for plans: [Plan.Fused]. The library is
// opened by the first call. There are none if the device has no such library, or its library has failed.
func (l *Loader) Fused() TypeSet {
	l.fusedOnce.Do(func() {
		if found, err := l.dev.FusedLibrary(); err == nil {
			l.fused.is(found)
		}
	})
	return l.fused.usable()
}

// fusedProduct fills in the product a @ b, with a bias and scales if they aren't nil, and reports whether a library may
// do it: one of its types, with dense rows or columns. Of matrices without scales only those with a bias are its work,
// and of them, as PyTorch's CUDA has it, none of one row or column.
func (p *Plan) fusedProduct(x *device.FusedProduct, out, a, b Operand, bias *Operand, scales *Scales) bool {
	if !p.Fused.Has(a.Type) || !p.Fused.Has(b.Type) || len(out.Sizes) != 2 {
		return false
	}
	if scales == nil && out.Type != dtype.Int32 && (bias == nil || min(out.Sizes[0], out.Sizes[1]) == 1) {
		return false
	}
	m, n, depth := out.Sizes[0], out.Sizes[1], a.Sizes[1]
	*x = device.FusedProduct{Rows: m, Columns: n, Depth: depth, AType: a.Type, BType: b.Type, OutType: out.Type}
	if m*n*depth == 0 || !denseMatrix(&x.Out, out) || !denseMatrix(&x.A, a) || !denseMatrix(&x.B, b) {
		return false
	}
	if scales != nil {
		formats := 6 // of a and b
		if isFloat8(out.Type) {
			formats = 7
		}
		if x.FNUZ = scales.FNUZ != 0; x.FNUZ && scales.FNUZ != formats {
			return false
		}
		x.ScaleA, x.ScaleB = scales.A.Ptr, scales.B.Ptr
		x.Lines = scales.A.Sizes[0] != 1 || scales.B.Sizes[0] != 1
		if x.Lines && !(denseVector(&scales.A, m) && denseVector(&scales.B, n)) {
			return false
		}
	}
	if bias != nil {
		x.Bias, x.BiasType = bias.Ptr, bias.Type
		if !denseVector(bias, n) || x.Out.Transposed { // the library adds it to columns
			return false
		}
	}
	if x.Out.Transposed { // the transposed product
		x.A, x.B = x.B, x.A
		x.AType, x.BType = x.BType, x.AType
		x.ScaleA, x.ScaleB = x.ScaleB, x.ScaleA
		for _, k := range []*device.Matrix{&x.Out, &x.A, &x.B} {
			k.Transposed = !k.Transposed
		}
		x.Rows, x.Columns = n, m
	}
	return true
}

// denseMatrix is an operand of two dimensions as a library takes it.
func denseMatrix(to *device.Matrix, o Operand) (ok bool) {
	*to, ok = denseLines(o.Sizes[0], o.Sizes[1], o.Strides[0], o.Strides[1])
	to.Ptr = o.Ptr
	return ok
}

// denseVector reports whether an operand has n numbers side by side.
func denseVector(o *Operand, n int) bool {
	return len(o.Sizes) == 1 && o.Sizes[0] == n && (n == 1 || o.Strides[0] == 1)
}

// reciprocal adds a run that computes 1 / x of a number, and returns where that will be.
func (p *Plan) reciprocal(x Operand) (device.Ptr, error) {
	at, err := p.scratch(x.Type.Size())
	if err != nil {
		return 0, err
	}
	p.one[0], p.one[1] = x, Operand{Ptr: at, Type: dtype.Float32, Sizes: x.Sizes, Strides: x.Strides}
	return at, p.Elementwise("reciprocal", dtype.Float32, p.one[1:], p.one[:1])
}
