//go:build linux && (amd64 || arm64)

package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/device/gpu/gputest"
	"github.com/chorus-comms/chorus/dtype"
)

// fused is a driver whose library has one of fused products, with a stream and memory.
type fused struct {
	d      *gpu.Driver
	counts *gputest.LtCounts
	s      driver.StreamHandle
	mem    driver.Ptr
	host   []byte // as long as the memory
}

func openFused(t *testing.T, name string, status func(call string) abi.Status) *fused {
	t.Helper()
	sim, lib := supply(t, name)
	table, counts := sim.Lt(status)
	if err := lib.SupplyLt("stand-in", table); err != nil {
		t.Fatal(err)
	}
	d, err := gpu.New(lib)
	if err != nil {
		t.Fatal(err)
	}
	x := &fused{d: d, counts: counts, host: make([]byte, 1<<16)}
	if x.s, err = d.StreamCreate(0, 0); err != nil {
		t.Fatal(err)
	}
	if x.mem, err = d.Malloc(0, len(x.host)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.StreamSynchronize(context.Background(), x.s), d.StreamDestroy(x.s), d.Free(0, x.mem),
			d.Close(), sim.Close()); err != nil {
			t.Error(err)
		}
		if counts.Handles+counts.Descriptions > 0 {
			t.Errorf("%+v are left", *counts)
		}
	})
	return x
}

// copy copies all the memory.
func (x *fused) copy(t *testing.T, kind driver.CopyKind) {
	t.Helper()
	host := driver.Ptr(uintptr(unsafe.Pointer(&x.host[0])))
	dst, src := x.mem, host
	if kind == driver.DeviceToHost {
		dst, src = host, x.mem
	}
	if err := errors.Join(x.d.Copy(x.s, dst, src, len(x.host), kind),
		x.d.StreamSynchronize(context.Background(), x.s)); err != nil {
		t.Fatal(err)
	}
}

// put and get are elements of the memory on the host: small numbers, which are exact in all types. A type whose name
// ends in fnuz has twice the number's bits.
func (x *fused) put(t dtype.DType, fnuz bool, at int, v float64) {
	if fnuz {
		v *= 2
	}
	switch t {
	case dtype.Int8:
		x.host[at] = byte(int8(v))
	case dtype.Float8E4M3FN:
		x.host[at] = byte(dtype.F8E4M3FNFromFloat64(v))
	case dtype.Float8E5M2:
		x.host[at] = byte(dtype.F8E5M2FromFloat64(v))
	default:
		write(t, x.host[at:], 0, v)
	}
}

func (x *fused) get(t dtype.DType, at int) float64 {
	switch t {
	case dtype.Int32:
		return float64(*(*int32)(unsafe.Pointer(&x.host[at])))
	case dtype.Float8E4M3FN:
		return dtype.F8E4M3FN(x.host[at]).Float64()
	case dtype.Float8E5M2:
		return dtype.F8E5M2(x.host[at]).Float64()
	}
	return real(read(t, x.host[at:], 0))
}

// Where the operands of the tests are.
const (
	fusedA, fusedB, fusedOut, fusedScaleA, fusedScaleB, fusedScaleOut, fusedBias = 0, 0x2000, 0x4000, 0xc000, 0xc800,
		0xd000, 0xe000
)

// product is a product of operands in those places, with rows and columns as near as they can be.
func (x *fused) product(rows, columns, depth int, transA, transB bool, a, b, out dtype.DType) *driver.FusedGEMM {
	p := &driver.FusedGEMM{Rows: rows, Columns: columns, Depth: depth, AType: a, BType: b, OutType: out,
		Out: driver.Matrix{Ptr: x.mem.Add(fusedOut), Pitch: columns},
		A:   driver.Matrix{Ptr: x.mem.Add(fusedA), Pitch: depth, Transposed: transA},
		B:   driver.Matrix{Ptr: x.mem.Add(fusedB), Pitch: columns, Transposed: transB}}
	if transA {
		p.A.Pitch = rows
	}
	if transB {
		p.B.Pitch = depth
	}
	return p
}

// fill writes operands, and check compares out with the definition.
func (x *fused) fill(t *testing.T, p *driver.FusedGEMM) {
	for i := range 0x2000 / max(p.AType.Size(), p.BType.Size()) {
		x.put(p.AType, p.FNUZ, fusedA+i*p.AType.Size(), float64(i*5%7)-3)
		x.put(p.BType, p.FNUZ, fusedB+i*p.BType.Size(), float64(i*3%5)-2)
	}
	for i := range 256 {
		x.put(dtype.Float32, false, fusedScaleA+4*i, float64(i%3)+1)
		x.put(dtype.Float32, false, fusedScaleB+4*i, float64(i%2)+1)
		if p.Bias != 0 {
			x.put(p.BiasType, false, fusedBias+i*p.BiasType.Size(), float64(i%4)-2)
		}
	}
	x.put(dtype.Float32, false, fusedScaleOut, 0.25)
	x.copy(t, driver.HostToDevice)
}

func (x *fused) check(t *testing.T, p *driver.FusedGEMM) {
	t.Helper()
	x.copy(t, driver.DeviceToHost)
	at := func(m *driver.Matrix, row, column int) int {
		if m.Transposed {
			row, column = column, row
		}
		return row*m.Pitch + column
	}
	for r := range p.Rows {
		for c := range p.Columns {
			want := 0.0
			for k := range p.Depth {
				want += (float64(at(&p.A, r, k)*5%7) - 3) * (float64(at(&p.B, k, c)*3%5) - 2)
			}
			rowScale, columnScale := 0, 0
			if p.Lines {
				rowScale, columnScale = r, c
			}
			if p.ScaleA != 0 {
				want *= float64(rowScale%3) + 1
			}
			if p.ScaleB != 0 {
				want *= float64(columnScale%2) + 1
			}
			if p.Bias != 0 {
				want += float64(c%4) - 2
			}
			if p.ScaleOut != 0 {
				want *= 0.25
			}
			if p.Relu {
				want = max(want, 0)
			}
			switch p.OutType {
			case dtype.Float8E4M3FN:
				want = dtype.F8E4M3FNFromFloat64(want).Float64()
			case dtype.Float8E5M2:
				want = dtype.F8E5M2FromFloat64(want).Float64()
			case dtype.BFloat16:
				want = dtype.BF16FromFloat64(want).Float64()
			}
			if got := x.get(p.OutType, fusedOut+at(&p.Out, r, c)*p.OutType.Size()); got != want {
				t.Fatalf("%+v: element %d, %d is %v, want %v", *p, r, c, got, want)
			}
		}
	}
}

// Products of all types, sizes and layouts are those of the definition, or unsupported: cuBLASLt has one layout, and
// multiples of 4 elements or 16 bytes.
func TestMultiplyFused(t *testing.T) {
	e4, e5, half, brain, wide := dtype.Float8E4M3FN, dtype.Float8E5M2, dtype.Float16, dtype.BFloat16, dtype.Float32
	for _, name := range []string{"cuda", "hip"} {
		x := openFused(t, name, nil)
		l, err := x.d.MathLibrary(0, driver.FusedGEMMs)
		if err != nil || !strings.HasSuffix(l.Name, "BLASLt (stand-in)") || len(l.Types) != 6 {
			t.Fatal(l, err)
		}
		done := 0
		for i, types := range [][3]dtype.DType{{dtype.Int8, dtype.Int8, dtype.Int32}, {e4, e4, wide}, {e4, e5, half},
			{e5, e4, brain}, {e4, e4, e4}, {e5, e4, e5}, {e5, e5, brain}} {
			for j, size := range [][3]int{{1, 1, 1}, {3, 5, 7}, {1, 16, 16}, {17, 8, 24}, {16, 32, 48}} {
				for form := range 4 {
					p := x.product(size[0], size[1], size[2], form&1 != 0, form&2 != 0, types[0], types[1], types[2])
					if types[2] != dtype.Int32 {
						p.ScaleA, p.ScaleB, p.Lines = x.mem.Add(fusedScaleA), x.mem.Add(fusedScaleB), (i+j)%2 == 1
						if j%2 == 0 {
							p.Bias, p.BiasType = x.mem.Add(fusedBias), brain
							if types[2] == half {
								p.BiasType = half
							} else if name == "hip" && types[2] != brain {
								p.BiasType = wide
							}
						}
						if types[2].Size() == 1 && j == 4 {
							p.ScaleOut = x.mem.Add(fusedScaleOut)
						}
					}
					aligned := form == 2 && size[1]%16 == 0 && size[2]%16 == 0 && (types[0] != e5 || types[1] != e5)
					if types[2] == dtype.Int32 {
						aligned = form == 2 && size[1]%4 == 0 && size[2]%4 == 0
					}
					x.fill(t, p)
					err := x.d.Compute(x.s, p, 0)
					switch {
					case name == "hip" || aligned:
						if err != nil {
							t.Fatalf("%s: %v, %v, form %d: %v", name, types, size, form, err)
						}
						x.check(t, p)
						done++
					case !errors.Is(err, driver.ErrUnsupported):
						t.Fatalf("%s: %v, %v, form %d isn't refused: %v", name, types, size, form, err)
					}
				}
			}
		}
		if x.counts.Products != done || done < 10 {
			t.Errorf("%s: %+v, want %d products", name, *x.counts, done)
		}
	}
}

// Products of one type of 16 or 32 bits have a bias of that type, and no negative numbers where none are wanted. They
// may have any size.
func TestFusedBias(t *testing.T) {
	for _, name := range []string{"cuda", "hip"} {
		x, done := openFused(t, name, nil), 0
		for _, typ := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
			for _, size := range [][3]int{{1, 1, 1}, {3, 5, 7}, {17, 8, 24}} {
				for form := range 8 {
					p := x.product(size[0], size[1], size[2], form&1 != 0, form&2 != 0, typ, typ, typ)
					p.A.Ptr, p.B.Ptr = x.mem, x.mem.Add(fusedB)
					p.Bias, p.BiasType, p.Relu = x.mem.Add(fusedBias), typ, form&4 != 0
					x.fill(t, p)
					if err := x.d.Compute(x.s, p, 0); err != nil {
						t.Fatalf("%s: %v, %v, form %d: %v", name, typ, size, form, err)
					}
					x.check(t, p)
					done++
				}
			}
		}
		if x.counts.Products != done {
			t.Errorf("%s: %+v, want %d products", name, *x.counts, done)
		}
	}
}

// Types that end in fnuz are hipBLASLt's alone.
func TestFusedFNUZ(t *testing.T) {
	for name, want := range map[string]error{"hip": nil, "cuda": driver.ErrUnsupported} {
		x := openFused(t, name, nil)
		p := x.product(16, 32, 16, false, true, dtype.Float8E4M3FN, dtype.Float8E5M2, dtype.Float32)
		p.FNUZ = true
		x.fill(t, p)
		if err := x.d.Compute(x.s, p, 0); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
		if want == nil {
			x.check(t, p)
		}
	}
}

// A form is described and an algorithm is asked for once, also of a form that the library refuses. Addresses, which
// change, are told each time. Streams have workspaces of the size that PyTorch's variable says.
func TestFusedPlans(t *testing.T) {
	t.Setenv("CUBLAS_WORKSPACE_CONFIG", ":128:1")
	x := openFused(t, "cuda", nil)
	p := x.product(16, 32, 16, false, true, dtype.Float8E4M3FN, dtype.Float8E4M3FN, dtype.Float32)
	p.ScaleA, p.ScaleB = x.mem.Add(fusedScaleA), x.mem.Add(fusedScaleB)
	x.fill(t, p)
	for k := range 3 {
		if err := x.d.Compute(x.s, p, 0); err != nil {
			t.Fatal(err)
		}
		x.check(t, p)
		if k == 1 { // both scales are 1 there, too
			p.ScaleA, p.ScaleB = p.ScaleB, p.ScaleA
		}
	}
	descriptions := x.counts.Descriptions
	if x.counts.Chosen != 1 || x.counts.Products != 3 || x.counts.Workspace != 1<<16 || descriptions != 5 {
		t.Errorf("%+v, of three products of one form", *x.counts)
	}
	p.BType = dtype.Float8E5M2
	p.AType = p.BType
	for range 2 {
		if err := x.d.Compute(x.s, p, 0); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("a form that the library refuses: %v", err)
		}
	}
	if x.counts.Chosen != 2 || x.counts.Descriptions != descriptions {
		t.Errorf("%+v, after a form that was refused twice", *x.counts)
	}
	t.Setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0")
	x = openFused(t, "cuda", nil)
	p = x.product(16, 32, 16, false, true, dtype.Float8E4M3FN, dtype.Float8E4M3FN, dtype.Float32)
	x.fill(t, p)
	if err := x.d.Compute(x.s, p, 0); err != nil || x.counts.Workspace != 0 {
		t.Errorf("%+v, without a workspace: %v", *x.counts, err)
	}
	x.check(t, p)
}

// A stream's handles of both libraries, and the workspace that they share, are another stream's when it's destroyed.
func TestFusedHandles(t *testing.T) {
	sim, lib := supply(t, "hip")
	products, handles := sim.BLAS(nil)
	table, counts := sim.Lt(nil)
	if err := errors.Join(lib.SupplyBLAS("stand-in", products), lib.SupplyLt("stand-in", table)); err != nil {
		t.Fatal(err)
	}
	d, err := gpu.New(lib)
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Malloc(0, 1<<12)
	if err != nil {
		t.Fatal(err)
	}
	p := &driver.GEMM{Type: dtype.Float32, Rows: 2, Columns: 2, Depth: 2, Count: 1, Alpha: 1,
		Out: driver.Matrix{Ptr: m, Pitch: 2}, A: driver.Matrix{Ptr: m.Add(64), Pitch: 2},
		B: driver.Matrix{Ptr: m.Add(128), Pitch: 2}}
	f := &driver.FusedGEMM{Rows: 2, Columns: 2, Depth: 2, OutType: dtype.Int32, AType: dtype.Int8, BType: dtype.Int8,
		Out: p.Out, A: p.A, B: p.B}
	for k := range 3 {
		s, err := d.StreamCreate(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if k > 0 {
			err = d.Compute(s, f, 0)
		}
		if k != 1 {
			err = errors.Join(err, d.Compute(s, p, 0))
		}
		err = errors.Join(err, d.StreamSynchronize(context.Background(), s), d.StreamDestroy(s))
		if err != nil || len(handles) != 1 || counts.Handles != min(k, 1) {
			t.Fatalf("stream %d: %d and %d handles, %v", k, len(handles), counts.Handles, err)
		}
	}
	if counts.Workspace != 1<<16 {
		t.Errorf("%+v, with a workspace", *counts)
	}
	if err := errors.Join(d.Free(0, m), d.Close(), sim.Close()); err != nil || len(handles)+counts.Handles > 0 {
		t.Errorf("%d and %d handles are left, %v", len(handles), counts.Handles, err)
	}
}

// Products that are none are refused before the library has work, with the kind by which a caller does without it. A
// captured stream goes on.
func TestFusedRefused(t *testing.T) {
	var next abi.Status
	var of string
	x := openFused(t, "cuda", func(call string) abi.Status {
		if call == of {
			return next
		}
		return abi.Done
	})
	plain := x.product(16, 32, 16, false, true, dtype.Float8E4M3FN, dtype.Float8E4M3FN, dtype.Float32)
	plain.ScaleA, plain.ScaleB = x.mem.Add(fusedScaleA), x.mem.Add(fusedScaleB)
	integers := x.product(16, 32, 16, false, true, dtype.Int8, dtype.Int8, dtype.Int32)
	x.fill(t, plain)
	host := driver.Ptr(uintptr(unsafe.Pointer(&x.host[0])))
	for what, c := range map[string]struct {
		kind   error
		of     *driver.FusedGEMM
		change func(p *driver.FusedGEMM)
	}{
		"float32":         {driver.ErrUnsupported, plain, func(p *driver.FusedGEMM) { p.AType = dtype.Float32 }},
		"int8 to float32": {driver.ErrUnsupported, integers, func(p *driver.FusedGEMM) { p.OutType = dtype.Float32 }},
		"uint8":           {driver.ErrUnsupported, integers, func(p *driver.FusedGEMM) { p.AType = dtype.Uint8 }},
		"scaled integers": {driver.ErrInvalidArgument, integers, func(p *driver.FusedGEMM) { p.ScaleA = plain.ScaleA }},
		"no rows":         {driver.ErrInvalidArgument, plain, func(p *driver.FusedGEMM) { p.Rows = 0 }},
		"a pitch":         {driver.ErrInvalidArgument, plain, func(p *driver.FusedGEMM) { p.A.Pitch = 15 }},
		"scale of out":    {driver.ErrInvalidArgument, plain, func(p *driver.FusedGEMM) { p.ScaleOut = plain.ScaleA }},
		"one vector":      {driver.ErrInvalidArgument, plain, func(p *driver.FusedGEMM) { p.ScaleB, p.Lines = 0, true }},
		"a bias of int32": {driver.ErrInvalidArgument, plain, func(p *driver.FusedGEMM) {
			p.Bias, p.BiasType = x.mem, dtype.Int32
		}},
		"a bias of float32": {driver.ErrUnsupported, plain, func(p *driver.FusedGEMM) {
			p.Bias, p.BiasType = x.mem, dtype.Float32
		}},
		"an odd scale": {driver.ErrInvalidArgument, plain, func(p *driver.FusedGEMM) { p.ScaleA = x.mem.Add(2) }},
		"the memory's end": {driver.ErrOutOfBounds, plain, func(p *driver.FusedGEMM) {
			p.B.Ptr = x.mem.Add(len(x.host) - 16)
		}},
		"scales' end": {driver.ErrOutOfBounds, plain, func(p *driver.FusedGEMM) {
			p.ScaleA, p.Lines = x.mem.Add(len(x.host)-4), true
		}},
		"scales of the host": {driver.ErrInvalidPointer, plain, func(p *driver.FusedGEMM) { p.ScaleA = host }},
		"no out":             {driver.ErrInvalidPointer, plain, func(p *driver.FusedGEMM) { p.Out.Ptr = 0 }},
		"an odd address":     {driver.ErrUnsupported, integers, func(p *driver.FusedGEMM) { p.A.Ptr = x.mem.Add(2) }},
		"8 bytes":            {driver.ErrUnsupported, plain, func(p *driver.FusedGEMM) { p.A.Ptr = x.mem.Add(8) }},
	} {
		p := *c.of
		c.change(&p)
		if err := x.d.Compute(x.s, &p, 0); !errors.Is(err, c.kind) {
			t.Errorf("%s: %v, want %v", what, err, c.kind)
		}
	}
	if x.counts.Products != 0 {
		t.Errorf("%+v, of refused products", *x.counts)
	}
	rows := 20
	for call, kinds := range map[string]map[abi.Status]error{"Multiply": {15: driver.ErrUnsupported,
		7: driver.ErrUnsupported, 3: driver.ErrOutOfMemory, 13: driver.ErrInternal}, "SetProduct": {7: driver.ErrUnsupported},
		"NewLayout": {3: driver.ErrOutOfMemory}, "Choose": {15: driver.ErrUnsupported, 14: driver.ErrInternal}} {
		for status, kind := range kinds {
			of, next = call, status
			p := *plain
			rows++
			p.Rows = rows // a form of its own
			if err := x.d.Compute(x.s, &p, 0); !errors.Is(err, kind) {
				t.Errorf("%s: %v: %v, want %v", call, status, err, kind)
			}
		}
	}
	of = ""
	if err := x.d.CaptureBegin(x.s); err != nil {
		t.Fatal(err)
	}
	if err := x.d.Compute(x.s, plain, 0); err != nil {
		t.Errorf("a capture: %v", err)
	}
	g, err := x.d.CaptureEnd(x.s)
	if err != nil {
		t.Fatal(err)
	}
	e, err := x.d.Instantiate(g)
	if err := errors.Join(err, x.d.GraphDestroy(g), x.d.GraphLaunch(e, x.s), x.d.ExecDestroy(e)); err != nil {
		t.Error(err)
	}
	x.check(t, plain)
}

// DISABLE_HIPBLASLT turns the library off, wherever it is. One that can't be opened says where it was looked for.
func TestNoFused(t *testing.T) {
	for _, c := range []struct{ off, library, want string }{{"1", "", "DISABLE_HIPBLASLT is set"},
		{"0", "none", "DISABLE_HIPBLASLT is set"}, {"", "none", "CHORUS_BLAS_LIBRARY is none"},
		{"", "/nonesuch.so", "/nonesuch.so"}, {"", "libc.so.6", "lacks cublasLtCreate"}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Setenv("DISABLE_HIPBLASLT", c.off)
			t.Setenv("CHORUS_BLAS_LIBRARY", c.library)
			d, _ := open(t, gputest.Options{Name: "cuda"})
			_, err := d.MathLibrary(0, driver.FusedGEMMs)
			if !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
		})
	}
	t.Setenv("DISABLE_HIPBLASLT", "yes")
	x := openFused(t, "hip", nil)
	p := x.product(16, 32, 16, false, true, dtype.Int8, dtype.Int8, dtype.Int32)
	if err := x.d.Compute(x.s, p, 0); !errors.Is(err, driver.ErrUnsupported) || x.counts.Products != 0 {
		t.Errorf("a product: %v", err)
	}
}
