package backend

import (
	"fmt"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kern"
	"github.com/chorus-comms/chorus/tensor"
)

// Reduction says how elements of several ranks are combined.
type Reduction struct {
	Kind ReduceKind
	// Factor multiplies this rank's input before a PremulSum; FactorTensor, a
	// one-element tensor of the data's dtype, takes its place if set.
	Factor       float64
	FactorTensor *tensor.Tensor
}

// ReduceKind names a reduction. The values travel between ranks.
type ReduceKind uint8

// The reductions, with torchcomms' meaning.
const (
	SumKind ReduceKind = iota + 1
	ProductKind
	MinKind
	MaxKind
	BAndKind
	BOrKind
	BXorKind
	AvgKind       // the sum divided by the world size; integers truncate toward zero
	PremulSumKind // the sum of factor times input
)

var reduceNames = [...]string{"none", "sum", "product", "min", "max", "band", "bor", "bxor", "avg", "premul_sum"}

// String returns the reduction's usual name, such as "sum".
func (k ReduceKind) String() string {
	if int(k) < len(reduceNames) {
		return reduceNames[k]
	}
	return fmt.Sprintf("reduction(%d)", uint8(k))
}

// Kernel returns the element-wise operation under the reduction.
func (k ReduceKind) Kernel() kern.Op {
	switch k {
	case ProductKind:
		return kern.Product
	case MinKind:
		return kern.Min
	case MaxKind:
		return kern.Max
	case BAndKind:
		return kern.BAnd
	case BOrKind:
		return kern.BOr
	case BXorKind:
		return kern.BXor
	default:
		return kern.Sum
	}
}

// Defined reports whether the reduction is on elements of a dtype.
func (k ReduceKind) Defined(dt dtype.DType) bool {
	switch ok := kern.Supports(k.Kernel(), dt); k {
	case AvgKind:
		return ok && dt != dtype.Bool
	case PremulSumKind:
		return ok && (dt.IsFloating() || dt.IsComplex())
	default:
		return ok
	}
}

func (r Reduction) String() string { return r.Kind.String() }
