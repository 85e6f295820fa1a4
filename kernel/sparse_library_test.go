//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/library"
	"github.com/chorus-comms/chorus/kernel/loader"
)

// A product with a sparse matrix is its library's; one that it refuses is a kernel's, and so are all after a failure.
// Here no kernel compiles, so that one that's asked for is an error.
func TestSparseLibrary(t *testing.T) {
	x := newStandin(t)
	if all := x.loader.SpMM(); !all.Has(dtype.Float32) || !all.Has(dtype.BFloat16) || all.Has(dtype.Int32) {
		t.Fatalf("the library multiplies %b", all)
	}
	p := &Plan{SpMM: x.loader.SpMM(), Atomics: true}
	at := func(k int, t dtype.DType, sizes ...int) Operand {
		return Operand{Ptr: x.mem.Add(k << 9), Type: t, Sizes: sizes, Strides: Dense(sizes...)}
	}
	rows := &SparseRows{at(1, dtype.Int64, 3), at(2, dtype.Int64, 4), at(3, dtype.Float32, 4)}
	must(t, p.SparseMatmul(at(0, dtype.Float32, 2, 5), rows, at(4, dtype.Float32, 3, 5), Operand{}, Int(1), Int(0)))
	kernels := func(what string, p *Plan) {
		t.Helper()
		if _, is := errors.AsType[*loader.CompileError](x.loader.Run(x.stream, p.Calls)); !is {
			t.Errorf("%s isn't a kernel's", what)
		}
	}
	if err := x.loader.Run(x.stream, p.Calls); err != nil || x.loader.Stats().Multiplied != 1 {
		t.Fatalf("a product: %v, %+v", err, x.loader.Stats())
	}
	for what, status := range map[string]abi.SparseStatus{"a refused product": abi.SparseNotSupported,
		"one without memory": abi.SparseAllocFailed} {
		x.sparseStatus = status
		kernels(what, p)
	}
	x.sparseStatus = abi.SparseDone
	if err := x.loader.Run(x.stream, p.Calls); err != nil {
		t.Error("a product after a refused one: ", err)
	}
	x.sparseStatus = abi.SparseInternal
	kernels("a failed product", p)
	x.sparseStatus = abi.SparseDone
	calls := x.sparseCalls
	kernels("a product after one that failed", p)
	if x.sparseCalls != calls || x.loader.SpMM() != 0 || x.loader.GEMMLibrary() == "" {
		t.Error("a library that has failed is used again, or another one isn't")
	}
}

// A plan describes the product to the library if that can do it, with what is added in the result.
func TestSparseLibraryPlan(t *testing.T) {
	f32, i64 := dtype.Float32, dtype.Int64
	at := func(k int, t dtype.DType, strides []int, sizes ...int) Operand {
		return Operand{Ptr: device.Ptr(k << 12), Type: t, Sizes: sizes, Strides: strides}
	}
	one := []int{1}
	out, b := at(1, f32, []int{5, 1}, 2, 5), at(2, f32, []int{5, 1}, 3, 5)
	a := SparseRows{at(3, i64, one, 3), at(4, i64, one, 4), at(5, f32, one, 4)}
	gaps, none := a, a
	gaps.Values.Strides = []int{2}
	none.ColumnIndices, none.Values = at(4, i64, one, 0), at(5, f32, one, 0)
	want := device.SpMM{Type: f32, Index: i64, Rows: 2, Columns: 5, Depth: 3, Count: 4, RowOffsets: 3 << 12,
		ColumnIndices: 4 << 12, Values: 5 << 12, Out: device.Matrix{Ptr: 1 << 12, Pitch: 5},
		B: device.Matrix{Ptr: 2 << 12, Pitch: 5}, Alpha: 2}
	of := func(change func(p *device.SpMM)) *device.SpMM {
		p := want
		change(&p)
		return &p
	}
	for what, c := range map[string]struct {
		out  Operand
		a    SparseRows
		b, c Operand
		beta int64
		want *device.SpMM
		runs int
	}{
		"a product": {out, a, b, Operand{}, 0, &want, 1},
		"columns": {at(1, f32, []int{1, 2}, 2, 5), a, at(2, f32, []int{1, 3}, 3, 5), Operand{}, 0,
			of(func(p *device.SpMM) {
				p.Out, p.B = device.Matrix{Ptr: 1 << 12, Transposed: true, Pitch: 2},
					device.Matrix{Ptr: 2 << 12, Transposed: true, Pitch: 3}
			}), 1},
		"lines with gaps": {out, a, at(2, f32, []int{9, 1}, 3, 5), Operand{}, 0,
			of(func(p *device.SpMM) { p.B.Pitch = 9 }), 1},
		"plus the result": {out, a, b, out, 3, of(func(p *device.SpMM) { p.Beta = 3 }), 1},
		"plus a vector": {out, a, b, at(6, f32, one, 5), 3, of(func(p *device.SpMM) { p.Beta = 3 }),
			2},
		"plus nothing of it":     {out, a, b, out, 0, nil, 1},
		"rows and columns, gaps": {out, a, at(2, f32, []int{10, 2}, 3, 5), Operand{}, 0, nil, 1},
		"elements with gaps":     {out, gaps, b, Operand{}, 0, nil, 1},
		"no elements":            {out, none, b, Operand{}, 0, nil, 1},
		"a type that it hasn't got": {as(out, i64), SparseRows{a.RowOffsets, a.ColumnIndices, as(a.Values, i64)}, as(b, i64),
			Operand{}, 0, nil, 1},
	} {
		for _, varies := range []bool{false, true} {
			p := Plan{SpMM: dtype.Set(1 << f32), Atomics: varies}
			err := p.SparseMatmul(c.out, &c.a, c.b, c.c, Int(2), Int(c.beta))
			if err != nil || len(p.Calls) != c.runs {
				t.Errorf("%s: %d calls, %v", what, len(p.Calls), err)
				continue
			}
			call := p.Calls[c.runs-1]
			if c.want != nil {
				c.want.Varies = varies
			}
			if sparse := call.Library.Kind == library.SpMM; sparse != (c.want != nil) ||
				sparse && call.Library.Sparse != *c.want {
				t.Errorf("%s: %t, %+v, want %+v", what, sparse, call.Library.Sparse, c.want)
			}
		}
		p := Plan{}
		must(t, p.SparseMatmul(c.out, &c.a, c.b, c.c, Int(2), Int(c.beta)))
		if len(p.Calls) != 1 || (p.Calls[0].Library.Kind == library.SpMM) {
			t.Errorf("%s is a library's, and there's none", what)
		}
	}
}

// The library's products are the kernel's, with sums that are exact.
func TestSparseLibraryKernel(t *testing.T) {
	c, x := openCL(t), newStandin(t)
	starts, places := []int{0, 3, 3, 4, 7}, []int{0, 2, 4, 1, 3, 4, 0}
	for k, dt := range []dtype.DType{dtype.Float32, dtype.Float64, dtype.Float16, dtype.BFloat16, dtype.Complex64,
		dtype.Complex128} {
		whole := []dtype.DType{dtype.Int64, dtype.Int32}[k%2]
		ends, at := c.dense(t, whole, 5), c.dense(t, whole, 7)
		ends.longs(starts...)
		at.longs(places...)
		values, b, sum, out := c.dense(t, dt, 7), c.dense(t, dt, 15), c.dense(t, dt, 12), c.dense(t, dt, 12)
		for i, o := range []*array{values, b, sum, out} {
			z := make([]complex128, len(o.data)/dt.Size())
			for j := range z {
				z[j] = complex(float64(j*(3+2*i)%5-2), float64(j%3))
			}
			o.set(z)
		}
		all, ptrs := []*array{ends, at, values, b, sum, out}, make([]device.Ptr, 6)
		for i, o := range all {
			var err error
			if ptrs[i], err = x.stream.Device().Alloc(len(o.data), x.stream); err != nil {
				t.Fatal(err)
			}
			must(t, x.stream.Copy(ptrs[i], device.Ptr(uintptr(unsafe.Pointer(&o.data[0]))), len(o.data)))
		}
		for form, strides := range [][2][]int{{{3, 1}, {3, 1}}, {{3, 1}, {1, 5}}, {{1, 4}, {3, 1}}, {{1, 4}, {1, 5}}} {
			for _, plus := range []bool{false, true} {
				what := fmt.Sprintf("%v, form %d, plus: %t", dt, form, plus)
				add := func(p *Plan, at func(i int, sizes, strides []int) Operand) {
					third := Operand{}
					if plus {
						third = at(5, []int{4, 3}, strides[0])
					}
					rows := &SparseRows{at(0, []int{5}, []int{1}), at(1, []int{7}, []int{1}), at(2, []int{7}, []int{1})}
					must(t, p.SparseMatmul(at(5, []int{4, 3}, strides[0]), rows, at(3, []int{5, 3}, strides[1]), third, Int(2),
						Int(1)))
				}
				var p Plan
				add(&p, func(i int, sizes, strides []int) Operand { return all[i].strided(sizes, strides) })
				must(t, c.run(&p))
				q := Plan{SpMM: x.loader.SpMM(), Atomics: form%2 > 0}
				add(&q, func(i int, sizes, strides []int) Operand {
					return Operand{Ptr: ptrs[i], Type: all[i].Type, Sizes: sizes, Strides: strides}
				})
				must(t, x.loader.Run(x.stream, q.Calls))
				got := make([]byte, len(out.data))
				must(t, errors.Join(x.stream.Copy(device.Ptr(uintptr(unsafe.Pointer(&got[0]))), ptrs[5], len(got)),
					x.stream.Synchronize(context.Background())))
				if !bytes.Equal(got, out.data) {
					t.Errorf("%s: %v by the library, and %v by the kernel", what, elements(dt, got), out.elements())
				}
			}
		}
		for _, p := range ptrs {
			must(t, x.stream.Device().Dealloc(p))
		}
	}
	if n := x.loader.Stats().Multiplied; n != 6*8 {
		t.Errorf("%d products of the library", n)
	}
}
