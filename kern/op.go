package kern

import (
	"fmt"

	"github.com/chorus-comms/chorus/dtype"
)

// Op is how [Reduce] combines two elements. The numbers are wire format.
type Op uint8

const (
	Sum     Op = 0
	Product Op = 1
	Min     Op = 2
	Max     Op = 3
	BAnd    Op = 4 // bitwise and
	BOr     Op = 5 // bitwise or
	BXor    Op = 6 // bitwise exclusive or

	opCount = 7
)

var opNames = [opCount]string{"sum", "product", "min", "max", "band", "bor", "bxor"}

// String returns the name in lower case, such as "sum" or "bxor".
func (op Op) String() string {
	if op >= opCount {
		return fmt.Sprintf("op(%d)", uint8(op))
	}
	return opNames[op]
}

// Ops returns all operations. The slice is the caller's.
func Ops() []Op { return []Op{Sum, Product, Min, Max, BAnd, BOr, BXor} }

// Supports reports whether op is defined for elements of type dt: sums and products for all, minimum and maximum for
// all but complex numbers, which have no order, bitwise operations for integers and bool.
func Supports(op Op, dt dtype.DType) bool {
	switch op {
	case Sum, Product:
		return dt.Valid()
	case Min, Max:
		return dt.Valid() && !dt.IsComplex()
	case BAnd, BOr, BXor:
		return dt.IsInteger() || dt == dtype.Bool
	}
	return false
}
