package bench

import (
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
)

// values defines what each rank contributes to a checked operation and what a
// reduction of it must give. All of them, and all partial results, are whole
// numbers that the dtype holds exactly, so that the order of a reduction does not matter.
type values struct {
	dt  dtype.DType
	red backend.ReduceKind // 0: nothing is reduced
	n   int                // ranks
}

// largest returns a number up to which every whole number is exact.
func largest(dt dtype.DType) int {
	switch dt {
	case dtype.Bool:
		return 1
	case dtype.Float8E5M2: // 2 bits after the leading one
		return 8
	case dtype.Float8E4M3FN: // 3 bits
		return 16
	case dtype.Int8:
		return 127
	case dtype.BFloat16, dtype.Uint8: // 7 bits; 8 bits in all
		return 255
	}
	return 1023 // ten bits, for the bitwise reductions
}

// of returns element i of a rank's contribution.
func (v values) of(rank, i int) int {
	h, top := hash(rank, i), largest(v.dt)
	switch v.red {
	case backend.SumKind, backend.PremulSumKind:
		if v.red == backend.PremulSumKind {
			top = max(1, top/premulFactor)
		}
		if top >= v.n {
			return h % (top/v.n + 1)
		}
		groups := (v.n + top - 1) / top // of which one contributes to an element
		return only(rank%groups == i%groups, 1)
	case backend.AvgKind:
		if top >= v.n { // a sum that the number of ranks divides
			return only(rank == i%v.n, v.n*(hash(0, i)%(top/v.n+1)))
		}
		return hash(0, i) % 2
	case backend.ProductKind:
		if v.dt == dtype.Bool {
			return only(h%8 != 0, 1)
		}
		return 1 + only(rank == i%v.n || rank == (i+1)%v.n, h%2)
	}
	if v.dt == dtype.Bool {
		return h % 2
	}
	return h % (top + 1)
}

// reduced returns element i of the result.
func (v values) reduced(i int) int {
	x := v.of(0, i)
	for r := 1; r < v.n; r++ {
		x = Fold(v.red, x, v.of(r, i))
	}
	return Final(v.red, x, v.n, premulFactor)
}

// Fold combines two whole numbers as a reduction does.
func Fold(red backend.ReduceKind, x, y int) int {
	switch red {
	case backend.ProductKind:
		return x * y
	case backend.MinKind:
		return min(x, y)
	case backend.MaxKind:
		return max(x, y)
	case backend.BAndKind:
		return x & y
	case backend.BOrKind:
		return x | y
	case backend.BXorKind:
		return x ^ y
	}
	return x + y
}

// Final is what a reduction makes of the numbers of n ranks that were folded; factor is that of PREMUL_SUM.
func Final(red backend.ReduceKind, x, n, factor int) int {
	switch red {
	case backend.AvgKind:
		return x / n
	case backend.PremulSumKind:
		return x * factor
	}
	return x
}

func only(yes bool, x int) int {
	if yes {
		return x
	}
	return 0
}

// hash mixes rank and index (the finalizer of MurmurHash3).
func hash(rank, i int) int {
	h := uint32(rank)*0x9e3779b1 + uint32(i) + 1
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	h ^= h >> 16
	return int(h >> 1)
}

// reductionName is what a row says of a reduction.
func reductionName(op *operation, r comm.Reduction) string {
	if !op.reduces {
		return "none"
	}
	return r.String()
}
