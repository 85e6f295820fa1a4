//go:build linux && (amd64 || arm64)

package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/device/gpu/gputest"
	"github.com/chorus-comms/chorus/dtype"
)

// openSparse makes a GPU whose library has one of sparse matrices, and a stream of it.
func openSparse(t *testing.T, name string, status func(call string) abi.SparseStatus) (*gpu.Driver, *device.Stream,
	map[abi.SparseHandle]*gputest.SparseHandle) {
	t.Helper()
	sim, lib := supply(t, name)
	table, handles, left := sim.Sparse(status)
	if err := lib.SupplySparse("stand-in", table); err != nil {
		t.Fatal(err)
	}
	d, s := openStream(t, name, sim, lib, func() int { return len(handles) + left() })
	return d, s, handles
}

// numbers are memory of the device with numbers of a type, of which the test has a copy.
type numbers struct {
	t    *testing.T
	s    *device.Stream
	typ  dtype.DType
	host []byte
	ptr  driver.Ptr
}

func newNumbers(t *testing.T, s *device.Stream, typ dtype.DType, n int, f func(i int) complex128) *numbers {
	t.Helper()
	x := &numbers{t: t, s: s, typ: typ, host: make([]byte, n*typ.Size())}
	for i := range n {
		p, z := x.at(i), f(i)
		switch typ {
		case dtype.Int32:
			*(*int32)(p) = int32(real(z))
		case dtype.Int64:
			*(*int64)(p) = int64(real(z))
		case dtype.Complex64:
			*(*complex64)(p) = complex64(z)
		case dtype.Complex128:
			*(*complex128)(p) = z
		default:
			write(typ, x.host, i, real(z))
		}
	}
	var err error
	if x.ptr, err = s.Device().Alloc(len(x.host), s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Device().Dealloc(x.ptr) })
	if err := s.Copy(x.ptr, driver.Ptr(uintptr(unsafe.Pointer(&x.host[0]))), len(x.host)); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *numbers) at(i int) unsafe.Pointer { return unsafe.Pointer(&x.host[i*x.typ.Size()]) }

// read brings what the device has.
func (x *numbers) read() {
	x.t.Helper()
	if err := errors.Join(x.s.Copy(driver.Ptr(uintptr(unsafe.Pointer(&x.host[0]))), x.ptr, len(x.host)),
		x.s.Synchronize(context.Background())); err != nil {
		x.t.Fatal(err)
	}
}

// sparsely says which elements a sparse matrix has: none in every third row, unless there's one row.
func sparsely(rows, depth int) (starts, places []int) {
	starts = []int{0}
	for r := range rows {
		for c := range depth {
			if (r%3 != 1 || rows == 1) && (c*(r+2)+c/3)%3 != 1 {
				places = append(places, c)
			}
		}
		starts = append(starts, len(places))
	}
	return starts, places
}

// Products are those of the definition: of each type, in each order of both matrices, with gaps.
func TestSparse(t *testing.T) {
	for _, name := range []string{"cuda", "hip"} {
		_, s, handles := openSparse(t, name, nil)
		l, err := s.Device().SpMMLibrary()
		if err != nil || !strings.HasSuffix(l.Name, "SPARSE (stand-in)") || len(l.Types) < 4 || !l.Varies {
			t.Fatal(l, err)
		}
		for k, typ := range l.Types {
			for i, size := range [][3]int{{1, 1, 1}, {3, 5, 7}, {7, 1, 5}, {1, 9, 4}, {40, 17, 30}} {
				for form := range 8 {
					what := fmt.Sprintf("%s: %v, %v, form %d", name, typ, size, form)
					index := []dtype.DType{dtype.Int32, dtype.Int64}[(k+i+form)%2]
					varies := name == "hip" || (i+form)%3 > 0
					multiplySparse(t, what, s, typ, index, size, form&1 > 0, form&2 > 0, form&4 > 0, varies)
					want := abi.SparseSameBits
					if varies {
						want = abi.SparseByRows
					}
					for _, h := range handles {
						if h.Algorithm != want {
							t.Errorf("%s: algorithm %d, varies: %t", what, h.Algorithm, varies)
						}
					}
				}
			}
		}
		for _, h := range handles {
			if h.Products != len(l.Types)*5*8 {
				t.Errorf("%s: %d products", name, h.Products)
			}
		}
	}
}

// multiplySparse has the library multiply, and compares. Memory between lines of out stays as it is.
func multiplySparse(t *testing.T, what string, s *device.Stream, typ, index dtype.DType, size [3]int, outColumns,
	bColumns, sum, varies bool) {
	t.Helper()
	rows, columns, depth := size[0], size[1], size[2]
	starts, places := sparsely(rows, depth)
	of := func(all []int) *numbers {
		return newNumbers(t, s, index, len(all), func(i int) complex128 { return complex(float64(all[i]), 0) })
	}
	matrix := func(rows, columns int, transposed bool, seed int) (*numbers, driver.Matrix) {
		m := driver.Matrix{Transposed: transposed, Pitch: columns + 2}
		lines := rows
		if transposed {
			m.Pitch, lines = rows+2, columns
		}
		x := newNumbers(t, s, typ, m.Pitch*lines, func(i int) complex128 { return number(i + seed) })
		m.Ptr = x.ptr
		return x, m
	}
	place := func(m driver.Matrix, r, c int) int {
		if m.Transposed {
			r, c = c, r
		}
		return r*m.Pitch + c
	}
	values := newNumbers(t, s, typ, len(places), func(i int) complex128 { return number(i + 3) })
	b, ofB := matrix(depth, columns, bColumns, 1)
	out, ofOut := matrix(rows, columns, outColumns, 2)
	before := *out
	before.host = append([]byte(nil), out.host...)
	p := driver.SpMM{Type: typ, Index: index, Rows: rows, Columns: columns, Depth: depth, Count: len(places),
		RowOffsets: of(starts).ptr, ColumnIndices: of(places).ptr, Values: values.ptr, Out: ofOut, B: ofB, Alpha: 2,
		Varies: varies}
	if sum {
		p.Beta = 3
	}
	if err := s.SpMM(&p); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	out.read()
	inside := map[int]bool{}
	for r := range rows {
		for c := range columns {
			want := complex128(0)
			for j := starts[r]; j < starts[r+1]; j++ {
				want += 2 * gputest.Number(typ, values.at(j)) * gputest.Number(typ, b.at(place(ofB, places[j], c)))
			}
			at := place(ofOut, r, c)
			inside[at] = true
			want += p.Beta * gputest.Number(typ, before.at(at))
			got := gputest.Number(typ, out.at(at))
			if d := got - want; math.Hypot(real(d), imag(d)) > 0.01*(1+math.Hypot(real(want), imag(want))) {
				t.Fatalf("%s: row %d, column %d: %v, want %v", what, r, c, got, want)
			}
		}
	}
	for i := range len(out.host) / typ.Size() {
		if !inside[i] && gputest.Number(typ, out.at(i)) != gputest.Number(typ, before.at(i)) {
			t.Fatalf("%s: element %d between lines isn't what it was", what, i)
		}
	}
}

// The error of a refused product has a kind by which a caller does without the library.
func TestSparseRefused(t *testing.T) {
	var next abi.SparseStatus
	var of string
	d, s, handles := openSparse(t, "cuda", func(call string) abi.SparseStatus {
		if call == of {
			return next
		}
		return abi.SparseDone
	})
	zero := func(int) complex128 { return 0 }
	places := newNumbers(t, s, dtype.Int64, 64, zero)
	values, out := newNumbers(t, s, dtype.Float32, 64, zero), newNumbers(t, s, dtype.Float32, 64, zero)
	good := func() *driver.SpMM {
		return &driver.SpMM{Type: dtype.Float32, Index: dtype.Int64, Rows: 2, Columns: 4, Depth: 4, Count: 3,
			RowOffsets: places.ptr, ColumnIndices: places.ptr.Add(64), Values: values.ptr, Alpha: 1, Varies: true,
			Out: driver.Matrix{Ptr: out.ptr, Pitch: 4}, B: driver.Matrix{Ptr: values.ptr, Pitch: 4}}
	}
	refused := func(what string, kind error, change func(p *driver.SpMM)) {
		t.Helper()
		p := good()
		change(p)
		if err := s.SpMM(p); !errors.Is(err, kind) {
			t.Errorf("%s: %v, want %v", what, err, kind)
		}
	}
	refused("integers", driver.ErrUnsupported, func(p *driver.SpMM) { p.Type = dtype.Int32 })
	refused("places of int16", driver.ErrInvalidArgument, func(p *driver.SpMM) { p.Index = dtype.Int16 })
	refused("no rows", driver.ErrInvalidArgument, func(p *driver.SpMM) { p.Rows = 0 })
	refused("no elements", driver.ErrInvalidArgument, func(p *driver.SpMM) { p.Count = 0 })
	refused("lines that overlap", driver.ErrInvalidArgument, func(p *driver.SpMM) { p.B.Pitch = 3 })
	refused("the end of the memory", driver.ErrOutOfBounds, func(p *driver.SpMM) { p.Count = 1 << 24 })
	refused("no starts", driver.ErrInvalidPointer, func(p *driver.SpMM) { p.RowOffsets = 0 })
	refused("a matrix between", driver.ErrUnsupported, func(p *driver.SpMM) { p.B.Ptr = p.B.Ptr.Add(4) })
	refused("places between", driver.ErrUnsupported, func(p *driver.SpMM) { p.ColumnIndices = p.ColumnIndices.Add(4) })
	refused("more than 31 bits", driver.ErrUnsupported, func(p *driver.SpMM) {
		p.Index, p.Depth = dtype.Int32, 1<<31
	})
	for result, kind := range map[abi.SparseStatus]error{abi.SparseNotSupported: driver.ErrUnsupported,
		abi.SparseInvalidValue: driver.ErrUnsupported, abi.SparseArchMismatch: driver.ErrUnsupported,
		abi.SparseAllocFailed: driver.ErrOutOfMemory, abi.SparseNoResources: driver.ErrOutOfMemory,
		abi.SparseInternal: driver.ErrInternal} {
		for _, of = range []string{"NewDense", "MultiplyWork", "Multiply"} {
			next = result
			refused(of+": "+result.String(), kind, func(*driver.SpMM) {})
		}
	}
	of = ""
	if err := d.CaptureBegin(s.Handle()); err != nil {
		t.Fatal(err)
	}
	refused("a capture", driver.ErrCapture, func(*driver.SpMM) {})
	g, err := d.CaptureEnd(s.Handle())
	if err := errors.Join(err, d.GraphDestroy(g), s.SpMM(good()),
		s.Synchronize(context.Background())); err != nil {
		t.Error(err)
	}
	if err := d.Compute(s.Handle(), good(), 0); !errors.Is(err, driver.ErrInvalidPointer) {
		t.Errorf("without memory for work: %v", err)
	}
	if len(handles) != 1 {
		t.Errorf("%d handles", len(handles))
	}
	_, hip, _ := openSparse(t, "hip", nil)
	fixed := good()
	fixed.Varies = false
	if err := hip.SpMM(fixed); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("hipSPARSE, in one order: %v", err)
	}
}

// A handle that can't be made isn't asked for again.
func TestSparseOff(t *testing.T) {
	created := 0
	_, s, _ := openSparse(t, "cuda", func(call string) abi.SparseStatus {
		if call == "Create" {
			created++
			return abi.SparseNoDevice
		}
		return abi.SparseDone
	})
	x := newNumbers(t, s, dtype.Float32, 64, func(int) complex128 { return 0 })
	for range 2 {
		if err := s.SpMM(&driver.SpMM{Type: dtype.Float32, Index: dtype.Int32, Rows: 1, Columns: 1,
			Depth: 1, Count: 1, RowOffsets: x.ptr, ColumnIndices: x.ptr, Values: x.ptr, Out: driver.Matrix{Ptr: x.ptr, Pitch: 1},
			B: driver.Matrix{Ptr: x.ptr, Pitch: 1}}); !errors.Is(err, driver.ErrInternal) || created != 1 {
			t.Errorf("%v, after %d tries", err, created)
		}
	}
}

// A library that can't be opened says where it was looked for; one that is named and is no such library, what it lacks.
func TestNoSparse(t *testing.T) {
	for library, want := range map[string]string{"none": "CHORUS_SPARSE_LIBRARY is none", "/nonesuch.so": "/nonesuch.so",
		"libc.so.6": "lacks cusparseCreate"} {
		t.Setenv("CHORUS_SPARSE_LIBRARY", library)
		d, _ := open(t, gputest.Options{Name: "cuda"})
		_, err := d.MathLibrary(0, driver.SpMMs)
		if !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", library, err)
		}
	}
}
