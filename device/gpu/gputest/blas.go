//go:build linux

package gputest

import (
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/dtype"
)

// blasTypes are the types of elements by cudaDataType's numbers.
var blasTypes = map[int32]dtype.DType{abi.Real16: dtype.Float16, abi.RealB16: dtype.BFloat16,
	abi.Real32: dtype.Float32, abi.Real64: dtype.Float64, abi.Complex32: dtype.Complex64, abi.Complex64: dtype.Complex128}

// BLASHandle is what a handle of the library of products has been given.
type BLASHandle struct {
	Stream    abi.Stream
	Workspace int     // bytes
	At, Used  uintptr // workspaces: the next product's, and the last one's
	Atomics   int32
	Products  int

	Triangular int // systems
}

// blasMatrix is a matrix of the library's, whose columns are dense unless it's transposed.
type blasMatrix struct {
	at          uintptr
	trans       bool
	pitch, next int
}

// BLAS is a library of products, cuBLAS or hipBLAS, whose products are computed in float64. status, if not nil, is what
// a function returns instead of doing anything, unless it's [abi.Done]. The map has the handles that aren't destroyed.
func (l *Library) BLAS(status func(call string) abi.Status) (abi.BLAS, map[abi.BLASHandle]*BLASHandle) {
	handles := map[abi.BLASHandle]*BLASHandle{}
	n := abi.FamilyNamed(l.opts.Name).Numbers()
	last := abi.BLASHandle(0xb1a5)
	// call is a call about a handle, with a current device.
	call := func(name string, h abi.BLASHandle, f func(x *BLASHandle) abi.Status) (s abi.Status) {
		if status != nil {
			if s := status(name); s != abi.Done {
				return s
			}
		}
		x := handles[h]
		if x == nil || l.on(func(int) abi.Result { return abi.Success }) != abi.Success {
			return n.InvalidValue
		}
		return f(x)
	}
	many := func(h abi.BLASHandle, transA, transB, rows, columns, depth int32, alpha *byte, a uintptr, typeA, pitchA int32,
		nextA int64, b uintptr, typeB, pitchB int32, nextB int64, beta *byte, c uintptr, typeC, pitchC int32, nextC int64,
		count, compute, algorithm int32) abi.Status {
		return call("Multiply", h, func(x *BLASHandle) abi.Status {
			t, ok := blasTypes[typeA]
			want := n.In32
			if t == dtype.Float64 || t == dtype.Complex128 {
				want = n.In64
			}
			trans := func(op int32) bool { return op == n.Transposed }
			for _, op := range []int32{transA, transB} {
				ok = ok && (op == n.Transposed || op == n.Straight)
			}
			if !ok || typeB != typeA || typeC != typeA || compute != want || algorithm != n.Default || min(rows, columns, depth,
				count) < 1 || pitchC < rows {
				return n.InvalidValue
			}
			if at, err := l.driver.Attributes(driver.Ptr(x.At)); x.At != 0 && (err != nil || at.Type != driver.DeviceMemory) {
				return n.InvalidValue // it was freed
			}
			x.Products++
			x.Used = x.At
			p := blasProduct{t, int(rows), int(columns), int(depth), int(count), scalarAt(t, alpha), scalarAt(t, beta),
				[3]blasMatrix{{c, false, int(pitchC), int(nextC)}, {a, trans(transA), int(pitchA), int(nextA)},
					{b, trans(transB), int(pitchB), int(nextB)}}}
			if p.enqueue(l, x.Stream) != nil {
				return 14 // an internal error
			}
			return abi.Done
		})
	}
	triangular := func(t dtype.DType) abi.SolvingTriangular {
		return func(h abi.BLASHandle, side, uplo, op, diagonal, m, columns int32, alpha *byte, a uintptr, pitchA int32,
			b uintptr, pitchB int32) abi.Status {
			return call("Trsm", h, func(x *BLASHandle) abi.Status {
				order := m
				if side == n.Right {
					order = columns
				}
				if side != n.Left && side != n.Right || uplo != n.Lower && uplo != n.Upper ||
					op != n.Straight && op != n.Transposed && op != n.Conjugated || diagonal != n.General && diagonal != n.Unit ||
					min(m, columns) < 1 || pitchA < order || pitchB < m || scalarAt(t, alpha) != 1 {
					return n.InvalidValue
				}
				x.Triangular++
				step := solverStep{name: "trsm", of: []solverMatrix{{a, int(order), int(order), pitchA, t},
					{b, int(m), int(columns), pitchB, t}}, typ: t, readOnly: 1, run: func(m [][][]complex128) int {
					trsm(m[0], m[1], side == n.Right, uplo == n.Upper, op != n.Straight, op == n.Conjugated,
						diagonal == n.Unit)
					return 0
				}}
				spans, ok := step.spans(l)
				if !ok || l.driver.Launch(driver.StreamHandle(x.Stream), "trsm", spans, step.compute) != nil {
					return n.InvalidValue
				}
				return abi.Done
			})
		}
	}
	return abi.BLAS{
		TrsmS: triangular(dtype.Float32), TrsmD: triangular(dtype.Float64), TrsmC: triangular(dtype.Complex64),
		TrsmZ: triangular(dtype.Complex128),
		Create: func(h *abi.BLASHandle) abi.Status {
			last++
			handles[last] = &BLASHandle{Atomics: map[string]int32{"hip": 1}[l.opts.Name]}
			s := call("Create", last, func(*BLASHandle) abi.Status { return abi.Done })
			if s != abi.Done {
				delete(handles, last)
			}
			*h = last
			return s
		},
		Destroy: func(h abi.BLASHandle) abi.Status {
			return call("Destroy", h, func(*BLASHandle) abi.Status { delete(handles, h); return abi.Done })
		},
		SetStream: func(h abi.BLASHandle, s abi.Stream) abi.Status {
			return call("SetStream", h, func(x *BLASHandle) abi.Status { x.Stream, x.Workspace, x.At = s, 0, 0; return abi.Done })
		},
		SetAtomics: func(h abi.BLASHandle, mode int32) abi.Status {
			return call("SetAtomics", h, func(x *BLASHandle) abi.Status { x.Atomics = mode; return abi.Done })
		},
		Workspace: func(h abi.BLASHandle, p uintptr, bytes uint64) abi.Status {
			return call("Workspace", h, func(x *BLASHandle) abi.Status {
				at, err := l.driver.Attributes(driver.Ptr(p))
				if err != nil || at.Type != driver.DeviceMemory || at.Bytes < int(bytes) || p%256 != 0 {
					return n.InvalidValue
				}
				x.Workspace, x.At = int(bytes), p
				return abi.Done
			})
		},
		Text: func(s abi.Status) string { return "status " + map[bool]string{true: "refused"}[s == n.NotSupported] },
		Multiply: func(h abi.BLASHandle, transA, transB, m, n, k int32, alpha *byte, a uintptr, typeA, pitchA int32,
			b uintptr, typeB, pitchB int32, beta *byte, c uintptr, typeC, pitchC, compute, algorithm int32) abi.Status {
			return many(h, transA, transB, m, n, k, alpha, a, typeA, pitchA, 0, b, typeB, pitchB, 0, beta, c, typeC, pitchC, 0,
				1, compute, algorithm)
		},
		Many: many,
	}, handles
}

// blasProduct is a product of matrices: c, a, b.
type blasProduct struct {
	typ                         dtype.DType
	rows, columns, depth, count int
	alpha, beta                 complex128
	m                           [3]blasMatrix
}

// place is where an element is, in elements.
func (m *blasMatrix) place(batch, row, column int) int {
	if m.trans {
		row, column = column, row
	}
	return batch*m.next + column*m.pitch + row
}

func (p *blasProduct) enqueue(l *Library, s abi.Stream) error {
	var spans []driver.Span
	for i, size := range [3][2]int{{p.rows, p.columns}, {p.rows, p.depth}, {p.depth, p.columns}} {
		last := p.m[i].place(p.count-1, size[0]-1, size[1]-1)
		spans = append(spans, driver.Span{Ptr: driver.Ptr(p.m[i].at), Bytes: (last + 1) * p.typ.Size()})
	}
	return l.driver.Launch(driver.StreamHandle(s), "gemm", spans, func(views []unsafe.Pointer) error {
		at := func(i, place int) unsafe.Pointer { return unsafe.Add(views[i], place*p.typ.Size()) }
		for k := range p.count {
			for r := range p.rows {
				for c := range p.columns {
					sum := complex128(0)
					for d := range p.depth {
						sum += Number(p.typ, at(1, p.m[1].place(k, r, d))) * Number(p.typ, at(2, p.m[2].place(k, d, c)))
					}
					sum *= p.alpha
					to := at(0, p.m[0].place(k, r, c))
					if p.beta != 0 {
						sum += p.beta * Number(p.typ, to)
					}
					save(p.typ, to, sum)
				}
			}
		}
		return nil
	})
}

// scalarAt is a number of the host, of the type that products of a type are computed in.
func scalarAt(t dtype.DType, p *byte) complex128 {
	if t == dtype.Float16 || t == dtype.BFloat16 {
		t = dtype.Float32
	}
	return Number(t, unsafe.Pointer(p))
}

// Number is an element of a type that the libraries multiply.
func Number(t dtype.DType, p unsafe.Pointer) complex128 {
	switch t {
	case dtype.Float16:
		return complex((*(*dtype.F16)(p)).Float64(), 0)
	case dtype.BFloat16:
		return complex((*(*dtype.BF16)(p)).Float64(), 0)
	case dtype.Float32:
		return complex(float64(*(*float32)(p)), 0)
	case dtype.Float64:
		return complex(*(*float64)(p), 0)
	case dtype.Complex64:
		return complex128(*(*complex64)(p))
	}
	return *(*complex128)(p)
}

func save(t dtype.DType, p unsafe.Pointer, z complex128) {
	switch t {
	case dtype.Float16:
		*(*dtype.F16)(p) = dtype.F16FromFloat64(real(z))
	case dtype.BFloat16:
		*(*dtype.BF16)(p) = dtype.BF16FromFloat64(real(z))
	case dtype.Float32:
		*(*float32)(p) = float32(real(z))
	case dtype.Float64:
		*(*float64)(p) = real(z)
	case dtype.Complex64:
		*(*complex64)(p) = complex64(z)
	default:
		*(*complex128)(p) = z
	}
}
