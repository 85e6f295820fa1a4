package kernel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/device/rng"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// randomOf fills with a generator of package rng, whose numbers are those of PyTorch's CUDA kernels.
func randomOf[T rng.Float](t *testing.T, c *cl, dt dtype.DType) {
	const seed, offset = 0x123456789abcdef, 8
	gpu := rng.GPU{Multiprocessors: 2, ThreadsPerMultiprocessor: 512} // several rounds of its threads
	for _, n := range []int{1, 1000, 5000} {
		draw := func(name string, exact bool, run func(p *Plan, dst Operand, r Random) error,
			fill func(g rng.Generator, dst []T) error) {
			t.Helper()
			what := fmt.Sprintf("%s of %d %v", name, n, dt)
			a := c.dense(t, dt, n)
			var p Plan
			must(t, run(&p, a.Operand, Random{Seed: seed, Offset: offset, GPU: gpu}))
			must(t, c.run(&p))
			a.intact(t, what)
			g, want := rng.NewCUDA(seed, gpu), make([]T, n)
			must(t, g.SetOffset(offset))
			must(t, fill(g, want))
			b := unsafe.Slice((*byte)(unsafe.Pointer(&want[0])), len(a.data))
			if exact && !bytes.Equal(a.data, b) {
				t.Errorf("%s: other bits", what)
			}
			x, y := a.elements(), elements(dt, b)
			for i := range x {
				if !nearComplex(x[i], y[i], 100*tolerance(dt)*max(1, real(y[i]*y[i]))) {
					t.Errorf("%s: element %d is %v, want %v", what, i, x[i], y[i])
					return
				}
			}
		}
		draw("uniform", true, func(p *Plan, o Operand, r Random) error { return p.Uniform(o, r, -3.3, 7.7) },
			func(g rng.Generator, dst []T) error { return rng.Uniform(g, dst, -3.3, 7.7) })
		draw("normal", false, func(p *Plan, o Operand, r Random) error { return p.Normal(o, r, 1.5, 0.3) },
			func(g rng.Generator, dst []T) error { return rng.Normal(g, dst, 1.5, 0.3) })
		draw("bernoulli", true, func(p *Plan, o Operand, r Random) error { return p.Bernoulli(o, r, 0.3) },
			func(g rng.Generator, dst []T) error { return rng.Bernoulli(g, dst, 0.3) })
		draw("integers", true, func(p *Plan, o Operand, r Random) error { return p.Integers(o, r, -5, 89) },
			func(g rng.Generator, dst []T) error { return rng.Integers(g, dst, -5, 90) })
		draw("whole", true, func(p *Plan, o Operand, r Random) error { return p.Whole(o, r) },
			func(g rng.Generator, dst []T) error { return rng.Random(g, dst) })
		if testutil.Short() {
			return
		}
		draw("log_normal", false, func(p *Plan, o Operand, r Random) error { return p.LogNormal(o, r, 0.5, 0.25) },
			func(g rng.Generator, dst []T) error { return rng.LogNormal(g, dst, 0.5, 0.25) })
		draw("exponential", false, func(p *Plan, o Operand, r Random) error { return p.Exponential(o, r, 1.7) },
			func(g rng.Generator, dst []T) error { return rng.Exponential(g, dst, 1.7) })
		draw("cauchy", false, func(p *Plan, o Operand, r Random) error { return p.Cauchy(o, r, 0.5, 2) },
			func(g rng.Generator, dst []T) error { return rng.Cauchy(g, dst, 0.5, 2) })
		draw("geometric", false, func(p *Plan, o Operand, r Random) error { return p.Geometric(o, r, 0.25) },
			func(g rng.Generator, dst []T) error { return rng.Geometric(g, dst, 0.25) })
	}
}

// Random numbers have PyTorch's bits; those of logarithms and sines differ in their last ones.
func TestRandom(t *testing.T) {
	c := openCL(t)
	randomOf[float32](t, c, dtype.Float32)
	if !testutil.Short() {
		randomOf[float64](t, c, dtype.Float64)
		randomOf[dtype.F16](t, c, dtype.Float16)
		randomOf[dtype.BF16](t, c, dtype.BFloat16)
	}
}

// Integers of 64 bits take two words each.
func TestRandomWide(t *testing.T) {
	c := openCL(t)
	a, want := c.dense(t, dtype.Int64, 777), make([]int64, 777)
	var p Plan
	must(t, p.Integers(a.Operand, Random{Seed: 5}, -7, 1<<40-1))
	must(t, p.Integers(c.dense(t, dtype.Int64, 0).Operand, Random{Seed: 5}, 0, 6))
	must(t, c.run(&p))
	must(t, rng.Integers(rng.NewCUDA(5, rng.GPU{}), want, -7, 1<<40))
	for i, v := range integers(dtype.Int64, a.data) {
		if v != want[i] {
			t.Fatalf("element %d is %d, want %d", i, v, want[i])
		}
	}
}

// All of 64 bits, and from 0 to the largest, which is one of the numbers.
func TestRandomWhole(t *testing.T) {
	c := openCL(t)
	for _, first := range []int64{math.MinInt64, 0} {
		a, want := c.dense(t, dtype.Int64, 100), make([]int64, 100)
		var p Plan
		must(t, p.Integers(a.Operand, Random{Seed: 5}, first, math.MaxInt64))
		must(t, c.run(&p))
		must(t, rng.Between(rng.NewCUDA(5, rng.GPU{}), want, first, math.MaxInt64))
		if got := integers(dtype.Int64, a.data); !slices.Equal(got, want) {
			t.Errorf("from %d: %v, want %v", first, got[:4], want[:4])
		}
	}
}

// Each element has its own probability, in the order of addresses; seed and offset may be in memory.
func TestRandomProbabilities(t *testing.T) {
	c := openCL(t)
	const rows, columns = 7, 30
	for _, strided := range []bool{false, true} {
		a, q, state := c.dense(t, dtype.Int32, rows*columns), c.dense(t, dtype.Float32, columns), c.dense(t, dtype.Int64, 2)
		dst, each := a.Operand, q.Operand
		dst.Sizes, dst.Strides = []int{rows, columns}, []int{columns, 1}
		if strided {
			dst.Strides = []int{1, rows}
		}
		each.Sizes, each.Strides = []int{rows, columns}, []int{0, 1}
		var p Plan
		must(t, p.Uniform(q.Operand, Random{Seed: 2}, 0, 1))
		must(t, p.Integers(state.Operand, Random{Seed: 9}, 8, 8))
		must(t, p.BernoulliEach(dst, each, Random{Seed: 9, Offset: 4, State: state.Ptr}))
		must(t, c.run(&p))
		probabilities := make([]float32, columns)
		must(t, rng.Uniform(rng.NewCUDA(2, rng.GPU{}), probabilities, 0, 1))
		g := rng.NewCUDA(8, rng.GPU{})
		must(t, g.SetOffset(12))
		want, every := make([]int32, rows*columns), slices.Repeat(probabilities, rows)
		if strided {
			for i := range every {
				every[i] = probabilities[i/rows]
			}
		}
		must(t, rng.BernoulliEach(g, want, every))
		for i, got := range integers(dtype.Int32, a.data) {
			if got != int64(want[i]) {
				t.Fatalf("strided %v: element %d is %d, want %d", strided, i, got, want[i])
			}
		}
	}
	var p Plan
	x := c.dense(t, dtype.Float32, 3)
	if p.BernoulliEach(x.Operand, c.dense(t, dtype.Int32, 3).Operand, Random{}) == nil {
		t.Error("integers as probabilities are taken")
	}
}

// The mask is that of Bernoulli, in the order of the result's addresses.
func TestRandomDropout(t *testing.T) {
	c := openCL(t)
	const rows, columns, keep = 40, 33, 0.7
	for _, dt := range []dtype.DType{dtype.Float32, dtype.BFloat16} {
		for _, transposed := range []bool{false, true} {
			x, y := c.dense(t, dt, rows*columns), c.dense(t, dt, rows*columns)
			mask, want, state := c.dense(t, dtype.Bool, rows*columns), c.dense(t, dtype.Bool, rows*columns),
				c.dense(t, dtype.Int64, 2)
			state.set([]complex128{3, 4})
			view := func(a *array) Operand {
				o := a.Operand
				o.Sizes, o.Strides = []int{rows, columns}, []int{columns, 1}
				if transposed {
					o.Strides = []int{1, rows}
				}
				return o
			}
			var p Plan
			must(t, p.Normal(x.Operand, Random{Seed: 1}, 0, 1))
			must(t, p.Bernoulli(want.Operand, Random{Seed: 3, Offset: 8}, keep))
			must(t, p.Dropout(view(y), view(mask), view(x), Random{Offset: 4, State: state.Ptr}, keep))
			must(t, c.run(&p))
			y.intact(t, "dropout")
			if !bytes.Equal(mask.data, want.data) {
				t.Fatalf("another mask of %v, transposed %v", dt, transposed)
			}
			got, given := y.elements(), x.elements()
			for i, kept := range mask.data {
				if w := given[i] * complex(float64(kept)/keep, 0); !nearComplex(got[i], w, tolerance(dt)) {
					t.Fatalf("element %d is %v, want %v", i, got[i], w)
				}
			}
		}
	}
	var p Plan
	x, mask := c.dense(t, dtype.Float32, 3).Operand, c.dense(t, dtype.Bool, 3).Operand
	longer := c.dense(t, dtype.Float32, 4).Operand
	if p.Dropout(x, x, x, Random{}, 0.5) == nil || p.Dropout(x, mask, longer, Random{}, 1) == nil {
		t.Error("a mask of numbers, or another size, is taken")
	}
}

// Elements of equal keys change places among themselves, by the numbers that CUDA's kernel draws.
func TestRandomShuffle(t *testing.T) {
	c := openCL(t)
	const n = 300
	keys, data := c.dense(t, dtype.Int32, n), c.dense(t, dtype.Int64, n)
	numbers, places, want := make([]complex128, n), make([]complex128, n), make([]int64, n)
	for i := range n {
		places[i], want[i] = complex(float64(i), 0), int64(i)
		numbers[i] = complex(float64(i-i%(1+i/50)), 0) // islands of one to six
	}
	keys.set(numbers)
	data.set(places)
	var p Plan
	must(t, p.Shuffle(data.Operand, keys.Operand, Random{Seed: 11, Offset: 8}))
	must(t, c.run(&p))
	for first := 0; first < n; {
		count := 1
		for first+count < n && numbers[first+count] == numbers[first] {
			count++
		}
		words := philoxWords(11, uint64(first), 2)
		for i, j := 0, count-1; j > 0; i, j = i+1, j-1 {
			other := int(words[i] % uint32(j+1))
			want[first+j], want[first+other] = want[first+other], want[first+j]
		}
		first += count
	}
	if got := integers(dtype.Int64, data.data); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if p.Shuffle(keys.Operand, data.Operand, Random{}) == nil {
		t.Error("integers of 32 bits are shuffled")
	}
}

// philoxWords are 8 words of one of 512 sequences from a block on, of which integers of 64 bits have two each.
func philoxWords(seed, sequence, block uint64) []uint32 {
	var words []uint32
	for k := range uint64(2) {
		g, all := rng.NewCUDA(seed, rng.GPU{Multiprocessors: 2, ThreadsPerMultiprocessor: 256}), make([]int64, 1024)
		_ = g.SetOffset((block + k) * 4)
		_ = rng.Between(g, all, math.MinInt64, math.MaxInt64)
		for _, x := range []int64{all[sequence], all[sequence+512]} {
			words = append(words, uint32(uint64(x)>>32), uint32(x))
		}
	}
	return words
}

// Tensors of 2^31 bytes and more are filled in the parts, and from the offsets, that PyTorch's CUDA kernels have.
func TestRandomParts(t *testing.T) {
	const ptr = 1 << 40
	gpu := rng.H100
	for _, x := range []struct {
		name    string
		dt      dtype.DType
		sizes   []int
		strides []int
		places  []int // of the parts' first elements
		counts  []int
	}{
		{"small", dtype.Float32, []int{1 << 29}, []int{1}, []int{0}, []int{1 << 29}},
		{"halves", dtype.Float32, []int{1<<29 + 3}, []int{1}, []int{0, 1<<28 + 1}, []int{1<<28 + 1, 1<<28 + 2}},
		{"bytes", dtype.Bool, []int{3 << 30}, []int{1}, []int{0, 3 << 29}, []int{3 << 29, 3 << 29}},
		{"strided", dtype.Float32, []int{4, 5}, []int{1 << 28, 2}, []int{0, 1 << 29}, []int{10, 10}},
	} {
		var p Plan
		n := 1
		for _, size := range x.sizes {
			n *= size
		}
		must(t, p.Bernoulli(Operand{Ptr: ptr, Type: x.dt, Sizes: x.sizes, Strides: x.strides},
			Random{Seed: 1, Offset: 8, GPU: gpu}, 0.5))
		if len(p.Calls) != len(x.places) {
			t.Errorf("%s: %d runs, want %d", x.name, len(p.Calls), len(x.places))
			continue
		}
		offset := uint64(8)
		if len(x.places) > 1 {
			offset += gpu.LaunchIncrement(n, false)
		}
		for k := range p.Calls {
			buf, params := p.Calls[k].Args.Packed()
			word := func(i int) int {
				if b := buf[params[i].Offset:]; params[i].Bytes == 8 {
					return int(binary.NativeEndian.Uint64(b))
				} else {
					return int(binary.NativeEndian.Uint32(b))
				}
			}
			want := []int{ptr + x.places[k]*x.dt.Size(), x.counts[k], gpu.Threads(x.counts[k]), 1, int(offset / 4)}
			for i, w := range want {
				if got := word(i); got != w {
					t.Errorf("%s: argument %d of part %d is %d, want %d", x.name, i, k, got, w)
				}
			}
			offset += gpu.LaunchIncrement(x.counts[k], false)
		}
		if len(x.sizes) == 1 && offset-8 != gpu.Increment(n, x.dt.Size(), false) {
			t.Errorf("%s: the offset goes on by %d, want %d", x.name, offset-8, gpu.Increment(n, x.dt.Size(), false))
		}
	}
}
