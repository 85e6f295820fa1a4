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
	floats(dtype.Float16, f16Lens)
	floats(dtype.BFloat16, bf16Lens)
	floats(dtype.Float8E4M3FN, e4m3Lens)
	floats(dtype.Float8E5M2, e5m2Lens)
	floats(dtype.Float32, inPlace[float32]())
	floats(dtype.Float64, inPlace[float64]())

	r := &portable.reduce
	r[BAnd][dtype.Uint8] = inPlace[uint8]().reduce(bitAnd)
	r[BOr][dtype.Uint8] = inPlace[uint8]().reduce(bitOr)
	r[BXor][dtype.Uint8] = inPlace[uint8]().reduce(bitXor)
	r[Product][dtype.Complex64] = inPlace[complex64]().reduce(product64)
	r[Product][dtype.Complex128] = inPlace[complex128]().reduce(product128)
	fillConversions(&portable.convert)
	for _, l := range levels {
		l.findWays()
	}
}

func integers[T integer](dt dtype.DType) {
	r, l := &portable.reduce, inPlace[T]()
	r[Sum][dt], r[Product][dt] = l.reduce(sum), l.reduce(product)
	r[Min][dt], r[Max][dt] = l.reduce(minimum), l.reduce(maximum)
	portable.divide[dt] = l.each(truncate)
}

func floats[A float32 | float64](dt dtype.DType, l lens[A]) {
	r := &portable.reduce
	r[Sum][dt], r[Product][dt] = l.reduce(sum), l.reduce(product)
	r[Min][dt], r[Max][dt] = l.reduce(minimum), l.reduce(maximum)
	portable.scale[dt], portable.divide[dt] = l.each(scale), l.each(divide)
}

// reduce returns the loop that folds elements seen through l.
func (l lens[A]) reduce(fold func(acc, src []A)) reduceKernel {
	return reduceKernel{step: 1, run: func(dsts, srcs []unsafe.Pointer, off, n int) {
		var accs, bufs [block]A
		for n > 0 {
			run := min(n, block)
			acc, buf := scratch(&accs, run), scratch(&bufs, run)
			copy(acc, l.read(buf, unsafe.Add(srcs[0], off)))
			for _, s := range srcs[1:] {
				fold(acc, l.read(buf, unsafe.Add(s, off)))
			}
			for _, d := range dsts {
				l.write(unsafe.Add(d, off), acc)
			}
			off += run * l.size
			n -= run
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
