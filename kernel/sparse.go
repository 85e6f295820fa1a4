package kernel

import (
	"fmt"
	"slices"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/gemm"
	"github.com/chorus-comms/chorus/kernel/library"
	"github.com/chorus-comms/chorus/kernel/text"
)

// SparseFamily multiplies sparse matrices by dense ones.
const SparseFamily text.Family = 36

func init() { text.Register(SparseFamily, "sparse", sparseSource) }

// SparseRows is a sparse matrix with compressed rows, as PyTorch's layout CSR is.
type SparseRows struct {
	RowOffsets    Operand // of each row's first element, and behind them the number of elements: int64 or int32
	ColumnIndices Operand // of each element: its column, of that type
	Values        Operand // the elements
}

// SparseMatmul adds out = alpha * a @ b + beta * c. Matrices out, b and c have any strides, and c is broadcast.
// The zero Operand is no c; out may be c. All have one type, which isn't bool. A row's elements are added in their
// order. Each counts, also of those with the same column. An element is left out if there's no such column.
//
// A library has it if [Plan.SpMM] has the type. It adds in an order of its own, and the caller answers for a: a row's
// elements have different columns, which are there.
func (p *Plan) SparseMatmul(out Operand, a *SparseRows, b, c Operand, alpha, beta *Number) error {
	there := c.Type != dtype.Invalid
	if !there {
		c = out
	}
	for _, o := range [...]*Operand{&out, &a.RowOffsets, &a.ColumnIndices, &a.Values, &b, &c} {
		if err := o.check("an operand of sparse_matmul"); err != nil {
			return err
		}
		if o.Value != nil {
			return fmt.Errorf("kernel: sparse_matmul of a number")
		}
	}
	whole := a.RowOffsets.Type
	if out.Type == dtype.Bool || !text.Supported(out.Type) || a.Values.Type != out.Type || b.Type != out.Type ||
		c.Type != out.Type || a.ColumnIndices.Type != whole || whole != dtype.Int64 && whole != dtype.Int32 {
		return fmt.Errorf("kernel: sparse_matmul of %v at %v and %v, and %v, to %v", a.Values.Type, whole,
			a.ColumnIndices.Type,
			b.Type, out.Type)
	}
	if len(out.Sizes) != 2 || len(b.Sizes) != 2 || len(c.Sizes) > 2 || b.Sizes[1] != out.Sizes[1] ||
		len(a.RowOffsets.Sizes) != 1 || a.RowOffsets.Sizes[0] != out.Sizes[0]+1 || len(a.ColumnIndices.Sizes) != 1 ||
		len(a.Values.Sizes) != 1 || a.Values.Sizes[0] != a.ColumnIndices.Sizes[0] {
		return fmt.Errorf("kernel: sparse_matmul of %v starts, %v places, %v values, and %v to %v", a.RowOffsets.Sizes,
			a.ColumnIndices.Sizes, a.Values.Sizes, b.Sizes, out.Sizes)
	}
	var cs [2]int
	for k := range c.Sizes {
		d := 2 - len(c.Sizes) + k
		if c.Sizes[k] == 1 {
			continue
		}
		if c.Sizes[k] != out.Sizes[d] {
			return fmt.Errorf("kernel: sparse_matmul to %v plus %v", out.Sizes, c.Sizes)
		}
		cs[d] = c.Strides[k]
	}
	n := out.Sizes[0] * out.Sizes[1]
	if n == 0 {
		return nil
	}
	var product device.SpMM
	byLibrary := !(there && beta.complex() == 0) && p.sparseProduct(&product, out, a, b, alpha)
	if byLibrary && there {
		if !slices.Equal(c.Sizes, out.Sizes) || !slices.Equal(c.Strides, out.Strides) || c.Ptr != out.Ptr {
			if err := p.Copy(out, c); err != nil {
				return err
			}
			c, cs = out, [2]int{out.Strides[0], out.Strides[1]}
		}
		product.Beta = beta.complex()
	}
	s := text.Spec{Family: SparseFamily, Op: "sparse_matmul", Compute: text.Opmath(out.Type), Block: threads, Outs: 1,
		Ins: 3}
	s.Types = [text.MaxOperands]dtype.DType{out.Type, whole}
	if there {
		s.Form |= gemm.Plus
	}
	s.Wide = wide(n, a.ColumnIndices.Sizes[0])
	for _, o := range [...]*Operand{&out, &a.RowOffsets, &a.ColumnIndices, &a.Values, &b, &c} {
		s.Wide = s.Wide || wide(o.reach())
	}
	call := p.call(s, n)
	for _, at := range [...]device.Ptr{out.Ptr, a.RowOffsets.Ptr, a.ColumnIndices.Ptr, a.Values.Ptr, b.Ptr, c.Ptr} {
		call.Args.Pointer(at)
	}
	for _, v := range [...]int{out.Sizes[0], out.Sizes[1], b.Sizes[0], a.ColumnIndices.Sizes[0], out.Strides[0],
		out.Strides[1],
		b.Strides[0], b.Strides[1], cs[0], cs[1], a.RowOffsets.Strides[0], a.ColumnIndices.Strides[0], a.Values.Strides[0]} {
		call.Index(v)
	}
	alpha.add(&call.Args, s.Compute)
	beta.add(&call.Args, s.Compute)
	if byLibrary {
		call.Library.Kind, call.Library.Sparse = library.SpMM, product
	}
	return nil
}

// sparseProduct fills in the product alpha * a @ b, and reports whether a library may do it: one of its types, of
// vectors without gaps and of matrices with dense rows or columns.
func (p *Plan) sparseProduct(x *device.SpMM, out Operand, a *SparseRows, b Operand, alpha *Number) bool {
	count := a.ColumnIndices.Sizes[0]
	if !p.SpMM.Has(out.Type) || count == 0 || b.Sizes[0] == 0 || !denseVector(&a.RowOffsets, out.Sizes[0]+1) ||
		!denseVector(&a.ColumnIndices, count) || !denseVector(&a.Values, count) {
		return false
	}
	*x = device.SpMM{Type: out.Type, Index: a.RowOffsets.Type, Rows: out.Sizes[0], Columns: out.Sizes[1],
		Depth: b.Sizes[0], Count: count, RowOffsets: a.RowOffsets.Ptr, ColumnIndices: a.ColumnIndices.Ptr,
		Values: a.Values.Ptr,
		Alpha:  alpha.complex(), Varies: p.Atomics}
	return denseMatrix(&x.Out, out) && denseMatrix(&x.B, b)
}

func sparseSource(s text.Spec) (text.Source, error) {
	var w writer
	w.Begin(s)
	w.Defines(s, 0)
	w.Define("VALUE(x)", text.Converted(s.Compute, s.Types[0], "x"))
	w.DefineIf(s.Form&gemm.Plus != 0, "PLUS")
	return w.File("sparse", s.Op)
}
