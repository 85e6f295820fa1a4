//go:build linux

package gputest

import (
	"math"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/dtype"
)

// SparseHandle is what a handle of the library of sparse matrices has been given.
type SparseHandle struct {
	Stream    abi.Stream
	Products  int
	Algorithm int32 // of the last one
}

// Sparse is a library of sparse matrices, cuSPARSE or hipSPARSE, which computes in complex128. status, if not nil, is
// what a function returns instead of doing anything, unless it's [abi.SparseDone]. The map has the handles that aren't
// destroyed, and left counts descriptions of matrices that aren't. A product spoils its memory for work.
func (l *Library) Sparse(status func(call string) abi.SparseStatus) (table abi.Sparse,
	handles map[abi.SparseHandle]*SparseHandle, left func() int) {
	s := &sparseLibrary{Library: l, status: status, handles: map[abi.SparseHandle]*SparseHandle{}, last: 0x59a5,
		rows: map[abi.SparseRows]sparseRows{}, dense: map[abi.SparseDense]sparseDense{}}
	return abi.Sparse{
		Create: func(h *abi.SparseHandle) abi.SparseStatus {
			*h = abi.SparseHandle(s.next())
			s.handles[*h] = &SparseHandle{}
			r := s.call("Create", *h, func(*SparseHandle) abi.SparseStatus { return abi.SparseDone })
			if r != abi.SparseDone {
				delete(s.handles, *h)
			}
			return r
		},
		Destroy: func(h abi.SparseHandle) abi.SparseStatus {
			return s.call("Destroy", h, func(*SparseHandle) abi.SparseStatus {
				delete(s.handles, h)
				return abi.SparseDone
			})
		},
		SetStream: func(h abi.SparseHandle, stream abi.Stream) abi.SparseStatus {
			return s.call("SetStream", h, func(x *SparseHandle) abi.SparseStatus { x.Stream = stream; return abi.SparseDone })
		},
		NewRows:  s.newRows,
		NewDense: s.newDense,
		DropRows: func(a abi.SparseRows) abi.SparseStatus {
			if _, ok := s.rows[a]; !ok {
				return abi.SparseInvalidValue
			}
			delete(s.rows, a)
			return abi.SparseDone
		},
		DropDense: func(m abi.SparseDense) abi.SparseStatus {
			if _, ok := s.dense[m]; !ok {
				return abi.SparseInvalidValue
			}
			delete(s.dense, m)
			return abi.SparseDone
		},
		MultiplyWork: func(h abi.SparseHandle, opA, opB int32, alpha *byte, a abi.SparseRows, b abi.SparseDense, beta *byte,
			c abi.SparseDense, compute, algorithm int32, work *uint64) abi.SparseStatus {
			return s.call("MultiplyWork", h, func(*SparseHandle) abi.SparseStatus {
				x := sparseProduct{s.rows[a], s.dense[b], s.dense[c], opB == abi.SparseTransposed, scalars{}}
				if !x.fits(opA, opB, compute, algorithm) {
					return abi.SparseNotSupported
				}
				*work = x.work()
				return abi.SparseDone
			})
		},
		Multiply: func(h abi.SparseHandle, opA, opB int32, alpha *byte, a abi.SparseRows, b abi.SparseDense, beta *byte,
			c abi.SparseDense, compute, algorithm int32, work uintptr) abi.SparseStatus {
			return s.call("Multiply", h, func(handle *SparseHandle) abi.SparseStatus {
				t := blasTypes[s.rows[a].typ]
				x := sparseProduct{s.rows[a], s.dense[b], s.dense[c], opB == abi.SparseTransposed,
					scalars{scalarAt(t, alpha), scalarAt(t, beta)}}
				if !x.fits(opA, opB, compute, algorithm) {
					return abi.SparseNotSupported
				}
				handle.Products++
				handle.Algorithm = algorithm
				return x.enqueue(l, handle.Stream, work)
			})
		},
		Text: func(s abi.SparseStatus) string {
			return map[abi.SparseStatus]string{abi.SparseNotSupported: "operation not supported"}[s]
		},
		Version: func(_ abi.SparseHandle, v *int32) abi.SparseStatus { *v = 12000; return abi.SparseDone },
	}, s.handles, func() int { return len(s.rows) + len(s.dense) }
}

type sparseLibrary struct {
	*Library
	status  func(call string) abi.SparseStatus
	handles map[abi.SparseHandle]*SparseHandle
	rows    map[abi.SparseRows]sparseRows
	dense   map[abi.SparseDense]sparseDense
	last    uintptr
}

func (s *sparseLibrary) next() uintptr { s.last++; return s.last }

// sparseRows describes a sparse matrix, and sparseDense a dense one.
type (
	sparseRows struct {
		rows, columns, count   int
		starts, places, values uintptr
		index, typ             int32
	}
	sparseDense struct {
		rows, columns, pitch int
		values               uintptr
		typ, order           int32
	}
)

// call is a call about a handle, with a current device.
func (s *sparseLibrary) call(name string, h abi.SparseHandle,
	f func(x *SparseHandle) abi.SparseStatus) abi.SparseStatus {
	if s.status != nil {
		if r := s.status(name); r != abi.SparseDone {
			return r
		}
	}
	x := s.handles[h]
	if x == nil || s.on(func(int) abi.Result { return abi.Success }) != abi.Success {
		return abi.SparseInvalidValue
	}
	return f(x)
}

func (s *sparseLibrary) newRows(a *abi.SparseRows, rows, columns, count int64, starts, places, values uintptr, starting,
	placing, base, typ int32) abi.SparseStatus {
	if _, ok := blasTypes[typ]; !ok || min(rows, columns, count) < 1 || starting != placing ||
		starting != abi.SparseIndex32 && starting != abi.SparseIndex64 || base != abi.SparseFromZero {
		return abi.SparseInvalidValue
	}
	*a = abi.SparseRows(s.next())
	s.rows[*a] = sparseRows{int(rows), int(columns), int(count), starts, places, values, starting, typ}
	return abi.SparseDone
}

func (s *sparseLibrary) newDense(m *abi.SparseDense, rows, columns, pitch int64, values uintptr, typ,
	order int32) abi.SparseStatus {
	if s.status != nil {
		if r := s.status("NewDense"); r != abi.SparseDone {
			return r
		}
	}
	line := columns
	if order == abi.SparseColumnOrder {
		line = rows
	}
	if _, ok := blasTypes[typ]; !ok || min(rows, columns) < 1 || pitch < line || values%16 != 0 ||
		order != abi.SparseColumnOrder && order != abi.SparseRowOrder {
		return abi.SparseInvalidValue
	}
	*m = abi.SparseDense(s.next())
	s.dense[*m] = sparseDense{int(rows), int(columns), int(pitch), values, typ, order}
	return abi.SparseDone
}

// place is where an element is, in elements.
func (m *sparseDense) place(row, column int) int {
	if m.order == abi.SparseColumnOrder {
		row, column = column, row
	}
	return row*m.pitch + column
}

type scalars struct{ alpha, beta complex128 }

// sparseProduct is a product as it's enqueued.
type sparseProduct struct {
	a      sparseRows
	b, c   sparseDense
	transB bool
	by     scalars
}

// fits reports whether the matrices have a product that the library computes.
func (x *sparseProduct) fits(opA, opB, compute, algorithm int32) bool {
	depth, columns := x.b.rows, x.b.columns
	if x.transB {
		depth, columns = columns, depth
	}
	want := x.a.typ
	if want == abi.Real16 || want == abi.RealB16 {
		want = abi.Real32
	}
	return x.a.rows > 0 && x.a.rows == x.c.rows && x.a.columns == depth && columns == x.c.columns &&
		x.a.typ == x.b.typ && x.a.typ == x.c.typ && compute == want && opA == abi.SparseStraight &&
		(opB == abi.SparseStraight || opB == abi.SparseTransposed) && x.b.order == x.c.order &&
		(algorithm == abi.SparseByRows || algorithm == abi.SparseSameBits)
}

// work is how many bytes of memory the product needs.
func (x *sparseProduct) work() uint64 { return uint64(24 + 8*x.a.rows) }

func (x *sparseProduct) enqueue(l *Library, s abi.Stream, work uintptr) abi.SparseStatus {
	t, index := blasTypes[x.a.typ], dtype.Int64
	if x.a.index == abi.SparseIndex32 {
		index = dtype.Int32
	}
	span := func(at uintptr, bytes int) driver.Span { return driver.Span{Ptr: driver.Ptr(at), Bytes: bytes} }
	dense := func(m *sparseDense) driver.Span {
		return span(m.values, (m.place(m.rows-1, m.columns-1)+1)*t.Size())
	}
	spans := []driver.Span{dense(&x.c), dense(&x.b), span(x.a.starts, (x.a.rows+1)*index.Size()),
		span(x.a.places, x.a.count*index.Size()), span(x.a.values, x.a.count*t.Size()), span(work, int(x.work()))}
	for _, m := range spans {
		at, err := l.driver.Attributes(m.Ptr)
		if err != nil || at.Type != driver.DeviceMemory || at.Bytes-int(m.Ptr-at.Base) < m.Bytes {
			return abi.SparseInvalidValue
		}
	}
	if l.driver.Launch(driver.StreamHandle(s), "SpMM", spans, func(views []unsafe.Pointer) error {
		at := func(view, i int) int {
			p := unsafe.Add(views[view], i*index.Size())
			if index == dtype.Int32 {
				return int(*(*int32)(p))
			}
			return int(*(*int64)(p))
		}
		number := func(view, i int) unsafe.Pointer { return unsafe.Add(views[view], i*t.Size()) }
		for r := range x.c.rows {
			for c := range x.c.columns {
				sum := complex128(0)
				for j := at(2, r); j < at(2, r+1); j++ {
					row, column := at(3, j), c
					if x.transB {
						row, column = column, row
					}
					sum += Number(t, number(4, j)) * Number(t, number(1, x.b.place(row, column)))
				}
				sum *= x.by.alpha
				to := number(0, x.c.place(r, c))
				if x.by.beta != 0 {
					sum += x.by.beta * Number(t, to)
				}
				save(t, to, sum)
			}
		}
		for i := range int(x.work()) / 8 {
			*(*float64)(unsafe.Add(views[5], 8*i)) = math.NaN()
		}
		return nil
	}) != nil {
		return abi.SparseInternal
	}
	return abi.SparseDone
}
