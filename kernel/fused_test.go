//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/library"
	"github.com/chorus-comms/chorus/kernel/loader"
)

// A product of 8 bits is the library's of fused products; one that it refuses is a kernel's, and so are all after a
// failure. Here no kernel compiles, so that one that's asked for is an error.
func TestFused(t *testing.T) {
	x := newStandin(t)
	if all := x.loader.FusedGEMM(); !all.Has(dtype.Int8) || !all.Has(dtype.Float8E5M2) || !all.Has(dtype.Float32) ||
		all.Has(dtype.Float64) {
		t.Fatalf("the library multiplies %b", all)
	}
	product := func(m, n, k int) *Plan {
		p := &Plan{FusedGEMM: x.loader.FusedGEMM()}
		out := Operand{Ptr: x.mem, Type: dtype.Int32, Sizes: []int{m, n}, Strides: Dense(m, n)}
		a := Operand{Ptr: x.mem.Add(1 << 10), Type: dtype.Int8, Sizes: []int{m, k}, Strides: Dense(m, k)}
		b := Operand{Ptr: x.mem.Add(2 << 10), Type: dtype.Int8, Sizes: []int{k, n}, Strides: []int{1, k}}
		if err := p.Matmul(out, a, b, Operand{}, Int(1), Int(0), ""); err != nil {
			t.Fatal(err)
		}
		return p
	}
	kernels := func(what string, p *Plan) {
		t.Helper()
		if _, is := errors.AsType[*loader.CompileError](x.loader.Run(x.stream, p.Calls)); !is {
			t.Errorf("%s isn't a kernel's", what)
		}
	}
	p := product(8, 12, 16)
	if err := x.loader.Run(x.stream, p.Calls); err != nil || x.loader.Stats().Multiplied != 1 {
		t.Fatalf("a product: %v, %+v", err, x.loader.Stats())
	}
	kernels("a product that the library has no layout for", product(3, 5, 7))
	x.fusedStatus = 15 // not supported
	kernels("a refused product", p)
	x.fusedStatus = abi.Done
	if err := x.loader.Run(x.stream, p.Calls); err != nil {
		t.Error("a product after a refused one: ", err)
	}
	x.fusedStatus = 14 // an internal error
	kernels("a failed product", p)
	x.fusedStatus = abi.Done
	calls := x.fusedCalls
	kernels("a product after one that failed", p)
	if x.fusedCalls != calls || x.loader.FusedGEMM() != 0 || x.loader.GEMMLibrary() == "" {
		t.Error("a library that has failed is used again, or the other one isn't")
	}
}

// A plan describes the product to the library of fused products, or the transposed one, if the library can do it.
func TestFusedPlan(t *testing.T) {
	all := dtype.SetOf(dtype.Int8, dtype.Float8E4M3FN, dtype.Float8E5M2)
	at := func(k int, t dtype.DType, strides []int, sizes ...int) Operand {
		return Operand{Ptr: device.Ptr(k << 12), Type: t, Sizes: sizes, Strides: strides}
	}
	f32, e4, e5 := dtype.Float32, dtype.Float8E4M3FN, dtype.Float8E5M2
	one := func(k int) Operand { return at(k, f32, []int{1}, 1) }
	out, a, b := at(1, f32, []int{8, 1}, 4, 8), at(2, e4, []int{16, 1}, 4, 16), at(3, e5, []int{1, 16}, 16, 8)
	columns, bias := at(1, f32, []int{1, 4}, 4, 8), at(6, dtype.BFloat16, []int{1}, 8)
	whole := Scales{A: one(4), B: one(5)}
	lines := Scales{A: at(4, f32, []int{1}, 4), B: at(5, f32, []int{1}, 8)}
	gaps, both, formats, result := lines, Scales{A: lines.A, B: one(5)}, whole, whole
	gaps.B.Strides = []int{2}
	formats.FNUZ = 2
	result.Result = one(7)
	fnuz := whole
	fnuz.FNUZ = 6
	straight := device.FusedGEMM{Rows: 4, Columns: 8, Depth: 16, OutType: f32, AType: e4, BType: e5,
		Out: device.Matrix{Ptr: 1 << 12, Pitch: 8}, A: device.Matrix{Ptr: 2 << 12, Pitch: 16},
		B: device.Matrix{Ptr: 3 << 12, Pitch: 16, Transposed: true}, ScaleA: 4 << 12, ScaleB: 5 << 12}
	of := func(change func(p *device.FusedGEMM)) *device.FusedGEMM {
		p := straight
		change(&p)
		return &p
	}
	for what, c := range map[string]struct {
		out, bias Operand
		scales    Scales
		want      *device.FusedGEMM
		calls     int
	}{
		"scales of matrices": {out, Operand{}, whole, &straight, 1},
		"scales of lines":    {out, Operand{}, lines, of(func(p *device.FusedGEMM) { p.Lines = true }), 1},
		"a bias": {out, bias, whole, of(func(p *device.FusedGEMM) {
			p.Bias, p.BiasType = 6<<12, dtype.BFloat16
		}), 1},
		"columns": {columns, Operand{}, lines, &device.FusedGEMM{Rows: 8, Columns: 4, Depth: 16, OutType: f32, AType: e5,
			BType: e4, Out: device.Matrix{Ptr: 1 << 12, Pitch: 4}, A: device.Matrix{Ptr: 3 << 12, Pitch: 16},
			B:      device.Matrix{Ptr: 2 << 12, Pitch: 16, Transposed: true},
			ScaleA: 5 << 12, ScaleB: 4 << 12, Lines: true}, 1},
		"fnuz": {out, Operand{}, fnuz, of(func(p *device.FusedGEMM) { p.FNUZ = true }), 1},
		"a scale of the result": {as(out, e4), Operand{}, result, of(func(p *device.FusedGEMM) {
			p.OutType, p.ScaleOut = e4, 9<<12
		}), 2},
		"a bias of columns":       {columns, bias, whole, nil, 1},
		"scales with gaps":        {out, Operand{}, gaps, nil, 1},
		"a number and a vector":   {out, Operand{}, both, nil, 1},
		"a format of one matrix":  {out, Operand{}, formats, nil, 1},
		"rows and columns, gaps":  {at(1, f32, []int{16, 2}, 4, 8), Operand{}, whole, nil, 1},
		"a bias that's broadcast": {out, at(6, f32, []int{0}, 8), whole, nil, 1},
	} {
		p := Plan{FusedGEMM: all, Scratch: func(int) (device.Ptr, error) { return 9 << 12, nil }}
		if err := p.ScaledMatmul(c.out, a, b, c.bias, &c.scales); err != nil || len(p.Calls) != c.calls {
			t.Errorf("%s: %d calls, %v", what, len(p.Calls), err)
			continue
		}
		call := p.Calls[c.calls-1]
		if fused := call.Library.Kind == library.FusedGEMM; fused != (c.want != nil) ||
			fused && call.Library.Fused != *c.want {
			t.Errorf("%s: %t, %+v, want %+v", what, fused, call.Library.Fused, c.want)
		}
	}
}

// A bias of the matrices' type is the library's to add, and so is relu; other activations follow the product. Some
// products are those of the library without epilogues, as for PyTorch's CUDA.
func TestFusedBias(t *testing.T) {
	f32 := dtype.Float32
	at := func(k int, strides []int, sizes ...int) Operand {
		return Operand{Ptr: device.Ptr(k << 12), Type: f32, Sizes: sizes, Strides: strides}
	}
	out, a, b, bias := at(1, Dense(4, 8), 4, 8), at(2, Dense(4, 16), 4, 16), at(3, []int{1, 16}, 16, 8),
		at(4, []int{1}, 8)
	want := device.FusedGEMM{Rows: 4, Columns: 8, Depth: 16, OutType: f32, AType: f32, BType: f32,
		Out: device.Matrix{Ptr: 1 << 12, Pitch: 8}, A: device.Matrix{Ptr: 2 << 12, Pitch: 16},
		B: device.Matrix{Ptr: 3 << 12, Pitch: 16, Transposed: true}, Bias: 4 << 12, BiasType: f32}
	relu := want
	relu.Relu = true
	for what, c := range map[string]struct {
		out, a, bias Operand
		alpha, beta  float64
		op           string
		want         *device.FusedGEMM
		calls        int
	}{
		"a bias":          {out, a, bias, 1, 1, "", &want, 1},
		"relu":            {out, a, bias, 1, 1, "relu", &relu, 1},
		"gelu":            {out, a, bias, 1, 1, "gelu", &want, 2},
		"no bias":         {out, a, Operand{}, 1, 0, "", nil, 1},
		"relu, no bias":   {out, a, Operand{}, 1, 0, "relu", nil, 2},
		"alpha":           {out, a, bias, 2, 1, "", nil, 2},
		"beta":            {out, a, bias, 1, 2, "", nil, 2},
		"a matrix":        {out, a, at(4, Dense(4, 8), 4, 8), 1, 1, "", nil, 2},
		"a bias and gaps": {out, a, at(4, []int{2}, 8), 1, 1, "", nil, 2},
		"one row":         {at(1, Dense(1, 8), 1, 8), at(2, Dense(1, 16), 1, 16), bias, 1, 1, "", nil, 2},
	} {
		p := Plan{FusedGEMM: dtype.SetOf(f32), GEMM: dtype.SetOf(f32)}
		err := p.Matmul(c.out, c.a, b, c.bias, Float(c.alpha), Float(c.beta), c.op)
		if err != nil || len(p.Calls) != c.calls {
			t.Errorf("%s: %d calls, %v", what, len(p.Calls), err)
			continue
		}
		at := len(p.Calls) - 1
		if c.op != "" && c.want != &relu { // which follows
			at--
		}
		call := p.Calls[at]
		kind := call.Library.Kind
		if want := map[bool]library.Kind{true: library.FusedGEMM, false: library.GEMM}[c.want != nil]; kind != want ||
			c.want != nil && call.Library.Fused != *c.want {
			t.Errorf("%s: %v, %+v, want %+v", what, kind, call.Library.Fused, c.want)
		}
	}
}
