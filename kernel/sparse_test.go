package kernel

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// Products of sparse rows and dense matrices of every type, with empty rows and several elements in one place, against
// PyTorch's products of the dense ones.
func TestSparseTorch(t *testing.T) {
	x, dir := &comparisons{c: openCL(t)}, t.TempDir()
	starts, places := []int{0, 3, 3, 4, 9, 9}, []int{3, 1, 3, 0, 5, 2, 2, 3, 1}
	types := []dtype.DType{dtype.Float32, dtype.Float64, dtype.Float16, dtype.BFloat16, dtype.Complex64, dtype.Complex128,
		dtype.Int64, dtype.Int32, dtype.Int16, dtype.Int8, dtype.Uint8}
	for k, dt := range types {
		whole := []dtype.DType{dtype.Int64, dtype.Int32}[k%2]
		values, b, c := x.c.dense(t, dt, 9), x.c.dense(t, dt, 600), x.c.dense(t, dt, 500)
		for i, o := range []*array{values, b, c} {
			z := make([]complex128, len(o.data)/dt.Size())
			for j := range z {
				z[j] = complex(float64(j*(3+2*i)%5), float64(j%3))
			}
			o.set(z)
		}
		at, ends := x.c.dense(t, whole, 9), x.c.dense(t, whole, 6)
		at.longs(places...)
		ends.longs(starts...)
		files := strings.Join([]string{ends.file(t, dir, 10*k), at.file(t, dir, 10*k+1), values.file(t, dir, 10*k+2),
			b.file(t, dir, 10*k+3), c.file(t, dir, 10*k+4)}, " ")
		for _, columns := range []int{0, 1, 5, 100} {
			for _, s := range []struct{ b, c []int }{ // strides
				{[]int{columns, 1}, nil}, {[]int{1, 6}, []int{columns, 1}}, {[]int{columns, 1}, []int{0, 1}},
			} {
				if !sampled(k, 3, 1) {
					continue
				}
				sum, plus := "", Operand{}
				if s.c != nil {
					plus = c.strided([]int{5, columns}, s.c)
					sum = fmt.Sprintf(" + 3 * torch.as_strided(e, (5, %d), %s)", columns, python(s.c))
				}
				line := fmt.Sprintf("%v|%s|x = torch.zeros(5, 6, dtype=c.dtype); "+
					"r = torch.repeat_interleave(torch.arange(5), a.diff().long()); "+
					"x.index_put_((r, b.long()), c, accumulate=True); "+
					"(2 * (x @ torch.as_strided(d, (6, %d), %s))%s).to(c.dtype)", dt, files, columns, python(s.b), sum)
				x.add(t, fmt.Sprintf("sparse_matmul of %v, %d columns, %v", dt, columns, s), line,
					[]Operand{of(dt, 5, columns)}, func(p *Plan, outs []Operand) error {
						return p.SparseMatmul(outs[0], &SparseRows{ends.Operand, at.Operand, values.Operand},
							b.strided([]int{6, columns}, s.b), plus, Int(2), Int(3))
					})
			}
		}
	}
	x.compare(t, 4)
}

// A plan that's used again allocates nothing, indexes have 64 bits where they must, and operands that don't fit are
// refused.
func TestSparsePlan(t *testing.T) {
	op := func(t dtype.DType, sizes ...int) Operand { return Operand{4096, t, sizes, Dense(sizes...), nil} }
	var p Plan
	f32, one := dtype.Float32, Int(1)
	out, b := op(f32, 4, 5), op(f32, 3, 5)
	a := &SparseRows{op(dtype.Int64, 5), op(dtype.Int64, 7), op(f32, 7)}
	if n := testing.AllocsPerRun(100, func() {
		p.Reset()
		must(t, p.SparseMatmul(out, a, b, out, one, one))
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	for n, wide := range map[int]bool{1 << 20: false, 1 << 31: true} {
		p.Reset()
		must(t, p.SparseMatmul(op(f32, 4, 1), a, op(f32, n, 1), Operand{}, one, one))
		if p.Calls[0].Spec.Wide != wide {
			t.Errorf("of %d: wide is %v", n, p.Calls[0].Spec.Wide)
		}
	}
	p.Reset()
	number := Operand{Type: f32, Sizes: b.Sizes, Strides: b.Strides, Value: one}
	for want, err := range map[string]error{
		"to bool": p.SparseMatmul(op(dtype.Bool, 4, 5), &SparseRows{a.RowOffsets, a.ColumnIndices, op(dtype.Bool, 7)},
			op(dtype.Bool, 3, 5), Operand{}, one, one),
		"and float64":  p.SparseMatmul(out, a, op(dtype.Float64, 3, 5), Operand{}, one, one),
		"at int64 and": p.SparseMatmul(out, &SparseRows{a.RowOffsets, op(dtype.Int32, 7), a.Values}, b, out, one, one),
		"[5] starts":   p.SparseMatmul(op(f32, 5, 5), a, b, Operand{}, one, one),
		"[6] values":   p.SparseMatmul(out, &SparseRows{a.RowOffsets, a.ColumnIndices, op(f32, 6)}, b, out, one, one),
		"[3 4] to":     p.SparseMatmul(out, a, op(f32, 3, 4), Operand{}, one, one),
		"plus [3 5]":   p.SparseMatmul(out, a, b, b, one, one),
		"of a number":  p.SparseMatmul(out, a, number, out, one, one),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if len(p.Calls) > 0 {
		t.Error("a refused operation left calls")
	}
}

// sparseSpecs are the kernels of sparse matrices.
func sparseSpecs() []text.Spec {
	var all []text.Spec
	for k, dt := range []dtype.DType{dtype.Float32, dtype.Float64, dtype.Float16, dtype.BFloat16, dtype.Complex64,
		dtype.Int64, dtype.Uint8} {
		whole := []dtype.DType{dtype.Int64, dtype.Int32}[k%2]
		a := &SparseRows{Operand{4096, whole, []int{5}, []int{1}, nil}, Operand{4096, whole, []int{7}, []int{1}, nil},
			Operand{4096, dt, []int{7}, []int{1}, nil}}
		out := Operand{4096, dt, []int{4, 5}, []int{5, 1}, nil}
		b := Operand{4096, dt, []int{3, 5}, []int{5, 1 + k%2<<31}, nil}
		all = append(all, specsOf(func(p *Plan) error {
			if err := p.SparseMatmul(out, a, b, out, Int(2), Int(3)); err != nil {
				return err
			}
			return p.SparseMatmul(out, a, b, Operand{}, Int(2), Int(3))
		})...)
	}
	return all
}
