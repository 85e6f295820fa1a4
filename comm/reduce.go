package comm

import (
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// The reductions. Every rank gets identical bits; see package plan for the order
// in which elements are combined.
var (
	Sum     = Reduction{Kind: backend.SumKind}
	Product = Reduction{Kind: backend.ProductKind}
	Min     = Reduction{Kind: backend.MinKind}  // NaN wins
	Max     = Reduction{Kind: backend.MaxKind}  // NaN wins
	BAnd    = Reduction{Kind: backend.BAndKind} // integers and bool
	BOr     = Reduction{Kind: backend.BOrKind}
	BXor    = Reduction{Kind: backend.BXorKind}
	Avg     = Reduction{Kind: backend.AvgKind} // the sum divided by the world size; integers truncate toward zero
)

// PremulSum multiplies this rank's input by factor before it is summed. Ranks
// may pass different factors. Floating and complex dtypes.
func PremulSum(factor float64) Reduction {
	return Reduction{Kind: backend.PremulSumKind, Factor: factor}
}

// PremulSumTensor is PremulSum with the factor in a one-element tensor of the
// data's dtype, read when the operation starts.
func PremulSumTensor(factor *tensor.Tensor) Reduction {
	return Reduction{Kind: backend.PremulSumKind, FactorTensor: factor}
}

// reducible[k][dt] says whether reduction k is defined on elements of dtype dt.
var reducible = func() (table [backend.PremulSumKind + 1][dtype.Count]bool) {
	for k := backend.SumKind; k <= backend.PremulSumKind; k++ {
		for dt := dtype.DType(1); dt < dtype.Count; dt++ {
			table[k][dt] = k.Defined(dt)
		}
	}
	return
}()
