package driver

import "github.com/chorus-comms/chorus/dtype"

// SolveKind is what a step does. The names are LAPACK's.
type SolveKind int

const (
	Cholesky      SolveKind = iota // potrf: A becomes its factor; the other triangle isn't touched
	CholeskySolve                  // potrs: B becomes the solution, from A's factor
	LU                             // getrf: A becomes L and U, with Pivots
	LUSolve                        // getrs: B becomes the solution of Op(A), from L and U
	QR                             // geqrf: A becomes R and reflectors, whose factors are Factors
	QRVectors                      // orgqr: A, Others reflectors, becomes the first columns of Q
	Eigen                          // syevd: of a Hermitian A, which becomes the vectors
	SVD                            // gesvd: of A, which has no fewer rows than columns, and is lost
	Triangular                     // trsm: B becomes the solution of Op(A), from the left, or the right
	QRProduct                      // ormqr: B becomes Op(Q) * B, or B * Op(Q), of A's reflectors, one in each column
)

var solveNames = [...]string{"potrf", "potrs", "getrf", "getrs", "geqrf", "orgqr", "syevd", "gesvd", "trsm", "ormqr"}

func (k SolveKind) String() string {
	if k < 0 || int(k) >= len(solveNames) {
		return "no step"
	}
	return solveNames[k]
}

// MatrixOp is what is done to a matrix that is read.
type MatrixOp int

const (
	AsIs MatrixOp = iota
	Transpose
	ConjugateTranspose
)

// Solve is a step of linear algebra on matrices of one type with dense columns, or on several of them at once.
type Solve struct {
	Kind          SolveKind
	Type          dtype.DType // of elements
	Rows, Columns int         // of A: 1 at least
	Others        int         // columns of B, its rows if A is on the right, or reflectors: 1 at least, if any
	Count         int         // of steps: 1 at least

	A, B   ColumnMatrix
	U, V   ColumnMatrix // of SVD, V conjugated and transposed
	Values Series       // eigenvalues, ascending, or singular values, descending: real
	// Factors are those of reflectors, and Pivots the rows that each row was exchanged with, from 1 on: int32.
	Factors, Pivots Series
	// Info has an int32 for each step: 0, or LAPACK's number for what is wrong with A. Null: the numbers are lost.
	Info Ptr

	Upper   bool     // the upper triangle of A counts; of Cholesky, CholeskySolve, Eigen and Triangular
	Vectors bool     // of Eigen and SVD
	All     bool     // U and V are square; of SVD
	Op      MatrixOp // of LUSolve, Triangular and QRProduct
	Right   bool     // B is on A's left: X * Op(A) = B, or B * Op(Q); of Triangular and QRProduct
	Unit    bool     // A's diagonal counts as ones; of Triangular
}

// ColumnMatrix is a matrix whose neighbours in a column lie side by side, or the first of several.
type ColumnMatrix struct {
	Ptr   Ptr
	Pitch int // elements from one column to the next
	Next  int // elements from one matrix to the next
}

// Series is a vector without gaps, or the first of several.
type Series struct {
	Ptr  Ptr
	Next int // elements from one vector to the next
}

// SolveOperand is memory of a step.
type SolveOperand struct {
	Name          string
	Type          dtype.DType
	Rows, Columns int
	ColumnMatrix
	reads bool // only
}

// Bytes is how much memory it takes, from the first element on.
func (x *SolveOperand) Bytes(count int) int {
	return ((count-1)*x.Next + (x.Columns-1)*x.Pitch + x.Rows) * x.Type.Size()
}

// RealOf is the type of the parts of a type's numbers.
func RealOf(t dtype.DType) dtype.DType {
	switch t {
	case dtype.Complex64:
		return dtype.Float32
	case dtype.Complex128:
		return dtype.Float64
	}
	return t
}

// Operands are the step's: A first.
func (x *Solve) Operands() []SolveOperand {
	m, n, k := x.Rows, x.Columns, min(x.Rows, x.Columns)
	all := []SolveOperand{{Name: "a", Type: x.Type, Rows: m, Columns: n, ColumnMatrix: x.A,
		reads: x.Kind == CholeskySolve || x.Kind == LUSolve || x.Kind == Triangular || x.Kind == QRProduct}}
	matrix := func(name string, rows, columns int, m ColumnMatrix) {
		all = append(all, SolveOperand{Name: name, Type: x.Type, Rows: rows, Columns: columns, ColumnMatrix: m})
	}
	series := func(name string, t dtype.DType, n int, s Series, reads bool) {
		all = append(all, SolveOperand{Name: name, Type: t, Rows: n, Columns: 1,
			ColumnMatrix: ColumnMatrix{s.Ptr, n, s.Next}, reads: reads})
	}
	switch x.Kind {
	case CholeskySolve:
		matrix("b", n, x.Others, x.B)
	case Triangular, QRProduct:
		if x.Right {
			matrix("b", x.Others, m, x.B)
		} else {
			matrix("b", m, x.Others, x.B)
		}
		if x.Kind == QRProduct {
			series("factors", x.Type, n, x.Factors, true)
		}
	case LU:
		series("pivots", dtype.Int32, k, x.Pivots, false)
	case LUSolve:
		matrix("b", n, x.Others, x.B)
		series("pivots", dtype.Int32, n, x.Pivots, true)
	case QR:
		series("factors", x.Type, k, x.Factors, false)
	case QRVectors:
		series("factors", x.Type, x.Others, x.Factors, true)
	case Eigen:
		series("values", RealOf(x.Type), n, x.Values, false)
	case SVD:
		series("values", RealOf(x.Type), k, x.Values, false)
		if x.Vectors {
			u := k
			if x.All {
				u = m
			}
			matrix("u", m, u, x.U)
			matrix("v", n, n, x.V)
		}
	}
	if x.Info != 0 {
		series("info", dtype.Int32, 1, Series{x.Info, 1}, false)
	}
	return all
}

// Check refuses a step that is none, before a library sees it.
func (x *Solve) Check(device string) error {
	bad := func(format string, args ...any) error {
		return Errorf(ErrInvalidArgument, device, "solve", format, args...)
	}
	square := x.Kind == Cholesky || x.Kind == CholeskySolve || x.Kind == LUSolve || x.Kind == Eigen ||
		x.Kind == Triangular
	others := x.Kind == CholeskySolve || x.Kind == LUSolve || x.Kind == QRVectors || x.Kind == Triangular ||
		x.Kind == QRProduct
	switch {
	case x.Kind < Cholesky || x.Kind > QRProduct:
		return bad("kind %d", int(x.Kind))
	case x.Op < AsIs || x.Op > ConjugateTranspose:
		return bad("operation %d", int(x.Op))
	case x.Rows < 1 || x.Columns < 1 || x.Count < 1 || others && x.Others < 1:
		return bad("%s of %d matrices of %d x %d, with %d others", x.Kind, x.Count, x.Rows, x.Columns, x.Others)
	case square && x.Rows != x.Columns:
		return bad("%s of a matrix of %d x %d", x.Kind, x.Rows, x.Columns)
	case x.Kind == QRVectors && (x.Columns > x.Rows || x.Others > x.Columns):
		return bad("%d columns of %d elements by %d reflectors", x.Columns, x.Rows, x.Others)
	case x.Kind == QRProduct && x.Columns > x.Rows:
		return bad("a product with %d reflectors of %d elements", x.Columns, x.Rows)
	}
	for _, o := range x.Operands() {
		switch {
		case o.Pitch < o.Rows || o.Next < 0:
			return bad("%s has columns of %d elements, %d apart, and matrices %d apart", o.Name, o.Rows, o.Pitch, o.Next)
		case !o.reads && x.Count > 1 && o.Next < (o.Columns-1)*o.Pitch+o.Rows:
			return bad("matrices of %s overlap", o.Name)
		}
	}
	return nil
}
