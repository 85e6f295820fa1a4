package tensor

import (
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kern"
)

// pair goes through the elements of two tensors of one shape together, as runs along one dimension. For a single tensor
// both sides are the same.
type pair struct {
	a, b         unsafe.Pointer
	shape        []int // outer dimensions
	aStep, bStep []int // in bytes
	n            int   // elements in a run
	aRun, bRun   int   // distance between neighbours of a run, in bytes
}

// newPair leaves out dimensions of size 1 and joins those that lie together in both tensors, so that runs are long.
func newPair(a, b *Tensor) *pair {
	p := &pair{a: a.ptr, b: b.ptr, n: 1, aRun: a.dt.Size(), bRun: b.dt.Size()}
	for i, n := range a.shape {
		if n == 1 {
			continue
		}
		aStep, bStep := a.strides[i]*a.dt.Size(), b.strides[i]*b.dt.Size()
		if k := len(p.shape) - 1; k >= 0 && p.aStep[k] == n*aStep && p.bStep[k] == n*bStep {
			p.shape[k] *= n
			p.aStep[k], p.bStep[k] = aStep, bStep
			continue
		}
		p.shape, p.aStep, p.bStep = append(p.shape, n), append(p.aStep, aStep), append(p.bStep, bStep)
	}
	if k := len(p.shape) - 1; k >= 0 {
		p.n, p.aRun, p.bRun = p.shape[k], p.aStep[k], p.bStep[k]
		p.shape, p.aStep, p.bStep = p.shape[:k], p.aStep[:k], p.bStep[:k]
	}
	return p
}

// each calls f for every run, in row-major order, until it returns false. There must be elements.
func (p *pair) each(f func(a, b unsafe.Pointer) bool) {
	index := make([]int, len(p.shape))
	for a, b := p.a, p.b; f(a, b); {
		k := len(index) - 1
		for ; k >= 0; k-- { // count up, as an odometer does
			if index[k]++; index[k] < p.shape[k] {
				break
			}
			index[k] = 0
		}
		if k < 0 {
			return
		}
		var aOff, bOff int
		for i, x := range index {
			aOff += x * p.aStep[i]
			bOff += x * p.bStep[i]
		}
		a, b = unsafe.Add(p.a, aOff), unsafe.Add(p.b, bOff)
	}
}

// move copies n elements of the given size between two runs.
func move(dst unsafe.Pointer, dstRun int, src unsafe.Pointer, srcRun, n, size int) {
	if dstRun == size && srcRun == size {
		kern.Copy(dst, src, n*size)
		return
	}
	switch size {
	case 1:
		moveAs[uint8](dst, dstRun, src, srcRun, n)
	case 2:
		moveAs[uint16](dst, dstRun, src, srcRun, n)
	case 4:
		moveAs[uint32](dst, dstRun, src, srcRun, n)
	case 8: // as pairs, since complex64 is aligned to 4 bytes only
		moveAs[[2]uint32](dst, dstRun, src, srcRun, n)
	case 16:
		moveAs[[2]uint64](dst, dstRun, src, srcRun, n)
	}
}

func moveAs[T any](dst unsafe.Pointer, dstRun int, src unsafe.Pointer, srcRun, n int) {
	for i := range n {
		*(*T)(unsafe.Add(dst, i*dstRun)) = *(*T)(unsafe.Add(src, i*srcRun))
	}
}

// scratch is room for a piece of a run of either side, laid out without gaps. The element type gives the alignment.
type scratch struct{ a, b [pieceLen]complex128 }

const pieceLen = 256

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// pieces calls f for every piece of up to pieceLen elements, both sides without gaps and converted to the type dt.
// They are copies, good until f returns. It stops when f returns false.
func pieces(a, b *Tensor, dt dtype.DType, f func(a, b unsafe.Pointer, n int) bool) {
	p := newPair(a, b)
	packed, as := scratches.Get().(*scratch), scratches.Get().(*scratch)
	defer scratches.Put(packed)
	defer scratches.Put(as)
	one := func(src unsafe.Pointer, run int, from dtype.DType, tmp, dst unsafe.Pointer, n int) {
		move(tmp, from.Size(), src, run, n, from.Size())
		kern.Convert(dt, dst, from, tmp, n)
	}
	p.each(func(pa, pb unsafe.Pointer) bool {
		for i := 0; i < p.n; i += pieceLen {
			n := min(p.n-i, pieceLen)
			one(unsafe.Add(pa, i*p.aRun), p.aRun, a.dt, unsafe.Pointer(&packed.a), unsafe.Pointer(&as.a), n)
			one(unsafe.Add(pb, i*p.bRun), p.bRun, b.dt, unsafe.Pointer(&packed.b), unsafe.Pointer(&as.b), n)
			if !f(unsafe.Pointer(&as.a), unsafe.Pointer(&as.b), n) {
				return false
			}
		}
		return true
	})
}
