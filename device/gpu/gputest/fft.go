//go:build linux

package gputest

import (
	"math"
	"math/cmplx"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/dtype"
)

// FFTPlan is what a plan of the library of transforms has been given.
type FFTPlan struct {
	Stream     abi.Stream
	Work       int // bytes that it needs
	Transforms int

	manual, made, area bool
	typ                int32
	n                  []int
	sides              [2]fftSide
	count              int
}

type fftSide struct {
	sizes, strides []int
	next           int
	typ            dtype.DType
}

// fftForms are the types of both sides.
var fftForms = map[int32][2]dtype.DType{abi.C2C: {dtype.Complex64, dtype.Complex64},
	abi.R2C: {dtype.Float32, dtype.Complex64}, abi.C2R: {dtype.Complex64, dtype.Float32},
	abi.Z2Z: {dtype.Complex128, dtype.Complex128}, abi.D2Z: {dtype.Float64, dtype.Complex128},
	abi.Z2D: {dtype.Complex128, dtype.Float64}}

// FFT is a library of transforms, cuFFT or hipFFT, which are computed by their definition. It spoils all
// that a transform may. status, if not nil, is what a function returns instead of doing anything, unless it's
// [abi.Transformed]. The map has the plans that aren't destroyed.
func (l *Library) FFT(status func(call string) abi.FFTResult) (abi.FFT, map[abi.FFTPlan]*FFTPlan) {
	plans := map[abi.FFTPlan]*FFTPlan{}
	last := abi.FFTPlan(0)
	call := func(name string, h abi.FFTPlan, f func(x *FFTPlan) abi.FFTResult) abi.FFTResult {
		if status != nil {
			if r := status(name); r != abi.Transformed {
				return r
			}
		}
		if l.on(func(int) abi.Result { return abi.Success }) != abi.Success {
			return abi.FFTInvalidDevice
		}
		if plans[h] == nil {
			return abi.FFTInvalidPlan
		}
		return f(plans[h])
	}
	exec := func(h abi.FFTPlan, typ int32, in, out uintptr, direction int32) abi.FFTResult {
		return call("Exec", h, func(x *FFTPlan) abi.FFTResult {
			switch {
			case !x.made || x.typ != typ || x.Work > 0 && !x.area:
				return abi.FFTInvalidPlan
			case direction != abi.FFTForward && direction != abi.FFTInverse:
				return abi.FFTInvalidValue
			case (in|out)%uintptr(max(fftForms[typ][0].Size(), fftForms[typ][1].Size())) != 0:
				return abi.FFTUnaligned
			}
			x.Transforms++
			if x.enqueue(l, in, out, float64(direction)) != nil {
				return abi.FFTExecFailed
			}
			return abi.Transformed
		})
	}
	both := func(typ int32) abi.TransformingBoth {
		return func(h abi.FFTPlan, in, out uintptr, direction int32) abi.FFTResult {
			return exec(h, typ, in, out, direction)
		}
	}
	one := func(typ, direction int32) abi.TransformingOne {
		return func(h abi.FFTPlan, in, out uintptr) abi.FFTResult { return exec(h, typ, in, out, direction) }
	}
	return abi.FFT{
		Create: func(p *abi.FFTPlan) abi.FFTResult {
			plans[last] = &FFTPlan{}
			r := call("Create", last, func(*FFTPlan) abi.FFTResult { return abi.Transformed })
			if r != abi.Transformed {
				delete(plans, last)
				return r
			}
			*p = last // the first one is 0
			last++
			return r
		},
		Allocates: func(h abi.FFTPlan, itself int32) abi.FFTResult {
			return call("SetAutoAllocation", h, func(x *FFTPlan) abi.FFTResult {
				x.manual = itself == 0
				return abi.Transformed
			})
		},
		Make: func(h abi.FFTPlan, rank int32, n, inEmbed *int64, inStep, inNext int64, outEmbed *int64, outStep,
			outNext int64, typ int32, count int64, work *uint64) abi.FFTResult {
			return call("MakePlanMany64", h, func(x *FFTPlan) abi.FFTResult {
				form, known := fftForms[typ]
				switch {
				case x.made || !x.manual: // memory that the library allocates would wait for the GPU
					return abi.FFTInvalidPlan
				case !known:
					return abi.FFTInvalidType
				case rank < 1 || rank > 3 || count < 1 || n == nil || inEmbed == nil || outEmbed == nil:
					return abi.FFTInvalidValue
				}
				x.n = nil
				for _, size := range unsafe.Slice(n, rank) {
					if size < 1 {
						return abi.FFTInvalidSize
					}
					x.n = append(x.n, int(size))
				}
				for i, side := range []fftSide{{next: int(inNext), strides: []int{int(inStep)}, typ: form[0]},
					{next: int(outNext), strides: []int{int(outStep)}, typ: form[1]}} {
					embed := unsafe.Slice([]*int64{inEmbed, outEmbed}[i], rank)
					side.sizes = append([]int{}, x.n...)
					if form[0] != form[1] && side.typ.IsComplex() {
						side.sizes[rank-1] = side.sizes[rank-1]/2 + 1
					}
					for d := rank - 1; d >= 0; d-- {
						if int(embed[d]) < side.sizes[d] || side.strides[0] < 1 || side.next < 0 || side.next == 0 && count > 1 {
							return abi.FFTInvalidValue
						}
						if d > 0 {
							side.strides = append([]int{side.strides[0] * int(embed[d])}, side.strides...)
						}
					}
					x.sides[i] = side
				}
				x.made, x.typ, x.count, x.Work = true, typ, int(count), 512*int(rank)
				*work = uint64(x.Work)
				return abi.Transformed
			})
		},
		SetStream: func(h abi.FFTPlan, s abi.Stream) abi.FFTResult {
			return call("SetStream", h, func(x *FFTPlan) abi.FFTResult { x.Stream = s; return abi.Transformed })
		},
		SetWorkArea: func(h abi.FFTPlan, memory uintptr) abi.FFTResult {
			return call("SetWorkArea", h, func(x *FFTPlan) abi.FFTResult {
				at, err := l.driver.Attributes(driver.Ptr(memory))
				if err != nil || at.Type != driver.DeviceMemory || at.Bytes-int(driver.Ptr(memory)-at.Base) < x.Work {
					return abi.FFTInvalidValue
				}
				x.area = true
				return abi.Transformed
			})
		},
		C2C: both(abi.C2C), Z2Z: both(abi.Z2Z), R2C: one(abi.R2C, abi.FFTForward), D2Z: one(abi.D2Z, abi.FFTForward),
		C2R: one(abi.C2R, abi.FFTInverse), Z2D: one(abi.Z2D, abi.FFTInverse),
		Destroy: func(h abi.FFTPlan) abi.FFTResult {
			return call("Destroy", h, func(*FFTPlan) abi.FFTResult { delete(plans, h); return abi.Transformed })
		},
		Version: func(v *int32) abi.FFTResult { *v = 12000; return abi.Transformed },
	}, plans
}

// bytes is how much memory a side takes.
func (s *fftSide) bytes(count int) int {
	last := (count - 1) * s.next
	for i, n := range s.sizes {
		last += (n - 1) * s.strides[i]
	}
	return (last + 1) * s.typ.Size()
}

// each calls f with the place in memory of each element, in row-major order, and its index in the innermost dimension.
func (s *fftSide) each(f func(at, inner int)) {
	total := 1
	for _, n := range s.sizes {
		total *= n
	}
	for i := range total {
		at, rest := 0, i
		for d := len(s.sizes) - 1; d >= 0; d-- {
			at, rest = at+rest%s.sizes[d]*s.strides[d], rest/s.sizes[d]
		}
		f(at*s.typ.Size(), i%s.sizes[len(s.sizes)-1])
	}
}

func (x *FFTPlan) enqueue(l *Library, in, out uintptr, sign float64) error {
	y := *x
	from, to := &y.sides[0], &y.sides[1]
	spoils := !to.typ.IsComplex() || !from.typ.IsComplex() && l.opts.Name == "hip"
	spans := []driver.Span{{Ptr: driver.Ptr(in), Bytes: from.bytes(y.count)},
		{Ptr: driver.Ptr(out), Bytes: to.bytes(y.count)}}
	return l.driver.Launch(driver.StreamHandle(y.Stream), "fft", spans, func(views []unsafe.Pointer) error {
		for c := range y.count {
			read := unsafe.Add(views[0], c*from.next*from.typ.Size())
			write := unsafe.Add(views[1], c*to.next*to.typ.Size())
			var all []complex128
			from.each(func(at, _ int) { all = append(all, Number(from.typ, unsafe.Add(read, at))) })
			if !to.typ.IsComplex() {
				all = whole(all, y.n)
			}
			all = DFT(all, y.n, sign)
			k, n := 0, y.n[len(y.n)-1]
			to.each(func(at, inner int) {
				if inner == 0 { // lines of out may be shorter
					k = (k + n - 1) / n * n
				}
				save(to.typ, unsafe.Add(write, at), all[k])
				k++
			})
			if spoils {
				from.each(func(at, _ int) { save(from.typ, unsafe.Add(read, at), complex(math.NaN(), math.NaN())) })
			}
		}
		return nil
	})
}

// whole is all of a transform of real numbers, of which the innermost dimension's second half is left out.
func whole(half []complex128, sizes []int) (all []complex128) {
	last := len(sizes) - 1
	n := sizes[last]
	kept, total := n/2+1, 1
	for _, s := range sizes {
		total *= s
	}
	for i := range total {
		inner := i % n
		if inner < kept {
			all = append(all, half[i/n*kept+inner])
			continue
		}
		line, rest, step := 0, i/n, 1 // of the opposite place
		for d := last - 1; d >= 0; d-- {
			line += (sizes[d] - rest%sizes[d]) % sizes[d] * step
			rest, step = rest/sizes[d], step*sizes[d]
		}
		all = append(all, cmplx.Conj(half[line*kept+n-inner]))
	}
	return all
}

// DFT is the transform of numbers in row-major order, by its definition. sign is the exponents'.
func DFT(in []complex128, sizes []int, sign float64) []complex128 {
	out := append([]complex128{}, in...)
	inner := 1
	for d := len(sizes) - 1; d >= 0; d-- {
		n := sizes[d]
		line := make([]complex128, n)
		for first := range out {
			if first/inner%n != 0 {
				continue
			}
			for k := range n {
				line[k] = 0
				for j := range n {
					line[k] += out[first+j*inner] * cmplx.Rect(1, sign*2*math.Pi*float64(j*k%n)/float64(n))
				}
			}
			for k := range n {
				out[first+k*inner] = line[k]
			}
		}
		inner *= n
	}
	return out
}
