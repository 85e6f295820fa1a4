//go:build linux

package gputest

import (
	"math"
	"math/cmplx"
	"slices"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/dtype"
)

// SolverHandle is what a handle of the library of linear algebra has been given.
type SolverHandle struct {
	Stream abi.Stream
	Steps  map[string]int // by LAPACK's names
}

// solverMatrix is memory of a step: a matrix with dense columns, or a vector in one column.
type solverMatrix struct {
	at            uintptr
	rows, columns int
	pitch         int32
	typ           dtype.DType
}

// Solver is a library of linear algebra, cuSOLVER or hipSOLVER, which computes in complex128. status, if not nil, is
// what a function returns instead of doing anything, unless it's [abi.Solved]. The map has the handles that aren't
// destroyed. Work spoils the memory for it, and the matrix that a step loses.
func (l *Library) Solver(status func(call string) abi.SolverStatus) (abi.Solver, map[abi.SolverHandle]*SolverHandle) {
	s := &solverLibrary{Library: l, status: status, handles: map[abi.SolverHandle]*SolverHandle{}, last: 0x501e,
		n: abi.FamilyNamed(l.opts.Name).SolverNumbers()}
	table := abi.Solver{
		Create: func(h *abi.SolverHandle) abi.SolverStatus {
			s.last++
			s.handles[s.last] = &SolverHandle{Steps: map[string]int{}}
			r := s.call("Create", s.last, func(*SolverHandle) abi.SolverStatus { return abi.Solved })
			if r != abi.Solved {
				delete(s.handles, s.last)
			}
			*h = s.last
			return r
		},
		Destroy: func(h abi.SolverHandle) abi.SolverStatus {
			return s.call("Destroy", h, func(*SolverHandle) abi.SolverStatus { delete(s.handles, h); return abi.Solved })
		},
		SetStream: func(h abi.SolverHandle, stream abi.Stream) abi.SolverStatus {
			return s.call("SetStream", h, func(x *SolverHandle) abi.SolverStatus { x.Stream = stream; return abi.Solved })
		},
	}
	for i, t := range []dtype.DType{dtype.Float32, dtype.Float64, dtype.Complex64, dtype.Complex128} {
		table.Of[i] = s.functions(t)
	}
	return table, s.handles
}

type solverLibrary struct {
	*Library
	status  func(call string) abi.SolverStatus
	handles map[abi.SolverHandle]*SolverHandle
	last    abi.SolverHandle
	n       abi.SolverNumbers
}

// call is a call about a handle, with a current device.
func (s *solverLibrary) call(name string, h abi.SolverHandle,
	f func(x *SolverHandle) abi.SolverStatus) abi.SolverStatus {
	if s.status != nil {
		if r := s.status(name); r != abi.Solved {
			return r
		}
	}
	x := s.handles[h]
	if x == nil || s.on(func(int) abi.Result { return abi.Success }) != abi.Success {
		return s.n.InvalidValue
	}
	return f(x)
}

// solverWork is how many elements of memory a step of so many rows and columns needs.
func solverWork(m, n int32) int32 { return 8 + 3*m + n }

// sizing is a function that says how much memory a step needs.
func (s *solverLibrary) sizing(name string, h abi.SolverHandle, m, n, pitch int32, work *int32) abi.SolverStatus {
	return s.call(name+"_bufferSize", h, func(*SolverHandle) abi.SolverStatus {
		if m < 1 || n < 1 || pitch < m {
			return s.n.InvalidValue
		}
		*work = solverWork(m, n)
		return abi.Solved
	})
}

// solverStep is a step as it's enqueued.
type solverStep struct {
	name     string
	of       []solverMatrix // whose first is A
	work     uintptr        // memory of so many elements; 0: the step has none
	size     int32
	typ      dtype.DType
	info     uintptr
	run      func(m [][][]complex128) (info int) // by matrix, column and row
	readOnly int                                 // bits of those in of that are read alone
}

// step checks a step's memory and enqueues it.
func (s *solverLibrary) step(h abi.SolverHandle, x solverStep) abi.SolverStatus {
	return s.call(x.name, h, func(handle *SolverHandle) abi.SolverStatus {
		spans, ok := x.spans(s.Library)
		if !ok {
			return s.n.InvalidValue
		}
		if x.size > 0 && x.size < solverWork(int32(x.of[0].rows), int32(x.of[0].columns)) {
			return s.n.InvalidValue
		}
		handle.Steps[x.name]++
		if s.driver.Launch(driver.StreamHandle(handle.Stream), x.name, spans, x.compute) != nil {
			return s.n.Internal
		}
		return abi.Solved
	})
}

// spans is a step's memory; false if it isn't the device's, or too little.
func (x solverStep) spans(l *Library) (spans []driver.Span, ok bool) {
	for _, m := range x.of {
		if m.rows < 1 || m.columns < 1 || int(m.pitch) < m.rows {
			return nil, false
		}
		bytes := ((m.columns-1)*int(m.pitch) + m.rows) * m.typ.Size()
		spans = append(spans, driver.Span{Ptr: driver.Ptr(m.at), Bytes: bytes})
	}
	if x.name != "trsm" {
		spans = append(spans, driver.Span{Ptr: driver.Ptr(x.info), Bytes: 4})
	}
	if x.size > 0 {
		spans = append(spans, driver.Span{Ptr: driver.Ptr(x.work), Bytes: int(x.size) * x.typ.Size()})
	}
	for _, m := range spans {
		at, err := l.driver.Attributes(m.Ptr)
		if err != nil || at.Type != driver.DeviceMemory || at.Bytes-int(m.Ptr-at.Base) < m.Bytes {
			return nil, false
		}
	}
	return spans, true
}

func (x solverStep) compute(views []unsafe.Pointer) error {
	var all [][][]complex128
	place := func(k, c, r int) unsafe.Pointer {
		return unsafe.Add(views[k], (c*int(x.of[k].pitch)+r)*x.of[k].typ.Size())
	}
	for k, m := range x.of {
		columns := make([][]complex128, m.columns)
		for c := range columns {
			for r := range m.rows {
				if m.typ == dtype.Int32 {
					columns[c] = append(columns[c], complex(float64(*(*int32)(place(k, c, r))), 0))
				} else {
					columns[c] = append(columns[c], Number(m.typ, place(k, c, r)))
				}
			}
		}
		all = append(all, columns)
	}
	if info := int32(x.run(all)); x.name != "trsm" {
		*(*int32)(views[len(x.of)]) = info
	}
	for k, m := range x.of {
		if x.readOnly&(1<<k) != 0 {
			continue
		}
		for c, column := range all[k] {
			for r, z := range column {
				if m.typ == dtype.Int32 {
					*(*int32)(place(k, c, r)) = int32(real(z))
				} else {
					save(m.typ, place(k, c, r), z)
				}
			}
		}
	}
	if x.size > 0 {
		for i := range int(x.size) {
			save(x.typ, unsafe.Add(views[len(views)-1], i*x.typ.Size()), complex(math.NaN(), math.NaN()))
		}
	}
	return nil
}

// functions are those for a type.
func (s *solverLibrary) functions(t dtype.DType) abi.SolverFunctions {
	matrix := func(at uintptr, rows, columns, pitch int32) solverMatrix {
		return solverMatrix{at, int(rows), int(columns), pitch, t}
	}
	vector := func(at uintptr, n int32, t dtype.DType) solverMatrix { return solverMatrix{at, int(n), 1, n, t} }
	triangle := func(uplo int32) bool { return uplo == s.n.Lower || uplo == s.n.Upper }
	return abi.SolverFunctions{
		PotrfWork: func(h abi.SolverHandle, uplo, n int32, a uintptr, pitch int32, work *int32) abi.SolverStatus {
			return s.sizing("potrf", h, n, n, pitch, work)
		},
		Potrf: func(h abi.SolverHandle, uplo, n int32, a uintptr, pitch int32, work uintptr, size int32,
			info uintptr) abi.SolverStatus {
			if !triangle(uplo) {
				return s.n.InvalidValue
			}
			return s.step(h, solverStep{name: "potrf", of: []solverMatrix{matrix(a, n, n, pitch)}, work: work,
				size: max(size, 1), typ: t, info: info,
				run: func(m [][][]complex128) int { return potrf(m[0], uplo == s.n.Upper) }})
		},
		Potrs: func(h abi.SolverHandle, uplo, n, columns int32, a uintptr, pitch int32, b uintptr, pitchB int32,
			info uintptr) abi.SolverStatus {
			if !triangle(uplo) {
				return s.n.InvalidValue
			}
			return s.step(h, solverStep{name: "potrs", typ: t, info: info, readOnly: 1,
				of:  []solverMatrix{matrix(a, n, n, pitch), matrix(b, n, columns, pitchB)},
				run: func(m [][][]complex128) int { return potrs(m[0], m[1], uplo == s.n.Upper) }})
		},
		GetrfWork: func(h abi.SolverHandle, m, n int32, a uintptr, pitch int32, work *int32) abi.SolverStatus {
			return s.sizing("getrf", h, m, n, pitch, work)
		},
		Getrf: func(h abi.SolverHandle, m, n int32, a uintptr, pitch int32, work, pivots,
			info uintptr) abi.SolverStatus {
			return s.step(h, solverStep{name: "getrf", work: work, size: solverWork(m, n), typ: t, info: info,
				of:  []solverMatrix{matrix(a, m, n, pitch), vector(pivots, min(m, n), dtype.Int32)},
				run: func(m [][][]complex128) int { return getrf(m[0], m[1][0]) }})
		},
		Getrs: func(h abi.SolverHandle, op, n, columns int32, a uintptr, pitch int32, pivots, b uintptr, pitchB int32,
			info uintptr) abi.SolverStatus {
			if op != s.n.Straight && op != s.n.Transposed && op != s.n.Conjugated {
				return s.n.InvalidValue
			}
			return s.step(h, solverStep{name: "getrs", typ: t, info: info, readOnly: 5,
				of: []solverMatrix{matrix(a, n, n, pitch), matrix(b, n, columns, pitchB), vector(pivots, n, dtype.Int32)},
				run: func(m [][][]complex128) int {
					getrs(m[0], m[2][0], m[1], op != s.n.Straight, op == s.n.Conjugated)
					return 0
				}})
		},
		GeqrfWork: func(h abi.SolverHandle, m, n int32, a uintptr, pitch int32, work *int32) abi.SolverStatus {
			return s.sizing("geqrf", h, m, n, pitch, work)
		},
		Geqrf: func(h abi.SolverHandle, m, n int32, a uintptr, pitch int32, tau, work uintptr, size int32,
			info uintptr) abi.SolverStatus {
			return s.step(h, solverStep{name: "geqrf", work: work, size: max(size, 1), typ: t, info: info,
				of:  []solverMatrix{matrix(a, m, n, pitch), vector(tau, min(m, n), t)},
				run: func(m [][][]complex128) int { geqrf(m[0], m[1][0]); return 0 }})
		},
		OrgqrWork: func(h abi.SolverHandle, m, n, k int32, a uintptr, pitch int32, tau uintptr,
			work *int32) abi.SolverStatus {
			return s.sizing("orgqr", h, m, n, pitch, work)
		},
		Orgqr: func(h abi.SolverHandle, m, n, k int32, a uintptr, pitch int32, tau, work uintptr, size int32,
			info uintptr) abi.SolverStatus {
			if n > m || k > n {
				return s.n.InvalidValue
			}
			return s.step(h, solverStep{name: "orgqr", work: work, size: max(size, 1), typ: t, info: info, readOnly: 2,
				of:  []solverMatrix{matrix(a, m, n, pitch), vector(tau, k, t)},
				run: func(m [][][]complex128) int { orgqr(m[0], m[1][0]); return 0 }})
		},
		OrmqrWork: func(h abi.SolverHandle, side, op, m, n, k int32, a uintptr, pitch int32, tau, c uintptr, pitchC int32,
			work *int32) abi.SolverStatus {
			if side == s.n.Right {
				m = n
			}
			return s.sizing("ormqr", h, m, k, pitch, work)
		},
		Ormqr: func(h abi.SolverHandle, side, op, m, n, k int32, a uintptr, pitch int32, tau, c uintptr, pitchC int32,
			work uintptr, size int32, info uintptr) abi.SolverStatus {
			order := m
			if side == s.n.Right {
				order = n
			}
			adjoint := s.n.Transposed
			if t.IsComplex() {
				adjoint = s.n.Conjugated
			}
			if side != s.n.Left && side != s.n.Right || op != s.n.Straight && op != adjoint || k > order {
				return s.n.InvalidValue
			}
			return s.step(h, solverStep{name: "ormqr", work: work, size: max(size, 1), typ: t, info: info, readOnly: 3,
				of: []solverMatrix{matrix(a, order, k, pitch), vector(tau, k, t), matrix(c, m, n, pitchC)},
				run: func(m [][][]complex128) int {
					ormqr(m[0], m[1][0], m[2], side == s.n.Right, op == adjoint)
					return 0
				}})
		},
		SyevdWork: func(h abi.SolverHandle, vectors, uplo, n int32, a uintptr, pitch int32, values uintptr,
			work *int32) abi.SolverStatus {
			return s.sizing("syevd", h, n, n, pitch, work)
		},
		Syevd: func(h abi.SolverHandle, vectors, uplo, n int32, a uintptr, pitch int32, values, work uintptr, size int32,
			info uintptr) abi.SolverStatus {
			if !triangle(uplo) || vectors != s.n.Vectors && vectors != s.n.NoVectors {
				return s.n.InvalidValue
			}
			return s.step(h, solverStep{name: "syevd", work: work, size: max(size, 1), typ: t, info: info,
				of:  []solverMatrix{matrix(a, n, n, pitch), vector(values, n, driver.RealOf(t))},
				run: func(m [][][]complex128) int { syevd(m[0], m[1][0], uplo == s.n.Upper); return 0 }})
		},
		GesvdWork: func(h abi.SolverHandle, m, n int32, work *int32) abi.SolverStatus {
			return s.sizing("gesvd", h, m, n, m, work)
		},
		Gesvd: func(h abi.SolverHandle, jobU, jobV int8, m, n int32, a uintptr, pitch int32, values, u uintptr,
			pitchU int32, v uintptr, pitchV int32, work uintptr, size int32, rwork, info uintptr) abi.SolverStatus {
			columns, ok := map[int8]int32{'N': 0, 'S': n, 'A': m}[jobU]
			if !ok || jobV != jobU || m < n || pitchU < m || pitchV < n {
				return s.n.InvalidValue
			}
			of := []solverMatrix{matrix(a, m, n, pitch), vector(values, n, driver.RealOf(t))}
			if columns > 0 {
				of = append(of, matrix(u, m, columns, pitchU), matrix(v, n, n, pitchV))
			}
			return s.step(h, solverStep{name: "gesvd", work: work, size: max(size, 1), typ: t, info: info, of: of,
				run: func(m [][][]complex128) int { return gesvd(m) }})
		},
	}
}

// ---- LAPACK's steps, by column and row ----

// potrf leaves the other triangle as it is.
func potrf(a [][]complex128, upper bool) int {
	at := func(r, c int) *complex128 { // of the lower triangle, or of its conjugate
		if upper {
			return &a[r][c]
		}
		return &a[c][r]
	}
	for c := range a {
		sum := real(*at(c, c))
		for k := range c {
			sum -= real(*at(c, k) * cmplx.Conj(*at(c, k)))
		}
		if !(sum > 0) {
			return c + 1
		}
		pivot := math.Sqrt(sum)
		*at(c, c) = complex(pivot, 0)
		for r := c + 1; r < len(a); r++ {
			z := *at(r, c)
			for k := range c {
				z -= *at(r, k) * cmplx.Conj(*at(c, k))
			}
			*at(r, c) = z / complex(pivot, 0)
		}
	}
	return 0
}

// potrs solves by a factor.
func potrs(a, b [][]complex128, upper bool) int {
	n := len(a)
	low := func(r, c int) complex128 {
		if upper {
			return cmplx.Conj(a[r][c])
		}
		return a[c][r]
	}
	for _, x := range b {
		for r := range n {
			for k := range r {
				x[r] -= low(r, k) * x[k]
			}
			x[r] /= low(r, r)
		}
		for r := n - 1; r >= 0; r-- {
			for k := r + 1; k < n; k++ {
				x[r] -= cmplx.Conj(low(k, r)) * x[k]
			}
			x[r] /= cmplx.Conj(low(r, r))
		}
	}
	return 0
}

// trsm solves by a triangle, by substitution.
func trsm(a, b [][]complex128, right, upper, transposed, conjugated, ones bool) {
	n := len(a)
	at := func(r, c int) complex128 { // of what B is multiplied with the inverse of, from the left
		if right != transposed {
			r, c = c, r
		}
		switch {
		case r == c && ones:
			return 1
		case r != c && (r < c) != upper:
			return 0
		case conjugated:
			return cmplx.Conj(a[c][r])
		}
		return a[c][r]
	}
	lines := b
	if right {
		lines = make([][]complex128, len(b[0]))
		for r := range lines {
			for c := range b {
				lines[r] = append(lines[r], b[c][r])
			}
		}
	}
	for _, x := range lines {
		for i := range n {
			k := i
			if (right != transposed) != upper { // from the last on
				k = n - 1 - i
			}
			for j := range n {
				if j != k {
					x[k] -= at(k, j) * x[j]
				}
			}
			x[k] /= at(k, k)
		}
	}
	if right {
		for r := range lines {
			for c := range b {
				b[c][r] = lines[r][c]
			}
		}
	}
}

func getrf(a [][]complex128, pivots []complex128) (info int) {
	m := len(a[0])
	for k := range pivots {
		best := k
		for r := k + 1; r < m; r++ {
			if size(a[k][r]) > size(a[k][best]) {
				best = r
			}
		}
		pivots[k] = complex(float64(best+1), 0)
		if a[k][best] == 0 {
			if info == 0 {
				info = k + 1
			}
			continue
		}
		for _, column := range a {
			column[k], column[best] = column[best], column[k]
		}
		for r := k + 1; r < m; r++ {
			a[k][r] /= a[k][k]
			for c := k + 1; c < len(a); c++ {
				a[c][r] -= a[k][r] * a[c][k]
			}
		}
	}
	return info
}

// size is what LAPACK compares pivots by.
func size(z complex128) float64 { return math.Abs(real(z)) + math.Abs(imag(z)) }

func getrs(a [][]complex128, pivots []complex128, b [][]complex128, transposed, conjugated bool) {
	n := len(a)
	at := func(r, c int) complex128 {
		if conjugated {
			return cmplx.Conj(a[c][r])
		}
		return a[c][r]
	}
	for _, x := range b {
		if !transposed {
			for k, p := range pivots {
				x[k], x[int(real(p))-1] = x[int(real(p))-1], x[k]
			}
			for r := range n {
				for k := range r {
					x[r] -= at(r, k) * x[k]
				}
			}
			for r := n - 1; r >= 0; r-- {
				for k := r + 1; k < n; k++ {
					x[r] -= at(r, k) * x[k]
				}
				x[r] /= at(r, r)
			}
			continue
		}
		for r := range n {
			for k := range r {
				x[r] -= at(k, r) * x[k]
			}
			x[r] /= at(r, r)
		}
		for r := n - 1; r >= 0; r-- {
			for k := r + 1; k < n; k++ {
				x[r] -= at(k, r) * x[k]
			}
		}
		for k, p := range slices.Backward(pivots) {
			x[k], x[int(real(p))-1] = x[int(real(p))-1], x[k]
		}
	}
}

// geqrf makes reflectors as LAPACK does: 1 - factor * v * v^H, whose v begins with 1.
func geqrf(a [][]complex128, factors []complex128) {
	for k := range factors {
		column := a[k][k:]
		rest := 0.0
		for _, z := range column[1:] {
			rest += real(z * cmplx.Conj(z))
		}
		alpha := column[0]
		if rest == 0 && imag(alpha) == 0 {
			factors[k] = 0
			continue
		}
		beta := -math.Copysign(math.Sqrt(rest+real(alpha*cmplx.Conj(alpha))), real(alpha))
		factors[k] = (complex(beta, 0) - alpha) / complex(beta, 0)
		for i := range column[1:] {
			column[1+i] /= alpha - complex(beta, 0)
		}
		column[0] = complex(beta, 0)
		for _, other := range a[k+1:] {
			mirror(column, cmplx.Conj(factors[k]), other[k:])
		}
	}
}

// mirror applies a reflector to a vector.
func mirror(v []complex128, factor complex128, x []complex128) {
	sum := x[0]
	for i := 1; i < len(v); i++ {
		sum += cmplx.Conj(v[i]) * x[i]
	}
	x[0] -= factor * sum
	for i := 1; i < len(v); i++ {
		x[i] -= factor * sum * v[i]
	}
}

func orgqr(a [][]complex128, factors []complex128) {
	var v [][]complex128
	for k := range factors {
		v = append(v, slices.Clone(a[k]))
	}
	for c, column := range a {
		clear(column)
		column[c] = 1
		for k := len(factors) - 1; k >= 0; k-- {
			mirror(v[k][k:], factors[k], column[k:])
		}
	}
}

// ormqr multiplies by the product of reflectors, or by its inverse.
func ormqr(a [][]complex128, factors []complex128, b [][]complex128, right, adjoint bool) {
	lines := b
	if right { // conjugated rows, and the other product
		adjoint = !adjoint
		lines = make([][]complex128, len(b[0]))
		for r := range lines {
			for c := range b {
				lines[r] = append(lines[r], cmplx.Conj(b[c][r]))
			}
		}
	}
	for _, x := range lines {
		for i := range factors {
			k, factor := len(factors)-1-i, factors[len(factors)-1-i]
			if adjoint {
				k, factor = i, cmplx.Conj(factors[i])
			}
			mirror(a[k][k:], factor, x[k:])
		}
	}
	if right {
		for r := range lines {
			for c := range b {
				b[c][r] = cmplx.Conj(lines[r][c])
			}
		}
	}
}

// syevd finds eigenvalues and vectors by Jacobi's rotations.
func syevd(a [][]complex128, values []complex128, upper bool) {
	n := len(a)
	for c := range n {
		a[c][c] = complex(real(a[c][c]), 0)
		for r := c + 1; r < n; r++ {
			if upper {
				a[c][r] = cmplx.Conj(a[r][c])
			} else {
				a[r][c] = cmplx.Conj(a[c][r])
			}
		}
	}
	v := unit(n)
	for range 60 {
		off := 0.0
		for p := range n {
			for q := p + 1; q < n; q++ {
				z := a[q][p]
				if z == 0 {
					continue
				}
				off += cmplx.Abs(z)
				phase := z / complex(cmplx.Abs(z), 0)
				angle := 0.5 * math.Atan2(2*cmplx.Abs(z), real(a[q][q])-real(a[p][p]))
				c, s := complex(math.Cos(angle), 0), complex(math.Sin(angle), 0)
				rotate := func(x, y []complex128) { // columns
					for i := range x {
						x[i], y[i] = c*x[i]-s*cmplx.Conj(phase)*y[i], s*phase*x[i]+c*y[i]
					}
				}
				rotate(a[p], a[q])
				rotate(v[p], v[q])
				for i := range n { // and rows
					x, y := a[i][p], a[i][q]
					a[i][p], a[i][q] = c*x-s*phase*y, s*cmplx.Conj(phase)*x+c*y
				}
			}
		}
		if off < 1e-300 {
			break
		}
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return compare(real(a[i][i]), real(a[j][j])) })
	for i, k := range order {
		values[i] = a[k][k]
	}
	for i, k := range order {
		a[i] = v[k]
	}
}

func compare(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// unit is the unit matrix.
func unit(n int) [][]complex128 {
	all := make([][]complex128, n)
	for i := range all {
		all[i] = make([]complex128, n)
		all[i][i] = 1
	}
	return all
}

// gesvd decomposes by one-sided rotations of Jacobi's. The matrices are A, the values and, if they are wanted, U and V.
// A is lost.
func gesvd(m [][][]complex128) int {
	a, values := m[0], m[1][0]
	rows, n := len(a[0]), len(a)
	v := unit(n)
	dot := func(x, y []complex128) (sum complex128) {
		for i := range x {
			sum += cmplx.Conj(x[i]) * y[i]
		}
		return sum
	}
	for range 60 {
		done := true
		for p := range n {
			for q := p + 1; q < n; q++ {
				z := dot(a[p], a[q])
				x, y := real(dot(a[p], a[p])), real(dot(a[q], a[q]))
				if !(cmplx.Abs(z) > 1e-17*math.Sqrt(x*y)) {
					continue
				}
				done = false
				phase := z / complex(cmplx.Abs(z), 0)
				angle := 0.5 * math.Atan2(2*cmplx.Abs(z), y-x)
				c, s := complex(math.Cos(angle), 0), complex(math.Sin(angle), 0)
				for _, both := range [][2][]complex128{{a[p], a[q]}, {v[p], v[q]}} {
					for i := range both[0] {
						l, r := both[0][i], both[1][i]
						both[0][i], both[1][i] = c*l-s*cmplx.Conj(phase)*r, s*phase*l+c*r
					}
				}
			}
		}
		if done {
			break
		}
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	length := func(x []complex128) float64 { return math.Sqrt(real(dot(x, x))) }
	slices.SortStableFunc(order, func(i, j int) int { return compare(length(a[j]), length(a[i])) })
	for i, k := range order {
		values[i] = complex(length(a[k]), 0)
	}
	if len(m) > 2 {
		u := m[2]
		for i := range u {
			clear(u[i])
			if i < n && real(values[i]) > 1e-13*real(values[0]) {
				for r := range rows {
					u[i][r] = a[order[i]][r] / values[i]
				}
				continue
			}
			complete(u[:i+1])
		}
		for c := range n {
			for r, k := range order {
				m[3][c][r] = cmplx.Conj(v[k][c])
			}
		}
	}
	for _, column := range a {
		for r := range column {
			column[r] = complex(math.NaN(), 0)
		}
	}
	return 0
}

// complete makes the last vector a unit vector that is orthogonal to the others.
func complete(u [][]complex128) {
	last := u[len(u)-1]
	for k := range last {
		clear(last)
		last[k] = 1
		for range 2 {
			for _, x := range u[:len(u)-1] {
				sum := complex128(0)
				for i := range x {
					sum += cmplx.Conj(x[i]) * last[i]
				}
				for i := range x {
					last[i] -= sum * x[i]
				}
			}
		}
		sum := 0.0
		for _, z := range last {
			sum += real(z * cmplx.Conj(z))
		}
		if sum > 1e-3 {
			for i := range last {
				last[i] /= complex(math.Sqrt(sum), 0)
			}
			return
		}
	}
}
