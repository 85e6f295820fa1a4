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

// solver factors matrices and solves linear systems: cuSOLVER or hipSOLVER.
type solver struct {
	companion[abi.Solver]
	numbers abi.SolverNumbers
}

func newSolverLibrary(f *abi.Family, places []string) *solver {
	x := &solver{numbers: f.SolverNumbers(), companion: companion[abi.Solver]{name: f.Solver,
		variable: "CHORUS_SOLVER_LIBRARY", files: func(c *config.Config) string { return c.SolverLibrary }, places: places}}
	x.rest = x.ofTypes
	return x
}

// ofTypes looks for the functions of each type.
func (x *solver) ofTypes(lib *dl.Library) error {
	for i := range x.table.Of {
		letter := abi.SolverTypes[i]
		named := lib.By(func(name string) (uintptr, bool) { return lib.Symbol(abi.SolverSymbol(name, letter)) },
			lib.Version())
		if _, err := named.Resolve(&x.table.Of[i]); err != nil {
			return fmt.Errorf("%w, X being %c", err, letter)
		}
	}
	return nil
}

// supply takes a table that the caller has filled instead, with the functions of each type.
func (x *solver) supply(place string, table abi.Solver) error {
	err := x.companion.supply(place, table)
	for i := range x.table.Of {
		if err == nil {
			_, err = dl.Supplied(x.name, "unknown", place, &x.table.Of[i])
		}
	}
	return err
}

// solverTypes are the types of elements, by the places of their functions in the table.
var solverTypes = [...]dtype.DType{dtype.Float32, dtype.Float64, dtype.Complex64, dtype.Complex128}

// solverInfo is the bytes before the library's part of a step's memory for work. They take LAPACK's number of a step
// without Info.
const solverInfo = 256

// solveWork is MathWork of a step.
func (d *Driver) solveWork(h driver.StreamHandle, x *driver.Solve) (bytes int, err error) {
	if x.Kind == driver.Triangular {
		return 0, nil
	}
	err = d.withSolver(h, x, func(s *stream, f *abi.SolverFunctions) error {
		size, err := s.b.solveSize(s.product.solver, f, x)
		bytes = solverInfo + int(size)*x.Type.Size()
		return err
	})
	return bytes, err
}

// solve is Compute of a step. The library does one matrix after the other.
func (d *Driver) solve(h driver.StreamHandle, x *driver.Solve, work driver.Ptr) error {
	const op = "solve"
	if x.Kind == driver.Triangular {
		return d.solveTriangular(h, x)
	}
	return d.withSolver(h, x, func(s *stream, f *abi.SolverFunctions) error {
		b := s.b
		size, err := b.solveSize(s.product.solver, f, x)
		if err != nil {
			return err
		}
		at, err := d.side(b, op, "memory for work", work, solverInfo+int(size)*x.Type.Size())
		if err == nil && (at.Type != driver.DeviceMemory || at.Device != b.Index) {
			err = driver.Errorf(driver.ErrWrongDevice, b.Name, op, "the memory for work isn't the device's")
		}
		if err != nil {
			return err
		}
		if s.broken() != nil {
			return b.Broken() // left out
		}
		m := d.before(s)
		for i := 0; i < x.Count && err == nil; i++ {
			err = b.solveOne(s.product.solver, f, x, i, work, size)
		}
		m.after(s, op, driver.Activity{Kind: driver.ActivityKernel, Name: b.family.Solver}, err)
		return err
	})
}

// withSolver calls f with a stream, which is locked and has a handle, and the functions for a step's type.
func (d *Driver) withSolver(h driver.StreamHandle, x *driver.Solve,
	f func(s *stream, f *abi.SolverFunctions) error) error {
	const op = "solve"
	s, err := d.stream(op, h)
	if err != nil {
		return err
	}
	defer s.Unlock()
	b := s.b
	if err := b.solver.open(); err != nil {
		return driver.Errorf(driver.ErrUnsupported, b.Name, op, "%w", err)
	}
	if x.Kind == driver.SVD && x.Rows < x.Columns {
		return driver.Errorf(driver.ErrUnsupported, b.Name, op, "%s decomposes no matrices of more columns than rows",
			b.family.Solver)
	}
	place, err := d.stepType(s, b.family.Solver, x)
	if err != nil {
		return err
	}
	if y := b.productOf(s); !y.solverBound {
		if err := b.bindSolver(op, s, y); err != nil {
			return err
		}
	}
	return f(s, &b.solver.table.Of[place])
}

// stepType checks a step of a library, and is the place of its type's functions.
func (d *Driver) stepType(s *stream, library string, x *driver.Solve) (int, error) {
	const op = "solve"
	b := s.b
	if s.capture != nil || s.foreign() {
		return 0, driver.Errorf(driver.ErrCapture, b.Name, op, "steps of %s aren't captured", library)
	}
	if err := x.Check(b.Name); err != nil {
		return 0, err
	}
	place := slices.Index(solverTypes[:], x.Type)
	if place < 0 {
		return 0, driver.Errorf(driver.ErrUnsupported, b.Name, op, "%s has no matrices of %v", library, x.Type)
	}
	for _, o := range x.Operands() {
		if err := d.touches(b, op, o.Name, o.Ptr, o.Bytes(x.Count)); err != nil {
			return 0, err
		}
		if max(o.Rows, o.Columns, o.Pitch) > math.MaxInt32 {
			return 0, driver.Errorf(driver.ErrUnsupported, b.Name, op, "%s has lines of more than 31 bits", o.Name)
		}
	}
	return place, nil
}

// solveTriangular has the library of products do a step, one matrix after the other.
func (d *Driver) solveTriangular(h driver.StreamHandle, x *driver.Solve) error {
	const op = "solve"
	s, err := d.stream(op, h)
	if err != nil {
		return err
	}
	defer s.Unlock()
	b := s.b
	if err := b.blas.open(); err != nil {
		return driver.Errorf(driver.ErrUnsupported, b.Name, op, "%w", err)
	}
	if err := b.blas.caps.Need("triangular systems"); err != nil {
		return driver.Errorf(driver.ErrUnsupported, b.Name, op, "%w", err)
	}
	place, err := d.stepType(s, b.family.BLAS, x)
	if err != nil {
		return err
	}
	if s.broken() != nil {
		return b.Broken() // left out
	}
	y := b.productOf(s)
	if !y.bound {
		if err := b.bind(op, s, y, &y.workspace); err != nil {
			return err
		}
	}
	n, t := b.blas.numbers, &b.blas.table
	side, uplo, diagonal, rows, columns := n.Left, n.Lower, n.General, int32(x.Rows), int32(x.Others)
	if x.Right {
		side, rows, columns = n.Right, columns, rows
	}
	if x.Upper {
		uplo = n.Upper
	}
	if x.Unit {
		diagonal = n.Unit
	}
	trsm := [...]abi.SolvingTriangular{t.TrsmS, t.TrsmD, t.TrsmC, t.TrsmZ}[place]
	one := scalar(x.Type, 1)
	var pin runtime.Pinner // the library reads it before it returns
	defer pin.Unpin()
	pin.Pin(&one[0])
	m := d.before(s)
	for i := 0; i < x.Count && err == nil; i++ {
		at := func(m driver.ColumnMatrix) uintptr { return uintptr(m.Ptr.Add(i * m.Next * x.Type.Size())) }
		err = b.blasCall(op, x.Kind.String(), func() abi.Status {
			return trsm(y.h, side, uplo, [...]int32{n.Straight, n.Transposed, n.Conjugated}[x.Op], diagonal, rows,
				columns, &one[0], at(x.A), int32(x.A.Pitch), at(x.B), int32(x.B.Pitch))
		})
	}
	m.after(s, op, driver.Activity{Kind: driver.ActivityKernel, Name: b.family.BLAS}, err)
	return err
}

// solveShape is what the library gets of a step: sizes and numbers.
type solveShape struct {
	m, n, k, pitch, uplo, op, vectors, side int32
	jobU, jobV                              int8
}

func (b *gpu) solveShape(x *driver.Solve) solveShape {
	n := b.solver.numbers
	s := solveShape{m: int32(x.Rows), n: int32(x.Columns), k: int32(x.Others), pitch: int32(x.A.Pitch), uplo: n.Lower,
		op: [...]int32{n.Straight, n.Transposed, n.Conjugated}[x.Op], vectors: n.NoVectors, side: n.Left, jobU: 'N',
		jobV: 'N'}
	if x.Kind == driver.QRProduct { // sizes are B's
		if s.n, s.k = s.k, s.n; x.Right {
			s.m, s.n, s.side = s.n, s.m, n.Right
		}
	}
	if x.Upper {
		s.uplo = n.Upper
	}
	if x.Vectors {
		s.vectors, s.jobU, s.jobV = n.Vectors, 'S', 'S'
		if x.All {
			s.jobU, s.jobV = 'A', 'A'
		}
	}
	return s
}

// solveSize is how many elements of memory the library needs for a step.
func (b *gpu) solveSize(h abi.SolverHandle, f *abi.SolverFunctions, x *driver.Solve) (int32, error) {
	s, a, size := b.solveShape(x), uintptr(x.A.Ptr), new(int32)
	var call func() abi.SolverStatus
	switch x.Kind {
	case driver.Cholesky:
		call = func() abi.SolverStatus { return f.PotrfWork(h, s.uplo, s.n, a, s.pitch, size) }
	case driver.LU:
		call = func() abi.SolverStatus { return f.GetrfWork(h, s.m, s.n, a, s.pitch, size) }
	case driver.QR:
		call = func() abi.SolverStatus { return f.GeqrfWork(h, s.m, s.n, a, s.pitch, size) }
	case driver.QRVectors:
		call = func() abi.SolverStatus {
			return f.OrgqrWork(h, s.m, s.n, s.k, a, s.pitch, uintptr(x.Factors.Ptr), size)
		}
	case driver.QRProduct:
		call = func() abi.SolverStatus {
			return f.OrmqrWork(h, s.side, s.op, s.m, s.n, s.k, a, s.pitch, uintptr(x.Factors.Ptr), uintptr(x.B.Ptr),
				int32(x.B.Pitch), size)
		}
	case driver.Eigen:
		call = func() abi.SolverStatus {
			return f.SyevdWork(h, s.vectors, s.uplo, s.n, a, s.pitch, uintptr(x.Values.Ptr), size)
		}
	case driver.SVD:
		call = func() abi.SolverStatus { return f.GesvdWork(h, s.m, s.n, size) }
	default:
		return 0, nil
	}
	err := b.solverCall("solve", x.Kind.String()+"_bufferSize", call)
	if err == nil && *size < 0 {
		err = driver.Errorf(driver.ErrUnsupported, b.Name, "solve", "%s wants %d elements for work", b.family.Solver, *size)
	}
	return *size, err
}

// solveOne enqueues a step on one matrix.
func (b *gpu) solveOne(h abi.SolverHandle, f *abi.SolverFunctions, x *driver.Solve, i int, memory driver.Ptr,
	size int32) error {
	s, work, info := b.solveShape(x), uintptr(memory.Add(solverInfo)), uintptr(memory)
	if x.Info != 0 {
		info = uintptr(x.Info.Add(4 * i))
	}
	matrix := func(m driver.ColumnMatrix) uintptr { return uintptr(m.Ptr.Add(i * m.Next * x.Type.Size())) }
	series := func(v driver.Series, t dtype.DType) uintptr { return uintptr(v.Ptr.Add(i * v.Next * t.Size())) }
	a, pitchB := matrix(x.A), int32(x.B.Pitch)
	var call func() abi.SolverStatus
	switch x.Kind {
	case driver.Cholesky:
		call = func() abi.SolverStatus { return f.Potrf(h, s.uplo, s.n, a, s.pitch, work, size, info) }
	case driver.CholeskySolve:
		call = func() abi.SolverStatus { return f.Potrs(h, s.uplo, s.n, s.k, a, s.pitch, matrix(x.B), pitchB, info) }
	case driver.LU:
		call = func() abi.SolverStatus {
			return f.Getrf(h, s.m, s.n, a, s.pitch, work, series(x.Pivots, dtype.Int32), info)
		}
	case driver.LUSolve:
		call = func() abi.SolverStatus {
			return f.Getrs(h, s.op, s.n, s.k, a, s.pitch, series(x.Pivots, dtype.Int32), matrix(x.B), pitchB, info)
		}
	case driver.QR:
		call = func() abi.SolverStatus {
			return f.Geqrf(h, s.m, s.n, a, s.pitch, series(x.Factors, x.Type), work, size, info)
		}
	case driver.QRVectors:
		call = func() abi.SolverStatus {
			return f.Orgqr(h, s.m, s.n, s.k, a, s.pitch, series(x.Factors, x.Type), work, size, info)
		}
	case driver.QRProduct:
		call = func() abi.SolverStatus {
			return f.Ormqr(h, s.side, s.op, s.m, s.n, s.k, a, s.pitch, series(x.Factors, x.Type), matrix(x.B), pitchB, work,
				size, info)
		}
	case driver.Eigen:
		values := series(x.Values, driver.RealOf(x.Type))
		call = func() abi.SolverStatus {
			return f.Syevd(h, s.vectors, s.uplo, s.n, a, s.pitch, values, work, size, info)
		}
	default:
		values, pitchU, pitchV := series(x.Values, driver.RealOf(x.Type)), s.m, s.n // of matrices that are left out
		var u, v uintptr
		if x.Vectors {
			u, v, pitchU, pitchV = matrix(x.U), matrix(x.V), int32(x.U.Pitch), int32(x.V.Pitch)
		}
		call = func() abi.SolverStatus {
			return f.Gesvd(h, s.jobU, s.jobV, s.m, s.n, a, s.pitch, values, u, pitchU, v, pitchV, work, size, 0, info)
		}
	}
	return b.solverCall("solve", x.Kind.String(), call)
}

// solverCall calls the library on a thread for which the GPU is the current device.
func (b *gpu) solverCall(op, call string, f func() abi.SolverStatus) error {
	var s abi.SolverStatus
	if err := b.call(op, call, func() abi.Result { s = f(); return abi.Success }); err != nil || s == abi.Solved {
		return err
	}
	kind := driver.ErrInternal
	switch n := b.solver.numbers; s {
	case n.NotSupported, n.InvalidValue, n.ArchMismatch, n.BadType:
		kind = driver.ErrUnsupported
	case n.AllocFailed:
		kind = driver.ErrOutOfMemory
	}
	return driver.Errorf(kind, b.Name, op, "%s (%s): %s: %s", b.family.Solver, b.solver.place, call, s)
}

// bindSolver makes the solver's handle of a stream's libraries the stream's.
func (b *gpu) bindSolver(op string, s *stream, y *product) error {
	t := &b.solver.table
	if y.solver == 0 {
		h := new(abi.SolverHandle) // in which a library that fails leaves a number
		if err := b.create(&b.products.solverOff, func() error {
			return b.solverCall(op, "Create", func() abi.SolverStatus { return t.Create(h) })
		}); err != nil {
			return err
		}
		y.solver = *h
	}
	err := b.solverCall(op, "SetStream", func() abi.SolverStatus { return t.SetStream(y.solver, s.h) })
	y.solverBound = err == nil
	return err
}
