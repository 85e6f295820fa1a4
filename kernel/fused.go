package kernel

import (
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// fusedProduct fills in the product a @ b, with a bias and scales if they aren't nil, and reports whether a library may
// do it: one of its types, with dense rows or columns. Of matrices without scales only those with a bias are its work,
// and of them, as PyTorch's CUDA has it, none of one row or column.
func (p *Plan) fusedProduct(x *device.FusedGEMM, out, a, b Operand, bias *Operand, scales *Scales) bool {
	if !p.FusedGEMM.Has(a.Type) || !p.FusedGEMM.Has(b.Type) || len(out.Sizes) != 2 {
		return false
	}
	if scales == nil && out.Type != dtype.Int32 && (bias == nil || min(out.Sizes[0], out.Sizes[1]) == 1) {
		return false
	}
	m, n, depth := out.Sizes[0], out.Sizes[1], a.Sizes[1]
	*x = device.FusedGEMM{Rows: m, Columns: n, Depth: depth, AType: a.Type, BType: b.Type, OutType: out.Type}
	if m*n*depth == 0 || !denseMatrix(&x.Out, out) || !denseMatrix(&x.A, a) || !denseMatrix(&x.B, b) {
		return false
	}
	if scales != nil {
		formats := 6 // of a and b
		if text.IsFloat8(out.Type) {
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

// denseLines is a matrix of so many rows and columns, these many elements apart, as a library takes it: rows or columns
// are dense.
func denseLines(rows, columns, row, column int) (m device.Matrix, ok bool) {
	switch {
	case (column == 1 || columns == 1) && (rows == 1 || row >= columns):
		m.Pitch = row
		if rows == 1 {
			m.Pitch = columns
		}
	case (row == 1 || rows == 1) && (columns == 1 || column >= rows):
		m.Transposed, m.Pitch = true, column
		if columns == 1 {
			m.Pitch = rows
		}
	default:
		return m, false
	}
	return m, true
}

// describe fills in the product alpha * a @ b, and reports whether a library takes such: its matrices have dense rows
// or columns and follow each other at one distance.
func (p *Plan) describe(x *device.GEMM, out, a, b Operand, alpha *Number) bool {
	d := len(out.Sizes)
	m, n, depth := out.Sizes[d-2], out.Sizes[d-1], a.Sizes[d-1]
	q := &p.space
	if p.matrices(out, a, b) != nil || q.count*m*n*depth == 0 {
		return false
	}
	if q.join(); q.dims > 1 {
		return false
	}
	of := func(to *device.Matrix, at, rows, columns int, o Operand) (ok bool) {
		if *to, ok = denseLines(rows, columns, o.Strides[d-2], o.Strides[d-1]); !ok {
			return false
		}
		to.Ptr = o.Ptr
		if q.dims == 1 {
			to.Next = q.strides[at][0]
		}
		return to.Next >= 0
	}
	*x = device.GEMM{Type: out.Type, Rows: m, Columns: n, Depth: depth, Count: q.count, Alpha: alpha.complex(),
		Atomics: p.Atomics}
	if !of(&x.Out, 0, m, n, out) || !of(&x.A, 1, m, depth, a) || !of(&x.B, 2, depth, n, b) {
		return false
	}
	if x.Out.Transposed { // the transposed product
		x.A, x.B = x.B, x.A
		for _, k := range []*device.Matrix{&x.Out, &x.A, &x.B} {
			k.Transposed = !k.Transposed
		}
		x.Rows, x.Columns = n, m
	}
	return x.Count == 1 || x.Out.Next >= x.Out.Elements(x.Rows, x.Columns, 1)
}
