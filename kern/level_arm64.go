package kern

import (
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
)

// nativeLevels lists NEON, which every arm64 processor has.
func nativeLevels() []*level { return []*level{&neon} }

var neon = func() level {
	l := level{name: "neon"}
	l.reduce[Sum][dtype.Int8] = reduceKernel{reduceSum8NEON, 64}
	l.reduce[Sum][dtype.Uint8] = reduceKernel{reduceSum8NEON, 64}
	l.reduce[Sum][dtype.Int16] = reduceKernel{reduceSum16NEON, 32}
	l.reduce[Sum][dtype.Uint16] = reduceKernel{reduceSum16NEON, 32}
	l.reduce[Sum][dtype.Int32] = reduceKernel{reduceSum32NEON, 16}
	l.reduce[Sum][dtype.Uint32] = reduceKernel{reduceSum32NEON, 16}
	l.reduce[Sum][dtype.Int64] = reduceKernel{reduceSum64NEON, 8}
	l.reduce[Sum][dtype.Uint64] = reduceKernel{reduceSum64NEON, 8}
	l.reduce[Product][dtype.Int8] = reduceKernel{reduceProduct8NEON, 64}
	l.reduce[Product][dtype.Uint8] = reduceKernel{reduceProduct8NEON, 64}
	l.reduce[Product][dtype.Int16] = reduceKernel{reduceProduct16NEON, 32}
	l.reduce[Product][dtype.Uint16] = reduceKernel{reduceProduct16NEON, 32}
	l.reduce[Product][dtype.Int32] = reduceKernel{reduceProduct32NEON, 16}
	l.reduce[Product][dtype.Uint32] = reduceKernel{reduceProduct32NEON, 16}
	l.reduce[Min][dtype.Int8] = reduceKernel{reduceMinI8NEON, 64}
	l.reduce[Min][dtype.Uint8] = reduceKernel{reduceMinU8NEON, 64}
	l.reduce[Min][dtype.Int16] = reduceKernel{reduceMinI16NEON, 32}
	l.reduce[Min][dtype.Uint16] = reduceKernel{reduceMinU16NEON, 32}
	l.reduce[Min][dtype.Int32] = reduceKernel{reduceMinI32NEON, 16}
	l.reduce[Min][dtype.Uint32] = reduceKernel{reduceMinU32NEON, 16}
	l.reduce[Max][dtype.Int8] = reduceKernel{reduceMaxI8NEON, 64}
	l.reduce[Max][dtype.Uint8] = reduceKernel{reduceMaxU8NEON, 64}
	l.reduce[Max][dtype.Int16] = reduceKernel{reduceMaxI16NEON, 32}
	l.reduce[Max][dtype.Uint16] = reduceKernel{reduceMaxU16NEON, 32}
	l.reduce[Max][dtype.Int32] = reduceKernel{reduceMaxI32NEON, 16}
	l.reduce[Max][dtype.Uint32] = reduceKernel{reduceMaxU32NEON, 16}
	l.reduce[BAnd][dtype.Uint8] = reduceKernel{reduceBAnd8NEON, 64}
	l.reduce[BOr][dtype.Uint8] = reduceKernel{reduceBOr8NEON, 64}
	l.reduce[BXor][dtype.Uint8] = reduceKernel{reduceBXor8NEON, 64}
	l.reduce[Sum][dtype.Float32] = reduceKernel{reduceSumF32NEON, 16}
	l.reduce[Sum][dtype.Float64] = reduceKernel{reduceSumF64NEON, 8}
	l.reduce[Sum][dtype.Float16] = reduceKernel{reduceSumF16NEON, 16}
	l.reduce[Sum][dtype.BFloat16] = reduceKernel{reduceSumBF16NEON, 16}
	l.reduce[Product][dtype.Float32] = reduceKernel{reduceProductF32NEON, 16}
	l.reduce[Product][dtype.Float64] = reduceKernel{reduceProductF64NEON, 8}
	l.reduce[Product][dtype.Float16] = reduceKernel{reduceProductF16NEON, 16}
	l.reduce[Product][dtype.BFloat16] = reduceKernel{reduceProductBF16NEON, 16}
	l.reduce[Min][dtype.Float32] = reduceKernel{reduceMinF32NEON, 16}
	l.reduce[Min][dtype.Float64] = reduceKernel{reduceMinF64NEON, 8}
	l.reduce[Min][dtype.Float16] = reduceKernel{reduceMinF16NEON, 16}
	l.reduce[Min][dtype.BFloat16] = reduceKernel{reduceMinBF16NEON, 16}
	l.reduce[Max][dtype.Float32] = reduceKernel{reduceMaxF32NEON, 16}
	l.reduce[Max][dtype.Float64] = reduceKernel{reduceMaxF64NEON, 8}
	l.reduce[Max][dtype.Float16] = reduceKernel{reduceMaxF16NEON, 16}
	l.reduce[Max][dtype.BFloat16] = reduceKernel{reduceMaxBF16NEON, 16}
	return l
}()

// The kernels compute dst[i] = srcs[0][i] op srcs[1][i] op ... for every dst. There must be two sources or more, and n
// must be a multiple of the step given above.

//go:noescape
func reduceSum8NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceSum16NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceSum32NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceSum64NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceProduct8NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceProduct16NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceProduct32NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceMinI8NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceMinU8NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceMinI16NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceMinU16NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceMinI32NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceMinU32NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceMaxI8NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceMaxU8NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceMaxI16NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceMaxU16NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceMaxI32NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceMaxU32NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceBAnd8NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceBOr8NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceBXor8NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceSumF32NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceSumF64NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceSumF16NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceSumBF16NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceProductF32NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceProductF64NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceProductF16NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceProductBF16NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceMinF32NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceMinF64NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceMinF16NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceMinBF16NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceMaxF32NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceMaxF64NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceMaxF16NEON(dsts, srcs []unsafe.Pointer, off, n int)

//go:noescape
func reduceMaxBF16NEON(dsts, srcs []unsafe.Pointer, off, n int)
