package rng

import (
	"math"

	"github.com/chorus-comms/chorus/dtype"
)

// Bernoulli fills dst with ones, with probability p, and zeros, as Tensor.bernoulli_(p) does.
func Bernoulli[T Number](g Generator, dst []T, p float64) error {
	if !(p >= 0 && p <= 1) {
		return invalid("bernoulli with probability %v", p)
	}
	fromInt := kindOf[T]().fromInt
	zero, one := fromInt(0), fromInt(1)
	switch g := g.(type) {
	case *CPU:
		g.mu.Lock()
		defer g.mu.Unlock()
		for i := range dst {
			dst[i] = zero
			if g.engine.uniform53() < p {
				dst[i] = one
			}
		}
		return nil
	case *CUDA:
		if !isFloat64[T]() {
			p = float64(float32(p))
		}
		return cudaUniforms(g, dst, func(u float64) T {
			if u < p {
				return one
			}
			return zero
		})
	}
	return invalid("no generator")
}

// BernoulliEach fills dst with ones, each with its own probability from p, and zeros, as torch.bernoulli(p) and
// Tensor.bernoulli_(p) with a tensor do. p is as long as dst. Probabilities outside [0, 1] are an error.
func BernoulliEach[T Number, P Float](g Generator, dst []T, p []P) error {
	if len(p) != len(dst) {
		return invalid("%d probabilities for %d elements", len(p), len(dst))
	}
	widen := kindOf[P]().to64
	for i := range p {
		if x := widen(p[i]); !(x >= 0 && x <= 1) {
			return invalid("bernoulli with probability %v", x)
		}
	}
	fromInt := kindOf[T]().fromInt
	zero, one := fromInt(0), fromInt(1)
	choose := func(is bool) T {
		if is {
			return one
		}
		return zero
	}
	switch g := g.(type) {
	case *CPU:
		g.mu.Lock()
		defer g.mu.Unlock()
		exact := isFloat64[P]()
		for i := range dst {
			if exact {
				dst[i] = choose(g.engine.uniform53() < widen(p[i]))
			} else {
				dst[i] = choose(float64(g.engine.uniform24()) < widen(p[i]))
			}
		}
		return nil
	case *CUDA:
		// One thread for four elements, which all come from one block, on any GPU; p is float32 unless T is float64.
		exact := isFloat64[T]()
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.capture != nil {
			return errCaptured
		}
		for i := 0; i < len(dst); i += 4 {
			for j, u := range uniform32(philoxAt(g.seed, uint64(i/4), g.offset/4, 0), 4) {
				if i+j < len(dst) {
					q := widen(p[i+j])
					if !exact {
						q = float64(float32(q))
					}
					dst[i+j] = choose(float64(u) <= q)
				}
			}
		}
		g.offset += 12 // 10, rounded up
		return nil
	}
	return invalid("no generator")
}

// Geometric fills dst with how many trials of probability p it takes to succeed, as Tensor.geometric_ does.
func Geometric[T Number](g Generator, dst []T, p float64) error {
	if !(p > 0 && p < 1) {
		return invalid("geometric with probability %v", p)
	}
	switch g := g.(type) {
	case *CPU:
		scale := math.Log1p(-p)
		cpuEach(g, dst, func() float64 { return math.Ceil(math.Log(g.engine.uniform53()) / scale) })
		return nil
	case *CUDA:
		convert := kindOf[T]().from64
		if isFloat64[T]() {
			scale := math.Log1p(-p)
			return cudaUniforms(g, dst, func(u float64) T { return convert(math.Ceil(math.Log(u) / scale)) })
		}
		scale := float32(math.Log1p(-float64(float32(p))))
		return cudaUniforms(g, dst, func(u float64) T {
			return convert(math.Ceil(float64(float32(math.Log(u)) / scale)))
		})
	}
	return invalid("no generator")
}

// Integers fills dst with integers from [from, to), as torch.randint and Tensor.random_(from, to) do. Both ends must be
// exact in T.
func Integers[T Number](g Generator, dst []T, from, to int64) error {
	k := kindOf[T]()
	if from >= to || from < k.least || to-1 > k.largest {
		return invalid("integers from %d to %d, for a type that holds %d to %d", from, to, k.least, k.largest)
	}
	return Between(g, dst, from, to-1)
}

// Between fills dst with integers from first to last, which is one of them, so that the whole of int64 is possible, as
// with Tensor.random_(from, None). Numbers that a floating-point type can't hold are rounded.
func Between[T Number](g Generator, dst []T, first, last int64) error {
	k := kindOf[T]()
	if first > last || k.to64 == nil && (first < k.least || last > k.largest) {
		return invalid("integers from %d to %d, for a type that holds %d to %d", first, last, k.least, k.largest)
	}
	span := uint64(last) - uint64(first) + 1
	convert := k.fromInt
	if span == 0 {
		return integers(g, dst, true, func(x uint64) T { return convert(int64(x)) })
	}
	return integers(g, dst, span >= 1<<28, func(x uint64) T { return convert(int64(x%span) + first) })
}

// Largest returns what [Random] goes up to for a type, and whether it takes 64 bits for each number; 0 for a type that
// it doesn't fill.
func Largest(t dtype.DType) (last int64, wide bool) {
	switch t {
	case dtype.Bool:
		return kindBool.random()
	case dtype.Uint8:
		return kindUint8.random()
	case dtype.Int8:
		return kindInt8.random()
	case dtype.Int16:
		return kindInt16.random()
	case dtype.Int32:
		return kindInt32.random()
	case dtype.Int64:
		return kindInt64.random()
	case dtype.Float32:
		return kindFloat32.random()
	case dtype.Float64:
		return kindFloat64.random()
	case dtype.Float16:
		return kindF16.random()
	case dtype.BFloat16:
		return kindBF16.random()
	}
	return 0, false
}

// Random fills dst with integers from the whole of what T holds from 0 on, as Tensor.random_() does: up to the largest
// integer, or up to 2 to the number of digits, for floating point.
func Random[T Number](g Generator, dst []T) error {
	k := kindOf[T]()
	span := uint64(k.largest) + 1
	convert := k.fromInt
	return integers(g, dst, k.wide, func(x uint64) T { return convert(int64(x % span)) })
}

func integers[T Number](g Generator, dst []T, wide bool, f func(uint64) T) error {
	switch g := g.(type) {
	case *CPU:
		g.mu.Lock()
		defer g.mu.Unlock()
		for i := range dst {
			if wide {
				dst[i] = f(g.engine.uint64())
			} else {
				dst[i] = f(uint64(g.engine.uint32()))
			}
		}
		return nil
	case *CUDA:
		return g.draw(len(dst), sizeOf[T](), wide, func(b [4]uint32, i, step, n int) {
			if wide {
				dst[i] = f(uint64(b[0])<<32 | uint64(b[1]))
				if i += step; i < n {
					dst[i] = f(uint64(b[2])<<32 | uint64(b[3]))
				}
				return
			}
			for _, x := range b {
				if i < n {
					dst[i] = f(uint64(x))
				}
				i += step
			}
		})
	}
	return invalid("no generator")
}

// cudaUniforms fills dst with what f makes of uniform numbers, which have float32 precision unless T is float64.
func cudaUniforms[T Number](g *CUDA, dst []T, f func(u float64) T) error {
	wide := isFloat64[T]()
	return g.draw(len(dst), sizeOf[T](), wide, func(b [4]uint32, i, step, n int) {
		if wide {
			for _, u := range uniform64(b) {
				if i < n {
					dst[i] = f(u)
				}
				i += step
			}
			return
		}
		for _, u := range uniform32(b, 4) {
			if i < n {
				dst[i] = f(float64(u))
			}
			i += step
		}
	})
}

// maxPermutation is the size from which on PyTorch shuffles with 64-bit numbers.
const maxPermutation = math.MaxUint32 / 20

// Permutation fills dst with a random permutation of 0 to len(dst)-1, as torch.randperm does on a CPU. (On CUDA that
// sorts random keys.)
func Permutation(g *CPU, dst []int64) error {
	n := len(dst)
	if n >= maxPermutation {
		return invalid("a permutation of %d elements, more than %d", n, maxPermutation-1)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range dst {
		dst[i] = int64(i)
	}
	for i := 0; i < n-1; i++ {
		z := i + int(g.engine.uint32()%uint32(n-i))
		dst[i], dst[z] = dst[z], dst[i]
	}
	return nil
}
