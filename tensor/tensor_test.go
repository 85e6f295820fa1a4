package tensor

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/hostmem"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/kern"
)

var shapes = [][]int{{}, {0}, {1}, {7}, {3, 0, 2}, {2, 3}, {5, 1, 3}, {33, 65}, {3, 1001}}

// layouts make tensors of a shape that lie in memory in different ways.
var layouts = map[string]func(dt dtype.DType, shape []int) *Tensor{
	"heap":   func(dt dtype.DType, shape []int) *Tensor { return Must(Empty(dt, shape...)) },
	"shared": func(dt dtype.DType, shape []int) *Tensor { return Must(ZerosShared(dt, shape...)) },
	"transposed": func(dt dtype.DType, shape []int) *Tensor {
		order, turned := make([]int, len(shape)), slices.Clone(shape)
		slices.Reverse(turned)
		for i := range order {
			order[i] = len(shape) - 1 - i
		}
		return Must(Must(Empty(dt, turned...)).Permute(order...))
	},
	"every third": func(dt dtype.DType, shape []int) *Tensor {
		return Must(Must(Empty(dt, slices.Concat(shape, []int{3})...)).Select(-1, 1))
	},
	"cut": func(dt dtype.DType, shape []int) *Tensor {
		larger := slices.Clone(shape)
		for i := range larger {
			larger[i] += 2
		}
		t := Must(Empty(dt, larger...))
		for i, n := range shape {
			t = Must(t.Narrow(i, 1, n))
		}
		return t
	},
}

// number writes small whole numbers, which every type holds, into the elements.
func number(t *Tensor) {
	for k, index := range indices(t.Shape()) {
		if err := t.SetAt(k%2, index...); err != nil {
			panic(err)
		}
	}
}

func TestTypesShapesLayouts(t *testing.T) {
	for name, make := range layouts {
		for _, dt := range dtype.All() {
			for _, shape := range shapes {
				id := fmt.Sprintf("%s %v%v", name, dt, shape)
				x := make(dt, shape)
				n := product(shape)
				if x.DType() != dt || !slices.Equal(x.Shape(), shape) || x.NumEl() != n || x.NBytes() != n*dt.Size() ||
					x.Device() != "cpu" {
					t.Fatalf("%s: is %v", id, x)
				}
				number(x)
				c, err := x.Clone()
				if err != nil || !c.IsContiguous() || !Equal(c, x) || !AllClose(c, x, 0, 0) {
					t.Fatalf("%s: the clone differs: %v", id, err)
				}
				if n > 0 && c.Pointer() == x.Pointer() {
					t.Fatalf("%s: the clone is the same memory", id)
				}
				k, err := x.Contiguous()
				if err != nil || (k == x) != x.IsContiguous() {
					t.Fatalf("%s: Contiguous: %v", id, err)
				}
				// Into another layout and back.
				y := layouts["every third"](dt, shape)
				if err := y.CopyFrom(x); err != nil || !Equal(y, x) {
					t.Fatalf("%s: the copy differs: %v", id, err)
				}
				if err := x.Fill(1); err != nil {
					t.Fatal(err)
				}
				if one := Must(Full(dt, 1, shape...)); !Equal(x, one) {
					t.Fatalf("%s: filled with 1: %v", id, x)
				}
				if n > 1 && Equal(x, y) {
					t.Fatalf("%s: %v equals %v", id, x, y)
				}
				x.Zero()
				if !Equal(x, Must(Zeros(dt, shape...))) {
					t.Fatalf("%s: zeroed: %v", id, x)
				}
				x.Free()
			}
		}
	}
}

// Conversions through any pair of layouts equal kern.Convert, element by element.
func TestCopyConverts(t *testing.T) {
	shape := []int{3, 301} // more than one piece
	data := Must(Zeros(dtype.Float64, shape...))
	for k, index := range indices(shape) {
		data.SetAt(float64(k)*1.7-300, index...)
	}
	for _, from := range dtype.All() {
		for _, to := range dtype.All() {
			for _, l := range [][2]string{{"heap", "heap"}, {"cut", "cut"}, {"transposed", "heap"}, {"heap", "every third"},
				{"every third", "transposed"}} {
				src, dst := layouts[l[0]](from, shape), layouts[l[1]](to, shape)
				if err := src.CopyFrom(data); err != nil {
					t.Fatal(err)
				}
				if err := dst.CopyFrom(src); err != nil {
					t.Fatal(err)
				}
				var want [2]uint64
				for _, index := range indices(shape) {
					p := unsafe.Pointer(&want)
					kern.Convert(to, p, from, src.at(index), 1)
					if got := dst.Value(index...); got != load(to, p) && got == got {
						t.Fatalf("%v from %s to %v in %s: element %v is %v, want %v", from, l[0], to, l[1], index, got, load(to, p))
					}
				}
			}
		}
	}
}

func TestOf(t *testing.T) {
	data := []float32{1, 2, 3, 4, 5, 6}
	m := Must(Of(data).View(2, -1))
	if err := m.SetAt(42, 1, 0); err != nil {
		t.Fatal(err)
	}
	if data[3] != 42 || m.At(1, 0) != 42 {
		t.Errorf("%v %v", data, m)
	}
	s, err := Slice[float32](m)
	if err != nil || &s[0] != &data[0] || len(s) != 6 {
		t.Errorf("%v %v", s, err)
	}
	if _, err := Slice[int32](m); err == nil {
		t.Error("a float32 tensor was sliced as int32")
	}
	for _, empty := range []*Tensor{Of([]float32(nil)), Of([]float32{})} {
		if s, err := Slice[float32](empty); err != nil || len(s) != 0 || empty.Dim() != 1 {
			t.Errorf("%v %v %v", empty, s, err)
		}
	}
}

func TestScalars(t *testing.T) {
	for _, c := range []struct {
		dt   dtype.DType
		set  any
		want any
		f    float64
		c    complex128
	}{
		{dtype.Bool, 3.5, true, 1, 1},
		{dtype.Bool, false, false, 0, 0},
		{dtype.Int64, int64(math.MinInt64), int64(math.MinInt64), math.MinInt64, math.MinInt64},
		{dtype.Uint64, uint64(math.MaxUint64), uint64(math.MaxUint64), 1 << 64, 1 << 64},
		{dtype.Uint8, uint(200), uint8(200), 200, 200},
		{dtype.Int32, -7.9, int32(-7), -7, -7},
		{dtype.BFloat16, 1.5, dtype.BF16FromFloat32(1.5), 1.5, 1.5},
		{dtype.Float16, dtype.BF16FromFloat32(2), dtype.F16FromFloat32(2), 2, 2},
		{dtype.Float8E4M3FN, dtype.F8E5M2FromFloat32(4), dtype.F8E4M3FNFromFloat32(4), 4, 4},
		{dtype.Complex64, complex(1, 2), complex64(complex(1, 2)), 1, complex(1, 2)},
		{dtype.Complex128, complex64(complex(1, 2)), complex(1, 2), 1, complex(1, 2)},
		{dtype.Float64, complex(1, 2), 1.0, 1, 1},
	} {
		x := Must(Zeros(c.dt))
		if err := x.SetAt(c.set); err != nil {
			t.Error(err)
		}
		if x.Value() != c.want || x.At() != c.f || x.AtComplex() != c.c {
			t.Errorf("%v set to %v: %v, %v, %v", c.dt, c.set, x.Value(), x.At(), x.AtComplex())
		}
	}
}

func TestPointers(t *testing.T) {
	data := []uint16{0, 1, 2, 3, 4, 5, 6, 7}
	p := unsafe.Pointer(&data[0])
	x := Must(FromPointer(dtype.Uint16, p, 2, 4))
	if x.At(1, 2) != 6 || !x.IsContiguous() {
		t.Error(x)
	}
	y := Must(FromStrided(dtype.Uint16, p, []int{4, 2}, []int{1, 4}))
	if !Equal(y, Must(x.Transpose(0, 1))) || y.HasInternalOverlap() {
		t.Error(y)
	}
	if z := Must(FromStrided(dtype.Uint16, p, []int{3, 3}, []int{1, 1})); !z.HasInternalOverlap() {
		t.Error(z)
	}
	if e := Must(FromPointer(dtype.Uint16, nil, 0)); e.NumEl() != 0 {
		t.Error(e)
	}
	b := unsafe.Slice((*byte)(p), 16)
	if w := Must(FromBytes(dtype.Float16, b, 8)); w.Pointer() != p {
		t.Error(w)
	}
	for _, dt := range dtype.All() {
		if x := Must(Zeros(dt, 3)); uintptr(x.Pointer())%heapAlign != 0 {
			t.Errorf("%v at %p", dt, x.Pointer())
		}
	}
}

func TestShared(t *testing.T) {
	x := Must(EmptyShared(dtype.Float32, 16, 1024))
	defer x.Free()
	seg, off, ok := x.Shared()
	if !ok || unsafe.Add(seg.Base(), off) != x.Pointer() {
		t.Fatalf("%v %v %v", seg, off, ok)
	}
	row := Must(x.Select(0, 3))
	if s, o, ok := row.Shared(); !ok || s != seg || o != off+3*4096 {
		t.Errorf("%v %v %v", s, o, ok)
	}
	m, err := hostmem.Map(seg.FD(), int64(seg.Size()), seg.Color())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unmap()
	if err := row.Fill(2.5); err != nil {
		t.Fatal(err)
	}
	peer := Must(FromPointer(dtype.Float32, unsafe.Add(m.Base(), off), 16, 1024))
	if peer.At(3, 1023) != 2.5 {
		t.Error("the peer does not see the store")
	}
	// Shared memory that comes back as a slice is still known to be shared.
	s, err := Slice[float32](x)
	if err != nil {
		t.Fatal(err)
	}
	if got, o, ok := Of(s[10:]).Shared(); !ok || got != seg || o != off+40 {
		t.Errorf("%v %v %v", got, o, ok)
	}
	if _, _, ok := Must(Zeros(dtype.Float32, 4)).Shared(); ok {
		t.Error("Go memory is shared")
	}
	for _, shape := range [][]int{{0}, {}, {3}} {
		y := Must(ZerosShared(dtype.Complex128, shape...))
		if !Equal(y, Must(Zeros(dtype.Complex128, shape...))) {
			t.Error(y)
		}
		y.Free()
	}
}

// A view alone keeps shared memory; when it is gone too, the memory returns.
func TestSharedLifetime(t *testing.T) {
	start := hostmem.ReadStats().InUse
	row := Must(Must(EmptyShared(dtype.Float32, 4, 1<<20)).Select(0, 1))
	runtime.GC()
	runtime.GC()
	if hostmem.ReadStats().InUse <= start {
		t.Fatal("the memory went while a view was left")
	}
	row.Zero()
	keep(row)
	testutil.Eventually(t, func() bool { runtime.GC(); return hostmem.ReadStats().InUse <= start }, "the memory returns")

	// A slice keeps the memory from others, though it can't be returned any more.
	forgotten := hostmem.ReadStats().Forgotten
	s, err := Slice[float32](Must(ZerosShared(dtype.Float32, 1<<20)))
	if err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func() bool { runtime.GC(); return hostmem.ReadStats().Forgotten != forgotten },
		"the memory under a slice is accounted for")
	next := Must(Full(dtype.Float32, 1, 1<<20))
	other := Must(EmptyShared(dtype.Float32, 1<<20))
	defer other.Free()
	if err := other.CopyFrom(next); err != nil || s[5] != 0 {
		t.Errorf("memory under a slice was handed out again: %v", err)
	}
}

func TestCompare(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		a, b         []float64
		rtol, atol   float64
		equal, close bool
	}{
		{[]float64{1, 2}, []float64{1, 2}, 0, 0, true, true},
		{[]float64{1, 2}, []float64{1, 2.1}, 0, 0.2, false, true},
		{[]float64{1, 2}, []float64{1, 2.1}, 0.1, 0, false, true},
		{[]float64{1, 2}, []float64{1, 2.1}, 0.01, 0.01, false, false},
		{[]float64{inf, -inf}, []float64{inf, -inf}, 0, 0, true, true},
		{[]float64{inf}, []float64{-inf}, 1, 1, false, false},
		{[]float64{5}, []float64{inf}, 1, 1, false, false},
		{[]float64{nan}, []float64{nan}, 1, inf, false, false},
		{[]float64{0}, []float64{math.Copysign(0, -1)}, 0, 0, true, true},
		{[]float64{1}, []float64{1, 1}, 1, 1, false, false},
	} {
		a, b := Of(c.a), Of(c.b)
		if Equal(a, b) != c.equal || AllClose(a, b, c.rtol, c.atol) != c.close {
			t.Errorf("%v, %v: equal %v, close within %v, %v %v", c.a, c.b, Equal(a, b), c.rtol, c.atol, AllClose(a, b, c.rtol,
				c.atol))
		}
	}
	if Equal(Of([]int8{1}), Of([]uint8{1})) {
		t.Error("types differ")
	}
	if !AllClose(Of([]int8{1}), Of([]complex64{1}), 0, 0) || AllClose(Of([]complex64{1}), Of([]complex64{1 + 1i}), 0,
		0.9) {
		t.Error("complex numbers are compared by their distance")
	}
	if big := int64(1) << 62; Equal(Of([]int64{big}), Of([]int64{big + 1})) {
		t.Error("integers are compared inexactly")
	}
}

func TestString(t *testing.T) {
	long := Must(Zeros(dtype.Int32, 1000))
	long.SetAt(9, 998)
	for want, x := range map[string]*Tensor{
		"float32[2 2] [[1 2.5] [-3 4]]": Must(FromSlice([]float32{1, 2.5, -3, 4}, 2, 2)),
		"int64[] 7":                     Must(FromSlice([]int64{7})),
		"bool[2] [true false]":          Of([]bool{true, false}),
		"bfloat16[1] [1.5]":             Must(Full(dtype.BFloat16, 1.5, 1)),
		"complex64[1] [(1+2i)]":         Of([]complex64{1 + 2i}),
		"float64[0] []":                 Of([]float64{}),
		"float64[2 0] [[] []]":          Must(Zeros(dtype.Float64, 2, 0)),
		"int32[1000] [0 0 0 ... 0 9 0]": long,
		"float8_e4m3fn[2] [0.5 NaN]":    Of([]dtype.F8E4M3FN{dtype.F8E4M3FNFromFloat32(0.5), 0x7f}),
		"uint8[2 2] [[1 3] [2 4]]":      Must(Must(FromSlice([]uint8{1, 2, 3, 4}, 2, 2)).Transpose(0, 1)),
		"float16[7] [0 0 0 0 0 0 0]":    Must(Zeros(dtype.Float16, 7)),
		"float32[1 2] [[3.142 1e+10]]":  Must(FromSlice([]float32{math.Pi, 1e10}, 1, 2)),
	} {
		if got := fmt.Sprint(x); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	x, y := Must(Zeros(dtype.Float32, 64, 64)), Must(Zeros(dtype.BFloat16, 64, 64))
	sink := 0
	if n := testing.AllocsPerRun(100, func() {
		_, off, _ := x.Shared()
		if x.IsContiguous() && x.Pointer() != nil {
			sink += x.NumEl() + x.NBytes() + int(x.DType()) + off + len(x.Shape())
		}
		if err := y.CopyFrom(x); err != nil {
			t.Error(err)
		}
		x.Zero()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAccessors(b *testing.B) {
	x := Must(Zeros(dtype.Float32, 64, 64))
	b.ReportAllocs()
	sink := 0
	for b.Loop() {
		_, off, _ := x.Shared()
		if x.IsContiguous() && x.Pointer() != nil {
			sink += x.NumEl() + x.NBytes() + int(x.DType()) + off
		}
	}
}

func BenchmarkCopyFrom(b *testing.B) {
	shape := []int{512, 512}
	for _, c := range []struct {
		name     string
		dst, src *Tensor
	}{
		{"contiguous", layouts["heap"](dtype.Float32, shape), layouts["heap"](dtype.Float32, shape)},
		{"convert", layouts["heap"](dtype.BFloat16, shape), layouts["heap"](dtype.Float32, shape)},
		{"cut", layouts["heap"](dtype.Float32, shape), layouts["cut"](dtype.Float32, shape)},
		{"transposed", layouts["heap"](dtype.Float32, shape), layouts["transposed"](dtype.Float32, shape)},
		{"transposed convert", layouts["heap"](dtype.BFloat16, shape), layouts["transposed"](dtype.Float32, shape)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(c.src.NBytes()))
			for b.Loop() {
				if err := c.dst.CopyFrom(c.src); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
