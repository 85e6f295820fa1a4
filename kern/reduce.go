package kern

import (
	"fmt"
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
)

// Reduce computes r[i] = srcs[0][i] op srcs[1][i] op ..., from left to right, for i < n, and writes r to every
// destination. It does so in one pass: each source element is read once and each destination element written once. A
// single source is copied. Destinations may be given among the sources. There must be at least one source and one
// destination, and [Supports] must hold, else Reduce panics.
func Reduce(op Op, dt dtype.DType, dsts, srcs []unsafe.Pointer, n int) {
	if uint(op) >= uint(opCount) || uint(dt) >= uint(dtype.Count) || active.ways[op][dt].slow == nil {
		panic(fmt.Sprintf("kern: %v is not defined for %v", op, dt))
	}
	if len(dsts) == 0 || len(srcs) == 0 || n < 0 {
		panic(fmt.Sprintf("kern: reduce of %d elements from %d sources to %d destinations", n, len(srcs), len(dsts)))
	}
	if len(srcs) == 1 {
		for _, d := range dsts {
			Copy(d, srcs[0], n*dt.Size())
		}
		return
	}
	w := &active.ways[op][dt]
	n *= w.times
	to, from := hideSlice(dsts), hideSlice(srcs)
	if uint(n-1) < maxRun { // one call will do, as for most, and a small one should not pay for the rest
		switch {
		case w.step == 1:
			w.fast(to, from, 0, n)
			return
		case n < w.step:
			w.slow(to, from, 0, n)
			return
		}
	}
	off := 0
	for w.fast != nil && n >= w.step {
		run := min(n, maxRun)
		run &^= w.step - 1
		w.fast(to, from, off, run)
		off += run * w.size
		n -= run
	}
	if n > 0 {
		w.slow(to, from, off, n)
	}
}

// way is how a level carries out a reduction.
type way struct {
	fast  reduceFunc // for counts that are a multiple of step elements; may be nil
	step  int        // a power of two; 0 without fast
	slow  reduceFunc // for any other count; nil if the reduction isn't defined
	times int        // elements of these kernels for each of the reduction
	size  int        // bytes of one
}

// findWays fills the level's table of ways, when the kernels are known.
func (l *level) findWays() {
	for op := Op(0); op < opCount; op++ {
		for dt := range dtype.DType(dtype.Count) {
			if !Supports(op, dt) {
				continue
			}
			as, of, times := simplify(op, dt, 1)
			k := l.reduce[as][of]
			l.ways[op][dt] = way{fast: k.run, step: k.step, slow: portable.reduce[as][of].run, times: times, size: of.Size()}
		}
	}
}

// simplify returns a reduction that does the same with one of fewer operations and types: bools and the bitwise
// operations work on bytes, a complex sum on real numbers.
func simplify(op Op, dt dtype.DType, n int) (Op, dtype.DType, int) {
	switch {
	case dt == dtype.Bool:
		return boolLike[op], dtype.Uint8, n
	case op >= BAnd:
		return op, dtype.Uint8, n * dt.Size()
	case op == Sum:
		dt, n = parts(dt, n)
	}
	return op, dt, n
}

// boolLike gives the bitwise operation on bytes that does an operation's work on bools, which are 0 or 1.
var boolLike = [opCount]Op{Sum: BOr, Product: BAnd, Min: BAnd, Max: BOr, BAnd: BAnd, BOr: BOr, BXor: BXor}
