//go:build linux && (amd64 || arm64)

package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/cmplx"
	"strings"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/device/gpu/gputest"
	"github.com/chorus-comms/chorus/dtype"
)

// openSolver makes a GPU whose library has one of linear algebra, and a stream of it.
func openSolver(t *testing.T, name string, status func(call string) abi.SolverStatus) (*gpu.Driver, *device.Stream,
	map[abi.SolverHandle]*gputest.SolverHandle) {
	t.Helper()
	sim, lib := supply(t, name)
	table, handles := sim.Solver(status)
	products, others := sim.BLAS(nil)
	if err := errors.Join(lib.SupplySolver("stand-in", table), lib.SupplyBLAS("stand-in", products)); err != nil {
		t.Fatal(err)
	}
	d, s := openStream(t, name, sim, lib, func() int { return len(handles) + len(others) })
	return d, s, handles
}

// columns are matrices of the device, of which the test has a copy.
type columns struct {
	t           *testing.T
	s           *device.Stream
	typ         dtype.DType
	m, n, count int
	driver.ColumnMatrix
	host []byte
}

// newColumns makes count matrices with gaps, of the elements that f gives.
func newColumns(t *testing.T, s *device.Stream, typ dtype.DType, m, n, count int,
	f func(i, r, c int) complex128) *columns {
	t.Helper()
	x := &columns{t: t, s: s, typ: typ, m: m, n: n, count: count}
	x.Pitch = m + 1
	x.Next = x.Pitch*n + 2
	x.host = make([]byte, x.Next*count*typ.Size())
	x.each(func(i, r, c int, p unsafe.Pointer) {
		z := complex128(0)
		if f != nil {
			z = f(i, r, c)
		}
		switch typ {
		case dtype.Int32:
			*(*int32)(p) = int32(real(z))
		case dtype.Float32:
			*(*float32)(p) = float32(real(z))
		case dtype.Float64:
			*(*float64)(p) = real(z)
		case dtype.Complex64:
			*(*complex64)(p) = complex64(z)
		default:
			*(*complex128)(p) = z
		}
	})
	var err error
	if x.Ptr, err = s.Device().Alloc(len(x.host), s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Device().Dealloc(x.Ptr) })
	if err := s.Copy(x.Ptr, driver.Ptr(uintptr(unsafe.Pointer(&x.host[0]))), len(x.host)); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *columns) each(f func(i, r, c int, p unsafe.Pointer)) {
	for i := range x.count {
		for c := range x.n {
			for r := range x.m {
				f(i, r, c, unsafe.Pointer(&x.host[(i*x.Next+c*x.Pitch+r)*x.typ.Size()]))
			}
		}
	}
}

func (x *columns) series() driver.Series { return driver.Series{Ptr: x.Ptr, Next: x.Next} }

// read is what the device has now: of each matrix a function of row and column.
func (x *columns) read() (all []func(r, c int) complex128) {
	x.t.Helper()
	if err := errors.Join(x.s.Copy(driver.Ptr(uintptr(unsafe.Pointer(&x.host[0]))), x.Ptr, len(x.host)),
		x.s.Synchronize(context.Background())); err != nil {
		x.t.Fatal(err)
	}
	values := map[[3]int]complex128{}
	x.each(func(i, r, c int, p unsafe.Pointer) {
		if x.typ == dtype.Int32 {
			values[[3]int{i, r, c}] = complex(float64(*(*int32)(p)), 0)
		} else {
			values[[3]int{i, r, c}] = gputest.Number(x.typ, p)
		}
	})
	for i := range x.count {
		all = append(all, func(r, c int) complex128 { return values[[3]int{i, r, c}] })
	}
	return all
}

// near says where a sum of products isn't what it ought to be.
func near(what string, m, n, k int, a, b, want func(r, c int) complex128) error {
	for r := range m {
		for c := range n {
			sum := complex128(0)
			for i := range k {
				sum += a(r, i) * b(i, c)
			}
			if !(cmplx.Abs(sum-want(r, c)) < 1e-3*float64(1+k)) {
				return fmt.Errorf("%s: row %d, column %d: %v, want %v", what, r, c, sum, want(r, c))
			}
		}
	}
	return nil
}

func adjoint(f func(r, c int) complex128) func(r, c int) complex128 {
	return func(r, c int) complex128 { return cmplx.Conj(f(c, r)) }
}

// element is one of a matrix that has an inverse, and definite is one of a Hermitian matrix with positive eigenvalues.
func element(t dtype.DType, i, r, c int) complex128 {
	z := number(i + 3*r + 5*c + r*c)
	if r == c {
		z += 13
	}
	if !t.IsComplex() {
		z = complex(real(z), 0)
	}
	return z
}

func definite(t dtype.DType, n, i, r, c int) complex128 {
	z := element(t, i, min(r, c), max(r, c)+n)
	switch {
	case r == c:
		return complex(20*float64(n), 0)
	case r > c:
		return cmplx.Conj(z)
	}
	return z
}

// Steps satisfy what they are defined by: of each type, in matrices with gaps, and several at once.
func TestSolve(t *testing.T) {
	for _, name := range []string{"cuda", "hip"} {
		_, s, handles := openSolver(t, name, nil)
		l, err := s.Device().SolverLibrary()
		if err != nil || !strings.HasSuffix(l.Name, "SOLVER (stand-in)") || len(l.Types) != 4 {
			t.Fatal(l, err)
		}
		for _, typ := range l.Types {
			for _, size := range [][2]int{{1, 1}, {3, 3}, {5, 5}, {5, 3}, {3, 5}} {
				for _, upper := range []bool{false, true} {
					if err := factors(t, s, typ, size[0], size[1], upper); err != nil {
						t.Fatalf("%s: %v, %v, upper %t: %v", name, typ, size, upper, err)
					}
				}
			}
		}
		for _, h := range handles {
			for _, step := range []string{"potrf", "potrs", "getrf", "getrs", "geqrf", "orgqr", "ormqr", "syevd", "gesvd"} {
				if h.Steps[step] == 0 {
					t.Errorf("%s: no %s", name, step)
				}
			}
		}
	}
}

// factors takes matrices apart and puts them together.
func factors(t *testing.T, s *device.Stream, typ dtype.DType, m, n int, upper bool) error {
	t.Helper()
	const count = 2
	k := min(m, n)
	general := func(i, r, c int) complex128 { return element(typ, i, r, c) }
	hermitian := func(i, r, c int) complex128 { return definite(typ, n, i, r, c) }
	of := func(f func(i, r, c int) complex128, i int) func(r, c int) complex128 {
		return func(r, c int) complex128 { return f(i, r, c) }
	}
	var errs []error
	solve := func(x driver.Solve) {
		t.Helper()
		x.Type, x.Count, x.Upper = typ, count, upper
		if err := s.Solve(&x); err != nil {
			errs = append(errs, fmt.Errorf("%v: %w", x.Kind, err))
		}
	}
	info := func() driver.Ptr { return newColumns(t, s, dtype.Int32, 1, count, 1, nil).Ptr }
	right := func(i, r, c int) complex128 { return element(typ, i+7, r, c) }
	if m == n {
		a, b := newColumns(t, s, typ, n, n, count, hermitian), newColumns(t, s, typ, n, 2, count, right)
		solve(driver.Solve{Kind: driver.Cholesky, Rows: n, Columns: n, A: a.ColumnMatrix, Info: info()})
		solve(driver.Solve{Kind: driver.CholeskySolve, Rows: n, Columns: n, Others: 2, A: a.ColumnMatrix,
			B: b.ColumnMatrix})
		e := newColumns(t, s, typ, n, n, count, hermitian)
		w := newColumns(t, s, driver.RealOf(typ), n, 1, count, nil)
		solve(driver.Solve{Kind: driver.Eigen, Rows: n, Columns: n, A: e.ColumnMatrix, Values: w.series(), Vectors: true,
			Info: info()})
		for i, f := range a.read() {
			low := func(r, c int) complex128 {
				switch {
				case c > r:
					return 0
				case upper:
					return cmplx.Conj(f(c, r))
				}
				return f(r, c)
			}
			errs = append(errs, near("potrf", n, n, n, low, adjoint(low), of(hermitian, i)),
				near("potrs", n, 2, n, of(hermitian, i), b.read()[i], of(right, i)))
			v := e.read()[i]
			scaled := func(r, c int) complex128 { return v(r, c) * w.read()[i](c, 0) }
			errs = append(errs, near("syevd", n, n, n, scaled, adjoint(v), of(hermitian, i)))
		}
		for form := range 12 { // of systems with a triangle
			errs = append(errs, triangle(t, s, typ, n, upper, driver.MatrixOp(form%3), form/3%2 > 0, form/6 > 0))
		}
		for op := driver.AsIs; op <= driver.ConjugateTranspose; op++ {
			a, b := newColumns(t, s, typ, n, n, count, general), newColumns(t, s, typ, n, 2, count, right)
			p := newColumns(t, s, dtype.Int32, n, 1, count, nil)
			solve(driver.Solve{Kind: driver.LU, Rows: n, Columns: n, A: a.ColumnMatrix, Pivots: p.series(), Info: info()})
			solve(driver.Solve{Kind: driver.LUSolve, Rows: n, Columns: n, Others: 2, A: a.ColumnMatrix, Pivots: p.series(),
				B: b.ColumnMatrix, Op: op})
			for i, x := range b.read() {
				read := of(general, i)
				if op != driver.AsIs {
					read = func(r, c int) complex128 { return general(i, c, r) }
				}
				if op == driver.ConjugateTranspose {
					read = adjoint(of(general, i))
				}
				errs = append(errs, near("getrs", n, 2, n, read, x, of(right, i)))
			}
		}
	}
	a, tau := newColumns(t, s, typ, m, n, count, general), newColumns(t, s, typ, k, 1, count, nil)
	solve(driver.Solve{Kind: driver.QR, Rows: m, Columns: n, A: a.ColumnMatrix, Factors: tau.series()})
	r := a.read()
	errs = append(errs, reflected(t, s, a, tau))
	solve(driver.Solve{Kind: driver.QRVectors, Rows: m, Columns: k, Others: k, A: a.ColumnMatrix, Factors: tau.series()})
	for i, q := range a.read() {
		triangle := func(row, c int) complex128 {
			if row > c {
				return 0
			}
			return r[i](row, c)
		}
		errs = append(errs, near("geqrf and orgqr", m, n, k, q, triangle, of(general, i)))
	}
	for _, all := range []bool{false, true} {
		if m < n {
			break
		}
		a, w := newColumns(t, s, typ, m, n, count, general), newColumns(t, s, driver.RealOf(typ), k, 1, count, nil)
		width := k
		if all {
			width = m
		}
		u, v := newColumns(t, s, typ, m, width, count, nil), newColumns(t, s, typ, n, n, count, nil)
		solve(driver.Solve{Kind: driver.SVD, Rows: m, Columns: n, A: a.ColumnMatrix, Values: w.series(), U: u.ColumnMatrix,
			V: v.ColumnMatrix, Vectors: true, All: all, Info: info()})
		for i, u := range u.read() {
			scaled := func(r, c int) complex128 { return u(r, c) * w.read()[i](c, 0) }
			errs = append(errs, near("gesvd", m, n, k, scaled, v.read()[i], of(general, i)),
				near("U", width, width, m, adjoint(u), u, func(r, c int) complex128 {
					return map[bool]complex128{true: 1}[r == c]
				}))
		}
	}
	return errors.Join(errs...)
}

// reflected multiplies by Q, and by its inverse on the same side, which gives what was there. Q's first columns are
// those that orgqr makes.
func reflected(t *testing.T, s *device.Stream, a, tau *columns) error {
	t.Helper()
	const others = 2
	side := func(i, r, c int) complex128 { return element(a.typ, i+7, r, c) }
	ones := func(i, r, c int) complex128 { return map[bool]complex128{true: 1}[r == c] }
	inverse := driver.Transpose
	if a.typ.IsComplex() {
		inverse = driver.ConjugateTranspose
	}
	x := driver.Solve{Kind: driver.QRProduct, Type: a.typ, Rows: a.m, Columns: min(a.m, a.n), Count: a.count,
		A: a.ColumnMatrix, Factors: tau.series()}
	var errs []error
	for _, right := range []bool{false, true} {
		m, n := a.m, others
		if right {
			m, n = others, a.m
		}
		b, q := newColumns(t, s, a.typ, m, n, a.count, side), newColumns(t, s, a.typ, a.m, a.m, a.count, ones)
		run := func(to *columns, others int, op driver.MatrixOp) {
			x.B, x.Others, x.Op, x.Right = to.ColumnMatrix, others, op, right
			errs = append(errs, s.Solve(&x))
		}
		run(q, a.m, driver.AsIs)
		run(b, others, driver.AsIs)
		product := b.read()
		run(b, others, inverse)
		for i, back := range b.read() {
			want, q := func(r, c int) complex128 { return side(i, r, c) }, q.read()[i]
			unit := func(r, c int) complex128 { return ones(i, r, c) }
			errs = append(errs, near("ormqr and back", m, n, n, back, unit, want),
				near("Q", a.m, a.m, a.m, adjoint(q), q, unit))
			if right {
				errs = append(errs, near("ormqr, right", m, n, n, want, q, product[i]))
			} else {
				errs = append(errs, near("ormqr", m, n, m, q, want, product[i]))
			}
		}
	}
	return errors.Join(errs...)
}

// triangle solves a system by a triangle of a matrix.
func triangle(t *testing.T, s *device.Stream, typ dtype.DType, n int, upper bool, op driver.MatrixOp, right,
	unit bool) error {
	t.Helper()
	const count, others = 2, 3
	m, columns := n, others
	if right {
		m, columns = others, n
	}
	general := func(i, r, c int) complex128 { return element(typ, i, r, c) }
	side := func(i, r, c int) complex128 { return element(typ, i+7, r, c) }
	a, b := newColumns(t, s, typ, n, n, count, general), newColumns(t, s, typ, m, columns, count, side)
	if err := s.Solve(&driver.Solve{Kind: driver.Triangular, Type: typ, Rows: n, Columns: n, Others: others, Count: count,
		A: a.ColumnMatrix, B: b.ColumnMatrix, Upper: upper, Op: op, Right: right, Unit: unit}); err != nil {
		return err
	}
	for i, x := range b.read() {
		low := func(r, c int) complex128 {
			if op != driver.AsIs {
				r, c = c, r
			}
			z := general(i, r, c)
			switch {
			case r == c && unit:
				z = 1
			case r != c && (r < c) != upper:
				z = 0
			}
			if op == driver.ConjugateTranspose {
				z = cmplx.Conj(z)
			}
			return z
		}
		want := func(r, c int) complex128 { return side(i, r, c) }
		what := fmt.Sprintf("trsm, op %d, right %t, unit %t", op, right, unit)
		var err error
		if right {
			err = near(what, others, n, n, x, low, want)
		} else {
			err = near(what, n, others, n, low, x, want)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// The number of what is wrong with a matrix is LAPACK's.
func TestSolveInfo(t *testing.T) {
	_, s, _ := openSolver(t, "cuda", nil)
	bad := func(i, r, c int) complex128 { // the second isn't definite, and singular in its last column
		return map[bool]complex128{true: complex(float64(1-i*r), 0)}[r == c]
	}
	for kind, want := range map[driver.SolveKind][2]float64{driver.Cholesky: {0, 2}, driver.LU: {0, 2}} {
		a, p := newColumns(t, s, dtype.Float64, 3, 3, 2, bad), newColumns(t, s, dtype.Int32, 3, 1, 2, nil)
		info := newColumns(t, s, dtype.Int32, 2, 1, 1, nil)
		if err := s.Solve(&driver.Solve{Kind: kind, Type: dtype.Float64, Rows: 3, Columns: 3, Count: 2, A: a.ColumnMatrix,
			Pivots: p.series(), Info: info.Ptr}); err != nil {
			t.Fatal(err)
		}
		got := info.read()[0]
		if real(got(0, 0)) != want[0] || real(got(1, 0)) != want[1] {
			t.Errorf("%v: info is %v and %v, want %v", kind, got(0, 0), got(1, 0), want)
		}
	}
}

// The error of a refused step has a kind by which a caller does without the library.
func TestSolveRefused(t *testing.T) {
	var next abi.SolverStatus
	var of string
	d, s, handles := openSolver(t, "cuda", func(call string) abi.SolverStatus {
		if call == of {
			return next
		}
		return abi.Solved
	})
	a := newColumns(t, s, dtype.Float32, 4, 4, 2,
		func(i, r, c int) complex128 { return definite(dtype.Float32, 4, i, r, c) })
	good := func() *driver.Solve {
		return &driver.Solve{Kind: driver.Cholesky, Type: dtype.Float32, Rows: 4, Columns: 4, Count: 2, A: a.ColumnMatrix}
	}
	refused := func(what string, kind error, change func(x *driver.Solve)) {
		t.Helper()
		x := good()
		change(x)
		if err := s.Solve(x); !errors.Is(err, kind) {
			t.Errorf("%s: %v, want %v", what, err, kind)
		}
	}
	refused("half precision", driver.ErrUnsupported, func(x *driver.Solve) { x.Type = dtype.Float16 })
	refused("no kind", driver.ErrInvalidArgument, func(x *driver.Solve) { x.Kind = -1 })
	refused("no elements", driver.ErrInvalidArgument, func(x *driver.Solve) { x.Rows, x.Columns = 0, 0 })
	refused("no square", driver.ErrInvalidArgument, func(x *driver.Solve) { x.Rows = 3 })
	refused("no right side", driver.ErrInvalidArgument, func(x *driver.Solve) { x.Kind = driver.CholeskySolve })
	refused("columns that overlap", driver.ErrInvalidArgument, func(x *driver.Solve) { x.A.Pitch = 3 })
	refused("matrices that overlap", driver.ErrInvalidArgument, func(x *driver.Solve) { x.A.Next = 4 })
	refused("the end of the memory", driver.ErrOutOfBounds, func(x *driver.Solve) { x.Count = 1 << 24 })
	refused("no pivots", driver.ErrInvalidPointer, func(x *driver.Solve) { x.Kind, x.Count = driver.LU, 1 })
	refused("more columns than rows", driver.ErrUnsupported, func(x *driver.Solve) {
		x.Kind, x.Rows, x.Count = driver.SVD, 3, 1
	})
	refused("an unknown operation", driver.ErrInvalidArgument, func(x *driver.Solve) { x.Op = 3 })
	n := abi.FamilyNamed("cuda").SolverNumbers()
	for result, kind := range map[abi.SolverStatus]error{n.NotSupported: driver.ErrUnsupported,
		n.InvalidValue: driver.ErrUnsupported, n.AllocFailed: driver.ErrOutOfMemory, n.Internal: driver.ErrInternal} {
		for _, of = range []string{"potrf_bufferSize", "potrf"} {
			next = result
			refused(of+": "+result.String(), kind, func(*driver.Solve) {})
		}
	}
	of = ""
	if err := d.CaptureBegin(s.Handle()); err != nil {
		t.Fatal(err)
	}
	refused("a capture", driver.ErrCapture, func(*driver.Solve) {})
	g, err := d.CaptureEnd(s.Handle())
	if err := errors.Join(err, d.GraphDestroy(g), s.Solve(good()), s.Synchronize(context.Background())); err != nil {
		t.Error(err)
	}
	if got := math.Sqrt(80); math.Abs(real(a.read()[0](0, 0))-got) > 1e-3 || len(handles) != 1 {
		t.Errorf("%v, want %v; %d handles", a.read()[0](0, 0), got, len(handles))
	}
}

// A library that can't be opened says where it was looked for; one that is named and is no such library, what it lacks.
func TestNoSolver(t *testing.T) {
	for library, want := range map[string]string{"none": "CHORUS_SOLVER_LIBRARY is none", "/nonesuch.so": "/nonesuch.so",
		"libc.so.6": "lacks cusolverDnCreate"} {
		t.Setenv("CHORUS_SOLVER_LIBRARY", library)
		d, _ := open(t, gputest.Options{Name: "cuda"})
		_, err := d.MathLibrary(0, driver.LinearAlgebra)
		if !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", library, err)
		}
	}
}
