package gloo

import (
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kern"
)

// fold combines n elements that came into those of this rank, with the same bits as PyTorch's ranks. These treat bool
// as uint8, so the sum of three times true is 3. Their minimum and maximum of floating-point numbers are std::min and
// std::max, which ignore a NaN that came and keep one that was there.
func (g *group) fold(mine, came unsafe.Pointer, n int) {
	if n == 0 {
		return
	}
	op, dt := g.work.Kernel, g.work.DType
	if op == kern.Min || op == kern.Max {
		switch dt {
		case dtype.Float32:
			extremes(op, mine, came, n, func(x float32) float32 { return x })
			return
		case dtype.Float64:
			extremes(op, mine, came, n, func(x float64) float64 { return x })
			return
		case dtype.Float16:
			extremes(op, mine, came, n, dtype.F16.Float32)
			return
		case dtype.BFloat16:
			extremes(op, mine, came, n, dtype.BF16.Float32)
			return
		}
	}
	g.dst[0], g.src[0], g.src[1] = mine, mine, came
	kern.Reduce(op, dt, g.dst[:], g.src[:], n)
}

// extremes takes minima, or maxima, of elements that compare as numbers.
func extremes[E any, N float32 | float64](op kern.Op, mine, came unsafe.Pointer, n int, number func(E) N) {
	a, b := unsafe.Slice((*E)(mine), n), unsafe.Slice((*E)(came), n)
	if op == kern.Min {
		for i := range a {
			if number(b[i]) < number(a[i]) {
				a[i] = b[i]
			}
		}
		return
	}
	for i := range a {
		if number(a[i]) < number(b[i]) {
			a[i] = b[i]
		}
	}
}

// scale divides complex numbers by one whose imaginary part is 0, as PyTorch does: a NaN spreads to both parts. It
// takes the averages of its reduce-scatters so, and of its other reductions as those of real numbers.
func scale[F float32 | float64](parts []F, by int) {
	factor, zero := 1/F(by), F(0)
	for i := 0; i+1 < len(parts); i += 2 {
		re, im := parts[i], parts[i+1]
		parts[i], parts[i+1] = (re+F(im*zero))*factor, (im-F(re*zero))*factor
	}
}
