package kern

import (
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
)

// block is the number of elements that the portable loops hold on the stack at a time.
const block = 128

// portable is the level in plain Go. It is complete: all that is supported is here, as [simplify] leaves it.
var portable = level{name: "portable"}

func init() {
	integers[uint8](dtype.Uint8)
	integers[uint16](dtype.Uint16)
	integers[uint32](dtype.Uint32)
	integers[uint64](dtype.Uint64)
	integers[int8](dtype.Int8)
	integers[int16](dtype.Int16)
	integers[int32](dtype.Int32)
	integers[int64](dtype.Int64)
	narrow(dtype.Float16, f16Lens)
	narrow(dtype.BFloat16, bf16Lens)
	narrow(dtype.Float8E4M3FN, e4m3Lens)
	narrow(dtype.Float8E5M2, e5m2Lens)
	native(dtype.Float32, oneNaN[float32])
	native(dtype.Float64, oneNaN[float64])
	floats(dtype.Float32, inPlace[float32]())
	floats(dtype.Float64, inPlace[float64]())

	r := &portable.reduce
	r[BAnd][dtype.Uint8] = direct(bitAnd, func(a, b uint8) uint8 { return a & b }, nil)
	r[BOr][dtype.Uint8] = direct(bitOr, func(a, b uint8) uint8 { return a | b }, nil)
	r[BXor][dtype.Uint8] = direct(bitXor, func(a, b uint8) uint8 { return a ^ b }, nil)
	r[Product][dtype.Complex64] = inPlace[complex64]().reduce(product64, oneNaN64)
	r[Product][dtype.Complex128] = inPlace[complex128]().reduce(product128, oneNaN128)
	fillConversions(&portable.convert)
	for _, l := range levels {
		l.findWays()
	}
}

func integers[T integer](dt dtype.DType) {
	native[T](dt, nil)
	portable.divide[dt] = inPlace[T]().each(truncate)
}

// native fills in the reductions of a type that Go itself computes with.
func native[T ordered](dt dtype.DType, finish func([]T)) {
	r := &portable.reduce
	r[Sum][dt] = direct(sum, func(a, b T) T { return a + b }, finish)
	r[Product][dt] = direct(product, func(a, b T) T { return a * b }, finish)
	r[Min][dt] = direct(minimum, func(a, b T) T { return min(a, b) }, finish)
	r[Max][dt] = direct(maximum, func(a, b T) T { return max(a, b) }, finish)
}

// narrow fills in a float that is widened to compute with.
func narrow(dt dtype.DType, l lens[float32]) {
	r := &portable.reduce
	r[Sum][dt], r[Product][dt] = l.reduce(sum, oneNaN), l.reduce(product, oneNaN)
	r[Min][dt], r[Max][dt] = l.reduce(minimum, oneNaN), l.reduce(maximum, oneNaN)
	floats(dt, l)
}

func floats[A float32 | float64](dt dtype.DType, l lens[A]) {
	portable.scale[dt], portable.divide[dt] = l.each(scale), l.each(divide)
}

// reduce returns the loop that folds elements seen through l, and hands finish the results unless it's nil.
func (l lens[A]) reduce(fold func(acc, src []A), finish func([]A)) reduceKernel {
	return reduceKernel{step: 1, run: func(dsts, srcs []unsafe.Pointer, off, n int) {
		var accs, bufs [block]A
		for n > 0 {
			run := min(n, block)
			acc, buf := scratch(&accs, run), scratch(&bufs, run)
			copy(acc, l.read(buf, unsafe.Add(srcs[0], off)))
			for _, s := range srcs[1:] {
				fold(acc, l.read(buf, unsafe.Add(s, off)))
			}
			if finish != nil {
				finish(acc)
			}
			for _, d := range dsts {
				l.write(unsafe.Add(d, off), acc)
			}
			off += run * l.size
			n -= run
		}
	}}
}

// few is up to how many elements are folded one by one: as many as a faster level may leave, or all of a small
// operation.
const few = 16

// direct returns the loop that folds elements of a type that Go itself computes with; one does it for a pair.
func direct[T any](fold func(acc, src []T), one func(a, b T) T, finish func([]T)) reduceKernel {
	many := inPlace[T]().reduce(fold, finish).run
	return reduceKernel{step: 1, run: func(dsts, srcs []unsafe.Pointer, off, n int) {
		if n > few {
			many(dsts, srcs, off, n)
			return
		}
		at := func(p unsafe.Pointer) []T { return unsafe.Slice((*T)(unsafe.Add(p, off)), n) }
		if len(srcs) == 2 && len(dsts) == 1 { // two ranks have nothing else
			a, b, d := at(srcs[0]), at(srcs[1]), at(dsts[0])
			for i := range d {
				d[i] = one(a[i], b[i])
			}
			if finish != nil {
				finish(d)
			}
			return
		}
		for i := range n {
			acc := at(srcs[0])[i]
			for _, s := range srcs[1:] {
				acc = one(acc, at(s)[i])
			}
			for _, d := range dsts {
				at(d)[i] = acc
			}
		}
		if finish != nil {
			for _, d := range dsts {
				finish(at(d))
			}
		}
	}}
}

// each returns the loop that applies f to elements seen through l.
func (l lens[A]) each(f func(values []A, c float64)) mapKernel {
	return mapKernel{step: 1, run: func(dst, src unsafe.Pointer, n int, c float64) {
		var accs, bufs [block]A
		for i := 0; i < n; i += block {
			run := min(n-i, block)
			acc := scratch(&accs, run)
			copy(acc, l.read(scratch(&bufs, run), unsafe.Add(src, i*l.size)))
			f(acc, c)
			l.write(unsafe.Add(dst, i*l.size), acc)
		}
	}}
}

// through returns the loop that reads elements with one lens and writes them with another.
func through[A any](from, to lens[A]) mapKernel {
	return mapKernel{step: 1, run: func(dst, src unsafe.Pointer, n int, _ float64) {
		var bufs [block]A
		for i := 0; i < n; i += block {
			run := min(n-i, block)
			to.write(unsafe.Add(dst, i*to.size), from.read(scratch(&bufs, run), unsafe.Add(src, i*from.size)))
		}
	}}
}

// scratch returns the first n elements of an array on the caller's stack.
func scratch[A any](a *[block]A, n int) []A {
	return unsafe.Slice((*A)(hide(unsafe.Pointer(a))), n)
}
