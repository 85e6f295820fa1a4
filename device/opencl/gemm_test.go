//go:build linux && (amd64 || arm64)

package opencl_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl"
	"github.com/chorus-comms/chorus/device/opencl/abi"
	"github.com/chorus-comms/chorus/dtype"
)

// A stand-in for CLBlast gets what CLBlast's functions take: row-major matrices as buffers and offsets, and the stream's
// queue. Its results are the product's errors.
func TestMultiplyCalls(t *testing.T) {
	type call struct {
		layout, transA, transB int32
		sizes                  [3]uintptr
		alpha, beta            float64
		at, pitch, next        [3]uintptr // a, b, c
		count                  uintptr
	}
	var got call
	cleared := 0
	var result abi.Result
	table := abi.CLBlast{
		S: func(layout, transA, transB int32, m, n, k uintptr, alpha float32, a abi.Mem, aAt, aPitch uintptr, b abi.Mem,
			bAt, bPitch uintptr, beta float32, c abi.Mem, cAt, cPitch uintptr, q *abi.Queue, made *abi.Event) abi.Result {
			if a == 0 || b == 0 || c == 0 || *q == 0 || made != nil {
				t.Error("a handle is missing")
			}
			got = call{layout, transA, transB, [3]uintptr{m, n, k}, float64(alpha), float64(beta),
				[3]uintptr{aAt, bAt, cAt}, [3]uintptr{aPitch, bPitch, cPitch}, [3]uintptr{}, 1}
			return result
		},
		DMany: func(layout, transA, transB int32, m, n, k uintptr, alpha float64, _ abi.Mem, aAt, aPitch, aNext uintptr,
			_ abi.Mem, bAt, bPitch, bNext uintptr, beta float64, _ abi.Mem, cAt, cPitch, cNext, count uintptr, _ *abi.Queue,
			_ *abi.Event) abi.Result {
			got = call{layout, transA, transB, [3]uintptr{m, n, k}, alpha, beta, [3]uintptr{aAt, bAt, cAt},
				[3]uintptr{aPitch, bPitch, cPitch}, [3]uintptr{aNext, bNext, cNext}, count}
			return result
		},
	}
	table.ClearCache = func() abi.Result { cleared++; return 0 }
	table.D = func(_, _, _ int32, _, _, _ uintptr, _ float64, _ abi.Mem, _, _ uintptr, _ abi.Mem, _, _ uintptr, _ float64,
		_ abi.Mem, _, _ uintptr, _ *abi.Queue, _ *abi.Event) abi.Result {
		return result
	}
	table.C = func(_, _, _ int32, _, _, _ uintptr, _ abi.Complex32, _ abi.Mem, _, _ uintptr, _ abi.Mem, _, _ uintptr,
		_ abi.Complex32, _ abi.Mem, _, _ uintptr, _ *abi.Queue, _ *abi.Event) abi.Result {
		return result
	}
	table.Z = func(_, _, _ int32, _, _, _ uintptr, _ abi.Complex64, _ abi.Mem, _, _ uintptr, _ abi.Mem, _, _ uintptr,
		_ abi.Complex64, _ abi.Mem, _, _ uintptr, _ *abi.Queue, _ *abi.Event) abi.Result {
		return result
	}
	table.SMany = func(_, _, _ int32, _, _, _ uintptr, _ float32, _ abi.Mem, _, _, _ uintptr, _ abi.Mem, _, _, _ uintptr,
		_ float32, _ abi.Mem, _, _, _, _ uintptr, _ *abi.Queue, _ *abi.Event) abi.Result {
		return result
	}
	table.CMany = func(_, _, _ int32, _, _, _ uintptr, _ abi.Complex32, _ abi.Mem, _, _, _ uintptr, _ abi.Mem, _, _,
		_ uintptr, _ abi.Complex32, _ abi.Mem, _, _, _, _ uintptr, _ *abi.Queue, _ *abi.Event) abi.Result {
		return result
	}
	table.ZMany = func(_, _, _ int32, _, _, _ uintptr, _ abi.Complex64, _ abi.Mem, _, _, _ uintptr, _ abi.Mem, _, _,
		_ uintptr, _ abi.Complex64, _ abi.Mem, _, _, _, _ uintptr, _ *abi.Queue, _ *abi.Event) abi.Result {
		return result
	}
	for name, o := range map[string]opencl.Options{"shared": {CLBlast: &table}, "buffers": {Buffers: true, CLBlast: &table}} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CHORUS_BLAS_LIBRARY", "stand-in") // one that is named is used on processors
			before := cleared
			t.Cleanup(func() {
				if !t.Skipped() && cleared != before+1 {
					t.Error("CLBlast keeps what it has compiled for a driver that is closed")
				}
			})
			d := open(t, o)
			s, err := d.StreamCreate(0, 0)
			if err != nil {
				t.Fatal(err)
			}
			const bytes = 1 << 12
			mem := make([]driver.Ptr, 3)
			for i := range mem {
				if mem[i], err = d.Malloc(0, bytes); err != nil {
					t.Fatal(err)
				}
			}
			x := d.(driver.Mathematics)
			if l, err := x.MathLibrary(0, driver.GEMMs); err != nil || l.Name != "CLBlast (stand-in)" || len(l.Types) != 4 {
				t.Errorf("the library is %v, %v", l, err)
			}
			one := &driver.GEMM{Type: dtype.Float32, Rows: 2, Columns: 3, Depth: 5, Count: 1, Alpha: 2, Beta: 0.5,
				Out: driver.Matrix{Ptr: mem[0].Add(8), Pitch: 4}, A: driver.Matrix{Ptr: mem[1], Pitch: 6},
				B: driver.Matrix{Ptr: mem[2].Add(400), Pitch: 7, Transposed: true}}
			if err := x.Compute(s, one, 0); err != nil {
				t.Fatal(err)
			}
			want := call{101, 111, 112, [3]uintptr{2, 3, 5}, 2, 0.5, [3]uintptr{0, 100, 2}, [3]uintptr{6, 7, 4},
				[3]uintptr{}, 1}
			if got != want {
				t.Errorf("CLBlast got %+v, want %+v", got, want)
			}
			many := *one
			many.Type, many.Count, many.Out, many.A.Next = dtype.Float64, 3, driver.Matrix{Ptr: mem[0], Pitch: 4, Next: 9}, 20
			if err := x.Compute(s, &many, 0); err != nil {
				t.Fatal(err)
			}
			want = call{101, 111, 112, [3]uintptr{2, 3, 5}, 2, 0.5, [3]uintptr{0, 50, 0}, [3]uintptr{6, 7, 4},
				[3]uintptr{20, 0, 9}, 3}
			if got != want {
				t.Errorf("CLBlast got %+v, want %+v", got, want)
			}

			refused := func(what string, kind error, change func(p *driver.GEMM)) {
				t.Helper()
				p := *one
				change(&p)
				if err := x.Compute(s, &p, 0); !errors.Is(err, kind) {
					t.Errorf("%s: %v, want %v", what, err, kind)
				}
			}
			host := make([]float32, 64)
			refused("no rows", driver.ErrInvalidArgument, func(p *driver.GEMM) { p.Rows = 0 })
			refused("a short pitch", driver.ErrInvalidArgument, func(p *driver.GEMM) { p.A.Pitch = 4 })
			refused("out transposed", driver.ErrInvalidArgument, func(p *driver.GEMM) { p.Out.Transposed = true })
			refused("out's matrices overlap", driver.ErrInvalidArgument, func(p *driver.GEMM) { p.Count, p.Out.Next = 2, 3 })
			refused("the end of the memory", driver.ErrOutOfBounds, func(p *driver.GEMM) { p.A.Ptr = mem[1].Add(bytes - 40) })
			refused("memory of the host", driver.ErrUnsupported, func(p *driver.GEMM) {
				p.B.Ptr = driver.Ptr(uintptr(unsafe.Pointer(&host[0])))
			})
			refused("float16", driver.ErrUnsupported, func(p *driver.GEMM) { p.Type = dtype.Float16 })
			for r, kind := range map[abi.Result]error{-2044: driver.ErrUnsupported, -11: driver.ErrUnsupported,
				-59: driver.ErrInternal} {
				result = r
				refused(r.BlastName(), kind, func(*driver.GEMM) {})
			}
			result = 0
			g := d.(driver.Graphs)
			if err := g.CaptureBegin(s); err != nil {
				t.Fatal(err)
			}
			refused("a capture", driver.ErrCapture, func(*driver.GEMM) {})
			h, err := g.CaptureEnd(s)
			if err != nil {
				t.Fatal(err) // the refusal doesn't end it
			}
			if err := errors.Join(g.GraphDestroy(h), d.StreamSynchronize(context.Background(), s)); err != nil {
				t.Error(err)
			}
			for _, m := range mem {
				if err := d.Free(0, m); err != nil {
					t.Error(err)
				}
			}
			if err := d.StreamDestroy(s); err != nil {
				t.Error(err)
			}
		})
	}
}

// The error of a device without a library says what to change.
func TestNoGEMMLibrary(t *testing.T) {
	table := abi.CLBlast{}
	for _, x := range []struct{ library, compiler, want string }{
		{"none", "", "CHORUS_BLAS_LIBRARY is none"},
		{"", "", "CLBlast is for GPUs; CHORUS_BLAS_LIBRARY names one that is used on processors too"},
		{"stand-in", "self", "CLBlast compiles its kernels in this process, and CHORUS_OPENCL_COMPILER wants another one"},
		{"stand-in", "none", "CLBlast unknown (stand-in) lacks CLBlastSgemm"},
		{"stand-in", "", "CLBlast unknown (stand-in) lacks CLBlastSgemm"},
	} {
		t.Setenv("CHORUS_BLAS_LIBRARY", x.library)
		t.Setenv("CHORUS_OPENCL_COMPILER", x.compiler)
		d := open(t, opencl.Options{CLBlast: &table})
		_, err := d.(driver.Mathematics).MathLibrary(0, driver.GEMMs)
		if !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%q: %v, want %q", x.library, err, x.want)
		}
	}
}
