package kern

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
)

// eachReduction runs a test for every operation on every type that admits it.
func eachReduction(t *testing.T, test func(t *testing.T, op Op, dt dtype.DType)) {
	for _, op := range Ops() {
		for _, dt := range dtype.All() {
			if Supports(op, dt) {
				t.Run(fmt.Sprintf("%v/%v", op, dt), func(t *testing.T) { test(t, op, dt) })
			}
		}
	}
}

// sources makes k memories of random elements at different shifts from alignment.
func sources(r *rand.Rand, dt dtype.DType, n, k int) []*memory {
	srcs := make([]*memory, k)
	for i := range srcs {
		srcs[i] = newMemory(dt, n, r.IntN(64))
		srcs[i].fillRandom(r)
	}
	return srcs
}

func pointers(ms ...*memory) []unsafe.Pointer {
	p := make([]unsafe.Pointer, len(ms))
	for i, m := range ms {
		p[i] = m.ptr()
	}
	return p
}

// Every operation, type, number of sources and of destinations, for all small sizes and some beyond a block of the
// portable level, at any alignment, into separate memory.
func TestReduce(t *testing.T) {
	const most = 300
	eachLevel(t, func(t *testing.T) {
		eachReduction(t, func(t *testing.T, op Op, dt dtype.DType) {
			r := rand.New(rand.NewPCG(uint64(op), uint64(dt)))
			for k := 1; k <= 9; k++ {
				srcs := sources(r, dt, most, k)
				want := newMemory(dt, most, 0)
				reference(op, want, srcs)
				for n := 0; n <= most; n++ {
					if n > 130 && n%37 != 0 || k > 3 && n%13 != k {
						continue
					}
					nd := []int{1, 2, k}[n%3]
					dsts := make([]*memory, nd)
					for i := range dsts {
						dsts[i] = newMemory(dt, n+3, r.IntN(64))
					}
					Reduce(op, dt, pointers(dsts...), pointers(srcs...), n)
					for i, d := range dsts {
						d.intact(t, n)
						if err := exactly(dt, d.bytes()[:n*dt.Size()], want.bytes()[:n*dt.Size()]); err != nil {
							t.Fatalf("%d sources, destination %d of %d, n = %d: %v", k, i, nd, n, err)
						}
					}
				}
			}
		})
	})
}

// Destinations among the sources: all of them as in an all-reduce, or only the last, which must not be overwritten
// early.
func TestReduceInPlace(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		eachReduction(t, func(t *testing.T, op Op, dt dtype.DType) {
			r := rand.New(rand.NewPCG(uint64(op), uint64(dt)))
			for _, k := range []int{1, 2, 3, 5, 9} {
				for _, n := range []int{1, 7, 64, 129, 523} {
					for first := range k {
						if first > 0 && first < k-1 {
							continue
						}
						srcs := sources(r, dt, n, k)
						want := newMemory(dt, n, 0)
						reference(op, want, srcs)
						Reduce(op, dt, pointers(srcs[first:]...), pointers(srcs...), n)
						for i, d := range srcs[first:] {
							d.intact(t, n)
							if err := exactly(dt, d.bytes(), want.bytes()); err != nil {
								t.Fatalf("%d sources, destination %d, n = %d: %v", k, first+i, n, err)
							}
						}
					}
				}
			}
		})
	})
}

// More elements than one assembly call takes.
func TestReduceLong(t *testing.T) {
	const n = 2*maxRun + 4099
	eachLevel(t, func(t *testing.T) {
		for _, c := range []struct {
			op Op
			dt dtype.DType
			k  int
		}{
			{Sum, dtype.Float32, 2}, {Sum, dtype.BFloat16, 3}, {Max, dtype.Float16, 2}, {Sum, dtype.Int8, 2},
			{Product, dtype.Uint64, 2}, {BXor, dtype.Int64, 2}, {Sum, dtype.Complex128, 2}, {Sum, dtype.Float8E5M2, 2},
		} {
			r := rand.New(rand.NewPCG(1, 2))
			srcs := sources(r, c.dt, n, c.k)
			want := newMemory(c.dt, n, 0)
			reference(c.op, want, srcs)
			Reduce(c.op, c.dt, pointers(srcs[:2]...), pointers(srcs...), n)
			for _, d := range srcs[:2] {
				d.intact(t, n)
				if err := exactly(c.dt, d.bytes(), want.bytes()); err != nil {
					t.Errorf("%v %v: %v", c.op, c.dt, err)
				}
			}
		}
	})
}

// The sum of many narrow floats is rounded once: rounding after each addition would lose all of these.
func TestReduceRoundsOnce(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		values := []float32{256, 0.5, 0.5, 0.5, 0.5}
		srcs := make([]dtype.BF16, len(values))
		p := make([]unsafe.Pointer, len(values))
		for i, v := range values {
			srcs[i] = dtype.BF16FromFloat32(v)
			p[i] = unsafe.Pointer(&srcs[i])
		}
		var dst dtype.BF16
		Reduce(Sum, dtype.BFloat16, []unsafe.Pointer{unsafe.Pointer(&dst)}, p, 1)
		if got := dst.Float32(); got != 258 {
			t.Errorf("256 + 4*0.5 = %v, want 258", got)
		}
	})
}

func TestSupports(t *testing.T) {
	for _, dt := range dtype.All() {
		bits := dt.IsInteger() || dt == dtype.Bool
		for op, want := range map[Op]bool{Sum: true, Product: true, Min: !dt.IsComplex(), Max: !dt.IsComplex(), BAnd: bits,
			BOr: bits, BXor: bits, opCount: false} {
			if got := Supports(op, dt); got != want {
				t.Errorf("Supports(%v, %v) = %v", op, dt, got)
			}
		}
	}
	for _, op := range Ops() {
		if Supports(op, dtype.Invalid) || Supports(op, dtype.Count) {
			t.Errorf("%v supports a type that does not exist", op)
		}
	}
}

func TestReducePanics(t *testing.T) {
	x := []unsafe.Pointer{unsafe.Pointer(new(float32))}
	for name, call := range map[string]func(){
		"type":            func() { Reduce(BAnd, dtype.Float32, x, x, 1) },
		"operation":       func() { Reduce(opCount, dtype.Float32, x, x, 1) },
		"no sources":      func() { Reduce(Sum, dtype.Float32, x, nil, 1) },
		"no destinations": func() { Reduce(Sum, dtype.Float32, nil, x, 1) },
		"negative":        func() { Reduce(Sum, dtype.Float32, x, x, -1) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			call()
		})
	}
}

// Nothing allocates, also when the caller's pointers are on its stack.
func TestReduceAllocates(t *testing.T) {
	a, b := make([]byte, 4096), make([]byte, 4096)
	eachLevel(t, func(t *testing.T) {
		eachReduction(t, func(t *testing.T, op Op, dt dtype.DType) {
			allocs := testing.AllocsPerRun(10, func() {
				both := []unsafe.Pointer{unsafe.Pointer(&a[0]), unsafe.Pointer(&b[0])}
				Reduce(op, dt, both, both, 200)
			})
			if allocs != 0 {
				t.Errorf("%v allocations", allocs)
			}
		})
	})
}

// FuzzReduce holds every level to the reference.
func FuzzReduce(f *testing.F) {
	f.Add(uint64(1), uint8(0), uint8(dtype.BFloat16), uint8(2), uint8(1), uint16(33), uint8(5))
	f.Add(uint64(2), uint8(3), uint8(dtype.Float64), uint8(9), uint8(2), uint16(1000), uint8(0))
	f.Fuzz(func(t *testing.T, seed uint64, opNumber, dtNumber, k, nd uint8, n uint16, shift uint8) {
		op, dt := Op(opNumber%opCount), dtype.DType(dtNumber%dtype.Count)
		if !Supports(op, dt) {
			return
		}
		count, k, nd := int(n%2000), k%12+1, nd%12+1
		r := rand.New(rand.NewPCG(seed, 0))
		srcs := sources(r, dt, count, int(k))
		want := newMemory(dt, count, 0)
		reference(op, want, srcs)
		for _, name := range Levels() {
			restore := SetLevel(name)
			for range nd {
				d := newMemory(dt, count, int(shift%64))
				Reduce(op, dt, pointers(d), pointers(srcs...), count)
				d.intact(t, count)
				if err := exactly(dt, d.bytes(), want.bytes()); err != nil {
					t.Fatalf("%s: %v of %d x %d %v: %v", name, op, k, count, dt, err)
				}
			}
			restore()
		}
	})
}
