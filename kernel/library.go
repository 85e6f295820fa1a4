package kernel

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
)

// TypeSet is types of elements, a bit each.
type TypeSet uint32

// Has reports whether a type is among them.
func (s TypeSet) Has(t dtype.DType) bool { return s>>t&1 != 0 }

// library is what a device has for products of matrices, for fused ones, or for those of sparse matrices, beside the
// kernels.
type library struct {
	name   string
	types  TypeSet
	varies bool
	broken atomic.Bool // it has failed, and isn't asked any more
	warned sync.Once
}

// warn says why a library whose files a variable names isn't used.
func warn(dev *device.Device, variable string, files func(*config.Config) string, multiplies string, why error) {
	if c, err := config.Load(nil); err == nil && files(c) != "" && files(c) != "none" {
		slog.Warn("chorus: the library of "+variable+" isn't used, and kernels multiply "+multiplies, "device", dev.Name(),
			"error", why)
	}
}

func (l *Loader) openLibrary() {
	found, err := l.dev.ProductLibrary()
	if err != nil {
		warn(l.dev, "CHORUS_BLAS_LIBRARY", func(c *config.Config) string { return c.BLASLibrary }, "matrices", err)
		return
	}
	l.library.is(found)
}

func (l *library) is(found device.Library) {
	l.name, l.varies = found.Name, found.Varies
	for _, t := range found.Types {
		l.types |= 1 << t
	}
}

func (l *library) works() bool { return l.usable() != 0 }

// usable are the types that the library multiplies; none if it has failed.
func (l *library) usable() TypeSet {
	if l.broken.Load() {
		return 0
	}
	return l.types
}

// Products are the types of matrices that a library multiplies, for plans: [Plan.Products]. There are none if the
// device has no library, or its library has failed.
func (l *Loader) Products() TypeSet { return l.library.usable() }

// Library names the library that multiplies matrices; empty if there's none, or it has failed.
func (l *Loader) Library() string {
	if !l.library.works() {
		return ""
	}
	return l.library.name
}

// LibraryVaries reports whether products of the library may have other bits each time.
func (l *Loader) LibraryVaries() bool { return l.library.works() && l.library.varies }

// multiply has a library do a call. Without an error, and not done, the kernel does it. A library that fails isn't
// asked again.
func (l *Loader) multiply(s *device.Stream, c *Call) (done bool, err error) {
	x := &l.library
	switch {
	case c.fuses:
		x = &l.fused
	case c.sparse:
		x = &l.sparse
	}
	switch {
	case !x.works():
		return false, nil
	case c.fuses:
		err = s.MultiplyFused(&c.fused)
	case c.sparse:
		err = s.MultiplySparse(&c.rows)
	default:
		err = s.Multiply(&c.product)
	}
	if err == nil {
		l.multiplied.Add(1)
		return true, nil
	}
	if _, failed := errors.AsType[*device.WorkError](err); failed || errors.Is(err, device.ErrOutOfBounds) ||
		errors.Is(err, device.ErrInvalidPointer) || errors.Is(err, device.ErrWrongDevice) {
		return false, err // the device's, or the caller's
	}
	if errors.Is(err, device.ErrCapture) || (c.fuses || c.sparse) && errors.Is(err, device.ErrUnsupported) {
		return false, nil // which says nothing of other products
	}
	if !errors.Is(err, device.ErrUnsupported) && !errors.Is(err, device.ErrOutOfMemory) {
		x.broken.Store(true)
	}
	x.warned.Do(func() {
		slog.Warn("chorus: a library didn't multiply matrices, and a kernel does", "device", l.dev.Name(), "library",
			x.name, "error", err)
	})
	return false, nil
}

// denseLines is a matrix of so many rows and columns, these many elements apart, as a library takes it: rows or columns
// are dense.
func denseLines(rows, columns, row, column int) (m device.Matrix, ok bool) {
	switch {
	case (column == 1 || columns == 1) && (rows == 1 || row >= columns):
		m.Pitch = row
		if rows == 1 {
			m.Pitch = columns
		}
	case (row == 1 || rows == 1) && (columns == 1 || column >= rows):
		m.Transposed, m.Pitch = true, column
		if columns == 1 {
			m.Pitch = rows
		}
	default:
		return m, false
	}
	return m, true
}

// describe fills in the product alpha * a @ b, and reports whether a library takes such: its matrices have dense rows
// or columns and follow each other at one distance.
func (p *Plan) describe(x *device.Product, out, a, b Operand, alpha *Number) bool {
	d := len(out.Sizes)
	m, n, depth := out.Sizes[d-2], out.Sizes[d-1], a.Sizes[d-1]
	q := &p.space
	if p.matrices(out, a, b) != nil || q.count*m*n*depth == 0 {
		return false
	}
	if q.join(); q.dims > 1 {
		return false
	}
	of := func(to *device.Matrix, at, rows, columns int, o Operand) (ok bool) {
		if *to, ok = denseLines(rows, columns, o.Strides[d-2], o.Strides[d-1]); !ok {
			return false
		}
		to.Ptr = o.Ptr
		if q.dims == 1 {
			to.Next = q.strides[at][0]
		}
		return to.Next >= 0
	}
	*x = device.Product{Type: out.Type, Rows: m, Columns: n, Depth: depth, Count: q.count, Alpha: alpha.complex(),
		Atomics: p.Atomics}
	if !of(&x.Out, 0, m, n, out) || !of(&x.A, 1, m, depth, a) || !of(&x.B, 2, depth, n, b) {
		return false
	}
	if x.Out.Transposed { // the transposed product
		x.A, x.B = x.B, x.A
		for _, k := range []*device.Matrix{&x.Out, &x.A, &x.B} {
			k.Transposed = !k.Transposed
		}
		x.Rows, x.Columns = n, m
	}
	return x.Count == 1 || x.Out.Next >= x.Out.Elements(x.Rows, x.Columns, 1)
}
