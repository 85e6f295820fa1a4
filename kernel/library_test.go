//go:build linux && (amd64 || arm64)

package kernel

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/gpu"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/device/gpu/gputest"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/library"
	"github.com/chorus-comms/chorus/kernel/loader"
)

// standin is a GPU whose library of products is a stand-in. It compiles no kernels.
type standin struct {
	loader *loader.Loader
	stream *device.Stream
	mem    device.Ptr
	calls  int        // of the library's products
	status abi.Status // of the next ones

	fft   abi.FFTResult    // of the next transform
	solve abi.SolverStatus // of the next step of linear algebra

	fusedCalls  int // of the library of fused products
	fusedStatus abi.Status

	sparseCalls  int // of the library of sparse matrices
	sparseStatus abi.SparseStatus
}

func newStandin(t *testing.T) *standin {
	t.Helper()
	x := &standin{}
	sim, err := gputest.New(gputest.Options{Name: "cuda"})
	if err != nil {
		t.Fatal(err)
	}
	lib, err := gpu.Supply("cuda", "stand-in", sim.Table())
	if err != nil {
		t.Fatal(err)
	}
	table, _ := sim.BLAS(func(call string) abi.Status {
		if call != "Multiply" {
			return abi.Done
		}
		x.calls++
		return x.status
	})
	fused, _ := sim.Lt(func(call string) abi.Status {
		if call != "Multiply" {
			return abi.Done
		}
		x.fusedCalls++
		return x.fusedStatus
	})
	transforms, _ := sim.FFT(func(call string) abi.FFTResult {
		if call != "Exec" {
			return abi.Transformed
		}
		return x.fft
	})
	solver, _ := sim.Solver(func(call string) abi.SolverStatus {
		if call != "potrf" {
			return abi.Solved
		}
		return x.solve
	})
	sparse, _, _ := sim.Sparse(func(call string) abi.SparseStatus {
		if call != "Multiply" {
			return abi.SparseDone
		}
		x.sparseCalls++
		return x.sparseStatus
	})
	if err := errors.Join(lib.SupplyBLAS("stand-in", table), lib.SupplyCompiler("stand-in", sim.Compiler()),
		lib.SupplyFFT("stand-in", transforms), lib.SupplyLt("stand-in", fused), lib.SupplySolver("stand-in", solver),
		lib.SupplySparse("stand-in", sparse)); err != nil {
		t.Fatal(err)
	}
	d, err := gpu.New(lib)
	if err != nil {
		t.Fatal(err)
	}
	dev := device.NewRuntime("cuda", d).Devices()[0]
	if x.stream, err = dev.NewStream(device.Normal); err != nil {
		t.Fatal(err)
	}
	if x.loader, err = loader.New(dev, nil); err != nil {
		t.Fatal(err)
	}
	if x.mem, err = dev.Alloc(1<<12, x.stream); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(x.stream.Synchronize(context.Background()), dev.Dealloc(x.mem), x.stream.Close()); err != nil {
			t.Error(err)
		}
	})
	return x
}

// product is a plan of a product of so many rows and columns, of ones.
func (x *standin) product(t *testing.T, m, n, k int) *Plan {
	t.Helper()
	at := func(offset int, sizes ...int) Operand {
		return Operand{Ptr: x.mem.Add(offset), Type: dtype.Float32, Sizes: sizes, Strides: Dense(sizes...)}
	}
	p := &Plan{GEMM: x.loader.GEMM()}
	if err := p.Matmul(at(0, m, n), at(1<<10, m, k), at(2<<10, k, n), Operand{}, Int(1), Int(1), ""); err != nil {
		t.Fatal(err)
	}
	return p
}

// A product is the library's; a refused one is a kernel's, and after a failure all are. Here no kernel compiles, so
// that one that's asked for is an error.
func TestLibrary(t *testing.T) {
	x := newStandin(t)
	if !x.loader.GEMM().Has(dtype.Float32) || x.loader.GEMM().Has(dtype.Int32) || !x.loader.GEMMVaries() {
		t.Fatalf("%s multiplies %b, varies: %t", x.loader.GEMMLibrary(), x.loader.GEMM(), x.loader.GEMMVaries())
	}
	kernels := func(what string, p *Plan) {
		t.Helper()
		if _, is := errors.AsType[*loader.CompileError](x.loader.Run(x.stream, p.Calls)); !is {
			t.Errorf("%s isn't a kernel's", what)
		}
	}
	p := x.product(t, 3, 4, 5)
	if err := x.loader.Run(x.stream, p.Calls); err != nil || x.loader.Stats().Multiplied != 1 {
		t.Fatalf("a product: %v, %+v", err, x.loader.Stats())
	}
	kernels("a product that the library isn't known to do", &Plan{Calls: (func() []loader.Call {
		q := Plan{}
		one := Operand{Ptr: x.mem, Type: dtype.Float32, Sizes: []int{1, 1}, Strides: []int{1, 1}}
		if err := q.Matmul(one, one, one, Operand{}, Int(1), Int(1), ""); err != nil {
			t.Fatal(err)
		}
		return q.Calls
	})()})
	x.status = 15 // not supported
	kernels("a refused product", p)
	x.status = abi.Done
	if err := x.loader.Run(x.stream, p.Calls); err != nil {
		t.Error("a product after a refused one: ", err)
	}
	x.status = 14 // an internal error
	kernels("a failed product", p)
	x.status = abi.Done
	calls := x.calls
	kernels("a product after one that failed", p)
	if x.calls != calls || x.loader.GEMM() != 0 || x.loader.GEMMLibrary() != "" {
		t.Error("a library that has failed is used again")
	}
	if x.product(t, 3, 4, 5).Calls[0].Library.Kind == library.GEMM {
		t.Error("plans want a library that has failed")
	}
}

// A product of which nothing is known is measured once, if that's wanted, and what was found is used from then on, as
// are results of a file.
func TestTuner(t *testing.T) {
	x := newStandin(t)
	defer func() { loader.Tuned.Set(loader.Tuning{}); loader.Tuned.Forget() }()
	run := func(p *Plan) (calls int, err error) {
		before := x.calls
		err = x.loader.Run(x.stream, p.Calls)
		return x.calls - before, err
	}
	p := x.product(t, 3, 4, 5)
	for _, step := range []struct {
		set   loader.Tuning
		calls int
	}{
		{loader.Tuning{Tune: true, Iterations: 5}, 1}, {loader.Tuning{Enabled: true}, 1}, // nothing is measured
		{loader.Tuning{Enabled: true, Tune: true, Iterations: 5}, 2 + 5 + 1}, {loader.Tuning{Enabled: true, Tune: true}, 1},
	} {
		loader.Tuned.Set(step.set)
		if n, err := run(p); err != nil || n != step.calls {
			t.Errorf("%+v: %d calls of the library, want %d (%v)", step.set, n, step.calls, err)
		}
	}
	got := loader.Tuned.Results()
	const line = "GemmTunableOp_float_NN,nn_4_3_5_ld_4_5_4,Gemm_cuBLAS,"
	if len(got) != 1 || !strings.HasPrefix(got[0], line) {
		t.Errorf("results are %q", got)
	}
	const other = "GemmTunableOp_float_NN,nn_2_2_2_ld_2_2_2,Gemm_Chorus,0.125"
	for text, ok := range map[string]bool{other: true, "GemmTunableOp_float_NN,nn_4_3_5_ld_4_5_4,Gemm_Chorus": true,
		"a,b": false, "a,b,c,d": false, ",b,c": false, "a,b,c,1,2": false} {
		if err := loader.Tuned.Add(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
	if now := loader.Tuned.Results(); !slices.Equal(now, []string{other, got[0]}) {
		t.Errorf("results are %q", now)
	}
	n, err := run(x.product(t, 2, 2, 2))
	if _, is := errors.AsType[*loader.CompileError](err); !is || n != 0 {
		t.Errorf("a product that a file has for kernels: %d calls of the library, %v", n, err)
	}
	if n, err := run(p); err != nil || n != 1 {
		t.Errorf("a result of a file takes the place of one that was there: %d calls, %v", n, err)
	}
	loader.Tuned.Set(loader.Tuning{Enabled: true, Tune: true, Duration: time.Nanosecond})
	if n, err := run(x.product(t, 1, 2, 2)); err != nil || n != 2+1+1 {
		t.Errorf("a short measurement has %d calls, %v", n, err)
	}
	x.status = 15
	_, _ = run(x.product(t, 2, 1, 2))
	if now := loader.Tuned.Results(); !strings.Contains(strings.Join(now, " "), "Default") {
		t.Errorf("a product that nothing does: %q", now)
	}
}

// The parameters of products have PyTorch's names.
func TestTuneKey(t *testing.T) {
	p := device.GEMM{Type: dtype.BFloat16, Rows: 8, Columns: 16, Depth: 32, Count: 1, Out: device.Matrix{Pitch: 17},
		A: device.Matrix{Pitch: 33, Transposed: true}, B: device.Matrix{Pitch: 18}}
	if got, want := loader.TuningKey(&p), [2]string{"GemmTunableOp_BFloat16_NT", "nt_16_8_32_ld_18_33_17"}; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	p.Count, p.Type = 4, dtype.Complex64
	if got, want := loader.TuningKey(&p), [2]string{"GemmStridedBatchedTunableOp_c10::complex<float>_NT",
		"nt_16_8_32_B_4_ld_18_33_17"}; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
