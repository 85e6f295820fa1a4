package gpu

import (
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/dl"
)

// sparse multiplies sparse matrices by dense ones: cuSPARSE or hipSPARSE.
type sparse struct{ companion[abi.Sparse] }

func newSparse(f *abi.Family, places []string) *sparse {
	return &sparse{companion[abi.Sparse]{name: f.Sparse, variable: "CHORUS_SPARSE_LIBRARY",
		files: func(c *config.Config) string { return c.SparseLibrary }, places: places}}
}

// sparseTypes are the types of elements that a family's library multiplies. Of 16 bits hipSPARSE has no results.
func sparseTypes(f *abi.Family) []dtype.DType {
	all := []dtype.DType{dtype.Float32, dtype.Float64, dtype.Complex64, dtype.Complex128}
	if f.Name == "cuda" {
		all = append(all, dtype.Float16, dtype.BFloat16)
	}
	return all
}

// sparseAlign is what addresses of elements are multiples of, so that a library may load several at once.
const sparseAlign = 16

// sparseWork is MathWork of a sparse product.
func (d *Driver) sparseWork(h driver.StreamHandle, p *driver.SpMM) (bytes int, err error) {
	err = d.withSparse(h, p, func(s *stream, x *sparseCall) error {
		bytes, err = s.b.sparseWork(x)
		return err
	})
	return bytes, err
}

// multiplySparse is Compute of a sparse product.
func (d *Driver) multiplySparse(h driver.StreamHandle, p *driver.SpMM, work driver.Ptr) error {
	const op = "multiply sparse"
	return d.withSparse(h, p, func(s *stream, x *sparseCall) error {
		b := s.b
		bytes, err := b.sparseWork(x)
		if err != nil {
			return err
		}
		if bytes > 0 {
			at, err := d.side(b, op, "memory for work", work, bytes)
			if err == nil && (at.Type != driver.DeviceMemory || at.Device != b.Index) {
				err = driver.Errorf(driver.ErrWrongDevice, b.Name, op, "the memory for work isn't the device's")
			}
			if err != nil {
				return err
			}
		}
		m := d.before(s)
		err = b.sparseCall(op, "SpMM", func(t *abi.Sparse) abi.SparseStatus {
			return t.Multiply(x.h, abi.SparseStraight, x.opB, &x.alpha[0], x.a, x.b, &x.beta[0], x.out, x.compute,
				x.algorithm, uintptr(work))
		})
		m.after(s, op, driver.Activity{Kind: driver.ActivityKernel, Name: b.family.Sparse}, err)
		return err
	})
}

// sparseCall is what the library gets of a product.
type sparseCall struct {
	h                       abi.SparseHandle
	a                       abi.SparseRows
	b, out                  abi.SparseDense
	opB, compute, algorithm int32
	alpha, beta             []byte
}

// withSparse calls f with a stream, which is locked and has a handle, and with a product's descriptions. The library
// reads them before it returns.
func (d *Driver) withSparse(h driver.StreamHandle, p *driver.SpMM, f func(*stream, *sparseCall) error) error {
	const op = "multiply sparse"
	s, err := d.stream(op, h)
	if err != nil {
		return err
	}
	defer s.Unlock()
	b := s.b
	if err := b.sparse.open(); err != nil {
		return driver.Errorf(driver.ErrUnsupported, b.Name, op, "%w", err)
	}
	if s.capture != nil || s.foreign() {
		return driver.Errorf(driver.ErrCapture, b.Name, op, "products of %s aren't captured", b.family.Sparse)
	}
	if err := d.suitsSparse(b, p); err != nil {
		return err
	}
	if s.broken() != nil {
		return b.Broken() // left out
	}
	y := b.productOf(s)
	if !y.sparseBound {
		if err := b.bindSparse(op, s, y); err != nil {
			return err
		}
	}
	x := &sparseCall{h: y.sparse, compute: productTypes[p.Type], algorithm: abi.SparseByRows,
		alpha: scalar(p.Type, p.Alpha), beta: scalar(p.Type, p.Beta)}
	if p.Type.Size() == 2 {
		x.compute = abi.Real32
	}
	if !p.Varies {
		x.algorithm = abi.SparseSameBits
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&x.alpha[0])
	pin.Pin(&x.beta[0])
	err = b.describeSparse(op, x, p)
	if err == nil {
		err = f(s, x)
	}
	b.dropSparse(x)
	return err
}

// suitsSparse refuses what is no product, memory that the GPU has no access to, and what the library doesn't do.
func (d *Driver) suitsSparse(b *gpu, p *driver.SpMM) error {
	const op = "multiply sparse"
	if err := p.Check(b.Name); err != nil {
		return err
	}
	if !slices.Contains(sparseTypes(b.family), p.Type) {
		return driver.Errorf(driver.ErrUnsupported, b.Name, op, "%s has no sparse matrices of %v", b.family.Sparse, p.Type)
	}
	if !p.Varies && b.family.Name == "hip" {
		return driver.Errorf(driver.ErrUnsupported, b.Name, op, "products of %s may have other bits each time",
			b.family.Sparse)
	}
	if p.Index == dtype.Int32 && max(p.Rows, p.Depth, p.Count) > math.MaxInt32 {
		return driver.Errorf(driver.ErrUnsupported, b.Name, op, "%d x %d elements at places of %v", p.Rows, p.Depth, p.Index)
	}
	reach := func(name string, at driver.Ptr, bytes, align int) error {
		if err := d.touches(b, op, name, at, bytes); err != nil {
			return err
		}
		if int(at)%align != 0 {
			return driver.Errorf(driver.ErrUnsupported, b.Name, op, "%s at %v isn't aligned to %d bytes", name, at, align)
		}
		return nil
	}
	for _, m := range p.Matrices() {
		if err := reach(m.Name, m.Ptr, m.Bytes(1), sparseAlign); err != nil {
			return err
		}
	}
	for k, v := range p.Vectors() {
		align := p.Index.Size()
		if k == 2 { // the values
			align = sparseAlign
		}
		if err := reach(v.Name, v.Ptr, v.Bytes, align); err != nil {
			return err
		}
	}
	return nil
}

// describeSparse makes the descriptions of a product's matrices. B gets the order of out, as PyTorch does it: what has
// the other one is the transposed matrix.
func (b *gpu) describeSparse(op string, x *sparseCall, p *driver.SpMM) error {
	typ, index, order := productTypes[p.Type], abi.SparseIndex64, abi.SparseRowOrder
	if p.Index == dtype.Int32 {
		index = abi.SparseIndex32
	}
	if p.Out.Transposed {
		order = abi.SparseColumnOrder
	}
	rows, columns := p.Depth, p.Columns
	if x.opB = abi.SparseStraight; p.B.Transposed != p.Out.Transposed {
		x.opB, rows, columns = abi.SparseTransposed, columns, rows
	}
	a, right, out := dl.Heap(new(abi.SparseRows)), dl.Heap(new(abi.SparseDense)), dl.Heap(new(abi.SparseDense))
	err := b.sparseCall(op, "CreateCsr", func(t *abi.Sparse) abi.SparseStatus {
		return t.NewRows(a, int64(p.Rows), int64(p.Depth), int64(p.Count), uintptr(p.RowOffsets), uintptr(p.ColumnIndices),
			uintptr(p.Values), index, index, abi.SparseFromZero, typ)
	})
	if err != nil {
		return err
	}
	x.a = *a
	dense := func(to *abi.SparseDense, rows, columns int, m *driver.Matrix) error {
		return b.sparseCall(op, "CreateDnMat", func(t *abi.Sparse) abi.SparseStatus {
			return t.NewDense(to, int64(rows), int64(columns), int64(m.Pitch), uintptr(m.Ptr), typ, order)
		})
	}
	if err := dense(right, rows, columns, &p.B); err != nil {
		return err
	}
	x.b = *right
	if err := dense(out, p.Rows, p.Columns, &p.Out); err != nil {
		return err
	}
	x.out = *out
	return nil
}

func (b *gpu) dropSparse(x *sparseCall) {
	_ = b.sparseCall("close", "Destroy", func(t *abi.Sparse) (s abi.SparseStatus) {
		if x.a != 0 {
			s = t.DropRows(x.a)
		}
		for _, m := range [...]abi.SparseDense{x.b, x.out} {
			if m != 0 {
				s = t.DropDense(m)
			}
		}
		return s
	})
}

// sparseWork is how many bytes of memory the library needs for a product.
func (b *gpu) sparseWork(x *sparseCall) (int, error) {
	const op = "multiply sparse"
	bytes := dl.Heap(new(uint64))
	err := b.sparseCall(op, "SpMM_bufferSize", func(t *abi.Sparse) abi.SparseStatus {
		return t.MultiplyWork(x.h, abi.SparseStraight, x.opB, &x.alpha[0], x.a, x.b, &x.beta[0], x.out, x.compute,
			x.algorithm, bytes)
	})
	if err == nil && *bytes > math.MaxInt64 {
		err = driver.Errorf(driver.ErrUnsupported, b.Name, op, "%s wants %d bytes for work", b.family.Sparse, *bytes)
	}
	return int(*bytes), err
}

// sparseCall calls the library on a thread for which the GPU is the current device.
func (b *gpu) sparseCall(op, call string, f func(t *abi.Sparse) abi.SparseStatus) error {
	var s abi.SparseStatus
	t := &b.sparse.table
	if err := b.call(op, call, func() abi.Result { s = f(t); return abi.Success }); err != nil || s == abi.SparseDone {
		return err
	}
	kind, text := driver.ErrInternal, s.String()
	switch s {
	case abi.SparseNotSupported, abi.SparseInvalidValue, abi.SparseArchMismatch, abi.SparseBadType:
		kind = driver.ErrUnsupported
	case abi.SparseAllocFailed, abi.SparseNoResources:
		kind = driver.ErrOutOfMemory
	}
	if t.Text != nil {
		text = fmt.Sprintf("%s (%d)", t.Text(s), int32(s))
	}
	return driver.Errorf(kind, b.Name, op, "%s (%s): %s: %s", b.family.Sparse, b.sparse.place, call, text)
}

// bindSparse makes the handle of a stream's libraries the stream's.
func (b *gpu) bindSparse(op string, s *stream, y *product) error {
	if y.sparse == 0 {
		h := dl.Heap(new(abi.SparseHandle)) // in which a library that fails leaves a number
		if err := b.create(&b.products.sparseOff, func() error {
			return b.sparseCall(op, "Create", func(t *abi.Sparse) abi.SparseStatus { return t.Create(h) })
		}); err != nil {
			return err
		}
		y.sparse = *h
	}
	err := b.sparseCall(op, "SetStream", func(t *abi.Sparse) abi.SparseStatus { return t.SetStream(y.sparse, s.h) })
	y.sparseBound = err == nil
	return err
}
