package driver

import "github.com/chorus-comms/chorus/dtype"

// GEMM is out = alpha * a @ b + beta * out, for matrices of one type, or several of them at once. If beta is 0, what
// was in out doesn't count, even if it isn't a number. Out overlaps neither a nor b.
type GEMM struct {
	Type                 dtype.DType
	Rows, Columns, Depth int // of out, and of the sums: 1 at least
	Count                int // of matrices: 1 at least
	Out, A, B            Matrix
	Alpha, Beta          complex128

	// Atomics lets the library add with atomic operations, whose order isn't always the same.
	Atomics bool
}

// Matrix is one of a product, or the first of several.
type Matrix struct {
	Ptr        Ptr
	Transposed bool // neighbours in a column lie side by side, not those in a row; not of Out
	Pitch      int  // elements from one row to the next, or from one column to the next if it's transposed
	Next       int  // elements from one matrix to the next; 0: it's the same one
}

// Elements is how many elements there are from the first to the last of a product's matrix of so many rows and columns.
func (m *Matrix) Elements(rows, columns, count int) int {
	if m.Transposed {
		rows, columns = columns, rows
	}
	return (count-1)*m.Next + (rows-1)*m.Pitch + columns
}

// Check refuses a product that is none, before a library sees it.
func (p *GEMM) Check(device string) error {
	return checkMatrices(device, "multiply", p.Depth, p.Count, p.Matrices())
}

// checkMatrices refuses out, a and b that have no product.
func checkMatrices(device, op string, depth, count int, all [3]NamedMatrix) error {
	bad := func(format string, args ...any) error {
		return Errorf(ErrInvalidArgument, device, op, format, args...)
	}
	if rows, columns := all[0].Rows, all[0].Columns; rows < 1 || columns < 1 || depth < 1 || count < 1 {
		return bad("%d products of %d x %d and %[3]d x %d", count, rows, depth, columns)
	}
	for _, x := range all {
		inner := x.Columns
		if x.Transposed {
			inner = x.Rows
		}
		switch {
		case x.Pitch < inner || x.Next < 0:
			return bad("%s has lines of %d elements, %d apart, and matrices %d apart", x.Name, inner, x.Pitch, x.Next)
		case x.Name == "out" && (x.Transposed || count > 1 && x.Next < x.Elements(x.Rows, x.Columns, 1)):
			return bad("matrices of out are transposed or overlap")
		}
	}
	return nil
}

// NamedMatrix is a matrix of a product, with its type and size.
type NamedMatrix struct {
	*Matrix
	Name          string
	Type          dtype.DType
	Rows, Columns int
}

// Bytes is how much memory so many matrices take, from the first element on.
func (x *NamedMatrix) Bytes(count int) int {
	return x.Elements(x.Rows, x.Columns, count) * x.Type.Size()
}

// Matrices are the product's: out, a and b.
func (p *GEMM) Matrices() [3]NamedMatrix {
	return [3]NamedMatrix{{&p.Out, "out", p.Type, p.Rows, p.Columns}, {&p.A, "a", p.Type, p.Rows, p.Depth},
		{&p.B, "b", p.Type, p.Depth, p.Columns}}
}
