package kern

import (
	"fmt"
	"os"
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
)

// maxRun is the number of elements (for copies: of 16-byte groups) given to one assembly call. Assembly can't be
// preempted, so a longer run would delay every stop of the garbage collector.
const maxRun = 64 << 10

// reduceFunc combines n elements of every source into every destination, all off bytes into the memory pointed at.
type reduceFunc func(dsts, srcs []unsafe.Pointer, off, n int)

// mapFunc writes n elements, each computed from one element of src and, where the operation has an operand, from c.
type mapFunc func(dst, src unsafe.Pointer, n int, c float64)

// reduceKernel is a reduceFunc for counts that are a multiple of step elements.
type reduceKernel struct {
	run  reduceFunc
	step int
}

// mapKernel is a mapFunc for counts that are a multiple of step elements.
type mapKernel struct {
	run  mapFunc
	step int
}

// ntKernel copies with non-temporal stores: bytes is a multiple of chunk and dst is aligned to align.
type ntKernel struct {
	run          func(dst, src unsafe.Pointer, bytes int)
	align, chunk int
}

// level is the kernels of one instruction set. A kernel that is missing, and what remains of a count after the last
// whole step, falls to the portable level.
type level struct {
	name    string
	reduce  [opCount][dtype.Count]reduceKernel
	ways    [opCount][dtype.Count]way           // from reduce
	scale   [dtype.Count]mapKernel              // dst = src * c
	divide  [dtype.Count]mapKernel              // dst = src / c
	convert [dtype.Count][dtype.Count]mapKernel // by source, then destination type
	copyNT  ntKernel
}

var (
	levels = usableLevels() // best first, portable last
	active = levelNamed(os.Getenv("CHORUS_KERNELS"))
)

// levelNamed returns the level of a name, the best if there is none.
func levelNamed(name string) *level {
	for _, l := range levels {
		if l.name == name {
			return l
		}
	}
	return levels[0]
}

func usableLevels() []*level { return append(nativeLevels(), &portable) }

// Level returns the name of the instruction set in use: "avx512bf16", "avx512", "avx2", "neon" or "portable".
func Level() string { return active.name }

// Levels returns the names of all levels that this processor can run, best first. The last is "portable".
func Levels() []string {
	names := make([]string, len(levels))
	for i, l := range levels {
		names[i] = l.name
	}
	return names
}

// SetLevel switches to the named level and returns a function that switches back. It is for tests and measurements:
// no other function of the package may be running meanwhile. It panics if this processor can't run the level.
func SetLevel(name string) (restore func()) {
	if l := levelNamed(name); l.name == name {
		was := active
		active = l
		return func() { active = was }
	}
	panic(fmt.Sprintf("kern: level %q is not among %q", name, Levels()))
}

// hide returns p in a way that escape analysis can't follow. Calls through function values make the compiler believe
// that arguments are kept; no kernel keeps one, and without this every scratch block would be allocated. The stack, in
// which the memory may be, moves only in calls. So there must be none between the two conversions, and the compiler's
// check of pointers, part of -race, would be one.
//
//go:nocheckptr
func hide(p unsafe.Pointer) unsafe.Pointer {
	u := uintptr(p)
	return *(*unsafe.Pointer)(unsafe.Pointer(&u))
}

func hideSlice(s []unsafe.Pointer) []unsafe.Pointer {
	return *(*[]unsafe.Pointer)(hide(unsafe.Pointer(&s)))
}
