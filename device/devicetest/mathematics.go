package devicetest

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/dtype"
)

// floats are the bytes of numbers.
func floats(list ...float32) (b []byte) {
	for _, x := range list {
		b = binary.NativeEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// compute enqueues a task with the memory for work that it needs.
func (c *test) compute(s driver.StreamHandle, t driver.Task) error {
	m := c.drv.(driver.Mathematics)
	n, err := m.MathWork(s, t)
	if err != nil {
		return err
	}
	var work driver.Ptr
	if n > 0 {
		work = c.malloc(0, n)
	}
	return m.Compute(s, t, work)
}

// multiplies reports whether there's a library for matrices of float32.
func (c *test) multiplies() bool {
	m := c.drv.(driver.Mathematics)
	if !slices.Contains(m.MathFields(), driver.GEMMs) {
		return false
	}
	l, err := m.MathLibrary(0, driver.GEMMs)
	return err == nil && slices.Contains(l.Types, dtype.Float32)
}

var mathematicsCases = []testCase{
	{"Libraries", 1, func(c *test) {
		m := c.drv.(driver.Mathematics)
		for _, f := range m.MathFields() {
			l, err := m.MathLibrary(0, f)
			again, later := m.MathLibrary(0, f)
			switch {
			case err != nil:
				c.refused(err, driver.ErrUnsupported, "a library of "+f.String()+" that there isn't")
				c.refused(later, driver.ErrUnsupported, "the same the second time")
			case later != nil || again.Name != l.Name:
				c.fail("the library of %v is %q, and then %q, %v", f, l.Name, again.Name, later)
			case l.Name == "":
				c.fail("a library of %v has no name", f)
			case f == driver.FFTs && l.Dims < 1, f != driver.FFTs && len(l.Types) == 0:
				c.fail("the library of %v computes nothing: %+v", f, l)
			}
			_, err = m.MathLibrary(c.n, f)
			c.refused(err, driver.ErrWrongDevice, "a library of a device that there isn't")
		}
	}},
	{"Product", 1, func(c *test) {
		if !c.multiplies() {
			return
		}
		left, right := floats(1, 2, 3, 4, 5, 6), floats(1, 4, 2, 5, 3, 6) // right is transposed: its columns
		a, b, out := c.malloc(0, len(left)), c.put(0, right), c.put(0, floats(1, 1, 1, 1))
		h, mem := c.pinned(len(left))
		copy(mem, left)
		s := c.stream(0)
		release := c.hold(s)
		c.must(c.drv.Copy(s, a, h, len(left), driver.HostToDevice)) // the product comes after it
		c.must(c.compute(s, &driver.GEMM{Type: dtype.Float32, Rows: 2, Columns: 2, Depth: 3, Count: 1, Alpha: 2, Beta: 10,
			Out: driver.Matrix{Ptr: out, Pitch: 2}, A: driver.Matrix{Ptr: a, Pitch: 3},
			B: driver.Matrix{Ptr: b, Pitch: 3, Transposed: true}}))
		release()
		c.sync(s)
		want := floats(2*(1+8+6)+10, 2*(5+6+18)+10, 2*(4+20+12)+10, 2*(20+15+36)+10)
		if got := c.get(0, out, len(want)); !slices.Equal(got, want) {
			c.fail("a product has the bytes %x, want %x", got, want)
		}
	}},
	{"Refused", 1, func(c *test) {
		if !c.multiplies() {
			return
		}
		s, p := c.stream(0), c.malloc(0, 4096)
		good := driver.GEMM{Type: dtype.Float32, Rows: 2, Columns: 2, Depth: 2, Count: 1, Alpha: 1,
			Out: driver.Matrix{Ptr: p, Pitch: 2}, A: driver.Matrix{Ptr: p.Add(1024), Pitch: 2},
			B: driver.Matrix{Ptr: p.Add(2048), Pitch: 2}}
		narrow, none := good, good
		narrow.A.Pitch, none.Depth = 1, 0
		c.refused(c.compute(s, &narrow), driver.ErrInvalidArgument, "a matrix whose lines overlap")
		c.refused(c.compute(s, &none), driver.ErrInvalidArgument, "a product of no depth")
		c.refused(c.compute(0, &good), driver.ErrInvalidHandle, "a null stream")
		c.sync(s)
	}},
}
