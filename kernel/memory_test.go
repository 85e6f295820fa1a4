package kernel

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/kern"
)

// guard is how many bytes before and after a tensor's memory must stay as they are.
const guard = 256

// array is a tensor in memory that kernels can touch, between guards.
type array struct {
	Operand
	offset int    // of the first element in the memory, in elements
	whole  []byte // with the guards
	data   []byte
}

// array makes a tensor whose memory has so many elements, with undefined contents.
func (c *cl) array(t testing.TB, dt dtype.DType, elements int, sizes, strides []int) *array {
	m := c.alloc(t, 2*guard+elements*dt.Size())
	a := &array{whole: m.host, data: m.host[guard : len(m.host)-guard]}
	a.Operand = Operand{Ptr: m.ptr.Add(guard), Type: dt, Sizes: sizes, Strides: strides}
	return a
}

// dense makes one whose elements lie one after the other.
func (c *cl) dense(t testing.TB, dt dtype.DType, sizes ...int) *array {
	n := 1
	for _, s := range sizes {
		n *= s
	}
	return c.array(t, dt, n, sizes, Dense(sizes...))
}

// intact fails the test if a kernel wrote beyond the memory.
func (a *array) intact(t testing.TB, what string) {
	t.Helper()
	want := bytes.Repeat([]byte{0xa5}, guard)
	if !bytes.Equal(a.whole[:guard], want) || !bytes.Equal(a.whole[len(a.whole)-guard:], want) {
		t.Errorf("%s: written outside of the tensor", what)
	}
}

// elements are the memory's elements as complex numbers.
func elements(dt dtype.DType, b []byte) []complex128 {
	z := make([]complex128, len(b)/dt.Size())
	if len(z) > 0 {
		kern.Convert(dtype.Complex128, unsafe.Pointer(&z[0]), dt, unsafe.Pointer(&b[0]), len(z))
	}
	return z
}

// integers are the memory's elements as integers.
func integers(dt dtype.DType, b []byte) []int64 {
	z := make([]int64, len(b)/dt.Size())
	if len(z) > 0 {
		kern.Convert(dtype.Int64, unsafe.Pointer(&z[0]), dt, unsafe.Pointer(&b[0]), len(z))
	}
	return z
}

// set sets the memory's elements.
func (a *array) set(z []complex128) {
	if len(z) > 0 {
		kern.Convert(a.Type, unsafe.Pointer(&a.data[0]), dtype.Complex128, unsafe.Pointer(&z[0]), len(z))
	}
}

func (a *array) elements() []complex128 { return elements(a.Type, a.data) }

// sampled reports whether a test has its case k: one in brief of them in `make test`, one in long otherwise, and each
// with CHORUS_TEST_LONG=1, which takes some minutes.
func sampled(k, brief, long int) bool {
	return os.Getenv("CHORUS_TEST_LONG") != "" || k%testutil.Pick(brief, long) == 0
}

// tolerance is how far a result of a type may be from PyTorch's or the oracle's, relative to the larger of it and 1:
// some units in the last place, since the functions of OpenCL, CUDA and C differ by that.
func tolerance(dt dtype.DType) float64 {
	switch dt {
	case dtype.Float16:
		return 2e-3
	case dtype.BFloat16:
		return 1.6e-2
	case dtype.Float32, dtype.Complex64:
		return 1e-5
	case dtype.Float64, dtype.Complex128:
		return 1e-11
	}
	return 0
}

// near compares parts of numbers.
func near(a, b, tolerance float64) bool {
	if math.IsNaN(a) || math.IsNaN(b) {
		return math.IsNaN(a) && math.IsNaN(b)
	}
	return a == b || math.Abs(a-b) <= tolerance*math.Max(1, math.Abs(b))
}

func nearComplex(a, b complex128, tolerance float64) bool {
	scale := math.Max(1, math.Hypot(real(b), imag(b)))
	part := func(x, y float64) bool { return near(x, y, tolerance) || math.Abs(x-y) <= tolerance*scale }
	return part(real(a), real(b)) && part(imag(a), imag(b))
}

// sample are n numbers that a type has: special ones among small random ones.
func sample(dt dtype.DType, n int, seed uint64) []complex128 {
	r := rand.New(rand.NewPCG(seed, uint64(dt)))
	special := []float64{0, 1, -1, 0.5, -0.5, 2, math.Inf(1), math.Inf(-1), math.NaN(), math.Copysign(0, -1), 3,
		-3, 1e-3, 6.5, 20}
	z := make([]complex128, n)
	for i := range z {
		switch {
		case dt == dtype.Bool:
			z[i] = complex(float64(r.IntN(2)), 0)
		case dt.IsComplex():
			z[i] = complex(float64(float32(r.NormFloat64()*2)), float64(float32(r.NormFloat64()*2)))
		case dt.IsInteger():
			low := -9
			if !dt.IsSigned() {
				low = 0
			}
			z[i] = complex(float64(low+r.IntN(10-low)), 0)
		case r.IntN(3) == 0:
			z[i] = complex(special[r.IntN(len(special))], 0)
		default:
			z[i] = complex(r.NormFloat64()*2, 0)
		}
	}
	return z
}
