package kern

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
)

// colour moves each buffer to other address bits: equal ones slow caches down by up to eight times.
const colour = 3 * 4096

func benchBuffers(count, bytes int) []unsafe.Pointer {
	p := make([]unsafe.Pointer, count)
	for i := range p {
		b := make([]byte, bytes+i*colour+64)
		for j := range b {
			b[j] = 0x3c // 0.0115 as float32, 1.06 as f16: no special numbers
		}
		at := i*colour + int(-uintptr(unsafe.Pointer(&b[i*colour]))&63)
		p[i] = unsafe.Pointer(&b[at])
	}
	return p
}

// BenchmarkReduce counts bytes read and written.
func BenchmarkReduce(b *testing.B) {
	type shape struct{ dsts, srcs int }
	for _, c := range []struct {
		op     Op
		dt     dtype.DType
		shapes []shape
	}{
		{Sum, dtype.Float32, []shape{{1, 2}, {2, 2}, {1, 4}, {4, 4}, {8, 8}}},
		{Sum, dtype.Float64, []shape{{2, 2}}},
		{Sum, dtype.BFloat16, []shape{{1, 2}, {2, 2}, {4, 4}}},
		{Sum, dtype.Float16, []shape{{1, 2}, {2, 2}, {4, 4}}},
		{Sum, dtype.Int32, []shape{{2, 2}}},
		{Sum, dtype.Int64, []shape{{2, 2}}},
		{Sum, dtype.Uint8, []shape{{2, 2}}},
		{Product, dtype.Int8, []shape{{2, 2}}},
		{Max, dtype.Float32, []shape{{2, 2}}},
		{Min, dtype.Float64, []shape{{2, 2}}},
		{Max, dtype.Int64, []shape{{2, 2}}},
		{Sum, dtype.Float8E4M3FN, []shape{{2, 2}}},
	} {
		for _, s := range c.shapes {
			for _, bytes := range []int{64, 4 << 10, 256 << 10, 64 << 20} {
				for _, level := range Levels() {
					b.Run(fmt.Sprintf("%v/%v/%dto%d/%d/%s", c.op, c.dt, s.srcs, s.dsts, bytes, level), func(b *testing.B) {
						defer SetLevel(level)()
						p := benchBuffers(max(s.srcs, s.dsts), bytes)
						n := bytes / c.dt.Size()
						b.SetBytes(int64(bytes * (s.srcs + s.dsts)))
						b.ReportAllocs()
						for b.Loop() {
							Reduce(c.op, c.dt, p[:s.dsts], p[:s.srcs], n)
						}
					})
				}
			}
		}
	}
}

// BenchmarkSum measures sums of the types of gradients, as an in-place all-reduce of two or three ranks needs them.
// Sizes, which are the bytes of all memories together, go from the nearest cache to memory.
func BenchmarkSum(b *testing.B) {
	for _, ranks := range []int{2, 3} {
		for _, bytes := range []int{16 << 10, 256 << 10, 1 << 20, 16 << 20} {
			for _, dt := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
				for _, level := range Levels() {
					if level == "portable" {
						continue
					}
					b.Run(fmt.Sprintf("%d/%d/%v/%s", ranks, bytes, dt, level), func(b *testing.B) {
						defer SetLevel(level)()
						each := bytes / ranks &^ 63
						p := benchBuffers(ranks, each)
						b.SetBytes(int64(2 * ranks * each))
						b.ReportAllocs()
						for b.Loop() {
							Reduce(Sum, dt, p, p, each/dt.Size())
						}
					})
				}
			}
		}
	}
}

func BenchmarkCopy(b *testing.B) {
	for _, bytes := range []int{64, 4 << 10, 256 << 10, 64 << 20} {
		p := benchBuffers(2, bytes)
		b.Run(fmt.Sprintf("cached/%d", bytes), func(b *testing.B) {
			b.SetBytes(int64(bytes))
			for b.Loop() {
				Copy(p[0], p[1], bytes)
			}
		})
		b.Run(fmt.Sprintf("nt/%d", bytes), func(b *testing.B) {
			b.SetBytes(int64(bytes))
			for b.Loop() {
				CopyNT(p[0], p[1], bytes)
			}
		})
	}
}

func BenchmarkConvert(b *testing.B) {
	for _, c := range []struct{ from, to dtype.DType }{
		{dtype.Float32, dtype.BFloat16}, {dtype.BFloat16, dtype.Float32}, {dtype.Float32, dtype.Float16}, {dtype.Float16,
			dtype.Float32},
		{dtype.Float64, dtype.Float32}, {dtype.Float32, dtype.Float8E4M3FN}, {dtype.Int64, dtype.Float32},
	} {
		for _, level := range Levels() {
			b.Run(fmt.Sprintf("%vTo%v/%s", c.from, c.to, level), func(b *testing.B) {
				defer SetLevel(level)()
				const n = 16 << 10
				p := benchBuffers(2, 8*n)
				b.SetBytes(int64(n * (c.from.Size() + c.to.Size())))
				for b.Loop() {
					Convert(c.to, p[0], c.from, p[1], n)
				}
			})
		}
	}
}

func BenchmarkScale(b *testing.B) {
	for _, dt := range []dtype.DType{dtype.Float32, dtype.BFloat16} {
		for _, level := range Levels() {
			b.Run(fmt.Sprintf("%v/%s", dt, level), func(b *testing.B) {
				defer SetLevel(level)()
				const n = 16 << 10
				p := benchBuffers(1, n*dt.Size())
				b.SetBytes(int64(2 * n * dt.Size()))
				for b.Loop() {
					Scale(dt, p[0], p[0], n, 1)
				}
			})
		}
	}
}
