package driver

import "github.com/chorus-comms/chorus/dtype"

// SpMM is out = alpha * a @ b + beta * out. Of a each row has its elements side by side, and each of them is
// in another column ("CSR"). If beta is 0, what was in out doesn't count, even if it isn't a number. Out overlaps
// nothing else.
//
// Nothing checks the places of a's elements: one in a row or column that isn't there reads or writes elsewhere.
type SpMM struct {
	Type                 dtype.DType // of elements
	Index                dtype.DType // of starts and places: int32 or int64
	Rows, Columns, Depth int         // of out, and of b: 1 at least
	Count                int         // of a's elements: 1 at least

	RowOffsets    Ptr // the place of each row's first element, and behind them Count
	ColumnIndices Ptr // of each element: its column
	Values        Ptr // the elements
	Out, B        Matrix

	Alpha, Beta complex128

	// Varies lets the library add in an order that isn't always the same.
	Varies bool
}

// Matrices are the product's dense ones: out and b.
func (p *SpMM) Matrices() [2]NamedMatrix {
	return [2]NamedMatrix{{&p.Out, "out", p.Type, p.Rows, p.Columns}, {&p.B, "b", p.Type, p.Depth, p.Columns}}
}

// Vectors are what a consists of.
func (p *SpMM) Vectors() [3]NamedVector {
	index := p.Index.Size()
	return [3]NamedVector{{p.RowOffsets, "starts of rows", (p.Rows + 1) * index}, {p.ColumnIndices, "places",
		p.Count * index},
		{p.Values, "values", p.Count * p.Type.Size()}}
}

// Check refuses a product that is none, before a library sees it.
func (p *SpMM) Check(device string) error {
	bad := func(format string, args ...any) error {
		return Errorf(ErrInvalidArgument, device, "multiply sparse", format, args...)
	}
	switch {
	case p.Rows < 1 || p.Columns < 1 || p.Depth < 1 || p.Count < 1:
		return bad("a product of %d x %d, of which there are %d elements, and %[2]d x %d", p.Rows, p.Depth, p.Count,
			p.Columns)
	case p.Index != dtype.Int32 && p.Index != dtype.Int64:
		return bad("places of %v", p.Index)
	}
	for _, m := range p.Matrices() {
		inner := m.Columns
		if m.Transposed {
			inner = m.Rows
		}
		if m.Pitch < inner {
			return bad("%s has lines of %d elements, %d apart", m.Name, inner, m.Pitch)
		}
	}
	return nil
}
