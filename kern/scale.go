package kern

import (
	"fmt"
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
)

// Scale computes dst[i] = src[i] * factor for n elements of a floating-point or complex type; other types panic. Types
// of up to 32 bits (complex: 32 bits a part) are computed in float32 with the factor rounded to float32, the wider ones
// in float64. dst may be src.
func Scale(dt dtype.DType, dst, src unsafe.Pointer, n int, factor float64) {
	if !dt.IsFloating() && !dt.IsComplex() {
		panic(fmt.Sprintf("kern: scale is not defined for %v", dt))
	}
	dt, n = parts(dt, n)
	each(&active.scale[dt], &portable.scale[dt], dst, src, n, dt.Size(), dt.Size(), factor)
}

// Average divides n elements in place by the positive number by. Floating-point and complex types divide as [Scale]
// multiplies; the quotient is correctly rounded, it is no product with a reciprocal. Integers truncate towards zero.
// Bool panics.
func Average(dt dtype.DType, dst unsafe.Pointer, n, by int) {
	if !dt.Valid() || dt == dtype.Bool || by <= 0 {
		panic(fmt.Sprintf("kern: average of %v by %d is not defined", dt, by))
	}
	dt, n = parts(dt, n)
	size := dt.Size()
	if dt.IsFloating() && by&(by-1) == 0 { // a power of two: its reciprocal is exact, and multiplying is faster
		each(&active.scale[dt], &portable.scale[dt], dst, dst, n, size, size, 1/float64(by))
		return
	}
	each(&active.divide[dt], &portable.divide[dt], dst, dst, n, size, size, float64(by))
}

// parts takes a complex number apart, for operations that treat its two parts alike.
func parts(dt dtype.DType, n int) (dtype.DType, int) {
	switch dt {
	case dtype.Complex64:
		return dtype.Float32, 2 * n
	case dtype.Complex128:
		return dtype.Float64, 2 * n
	}
	return dt, n
}

// each runs fast over the whole steps of n elements, then slow over the rest.
func each(fast, slow *mapKernel, dst, src unsafe.Pointer, n, dstSize, srcSize int, c float64) {
	to, from := hide(dst), hide(src)
	done := 0
	if fast.run != nil {
		for n-done >= fast.step {
			run := min(n-done, maxRun)
			run -= run % fast.step
			fast.run(unsafe.Add(to, done*dstSize), unsafe.Add(from, done*srcSize), run, c)
			done += run
		}
	}
	if done < n {
		slow.run(unsafe.Add(to, done*dstSize), unsafe.Add(from, done*srcSize), n-done, c)
	}
}
