package gloo

import (
	"fmt"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
)

// foreign refuses a collective that PyTorch's ranks can't take part in, before anything is sent. Where their own call
// fails, too, they count it, and so does this rank: the next one has the same number everywhere.
func (g *group) foreign(op *backend.Op) error {
	if g.size == 1 || g.mesh.kin {
		return nil
	}
	row := op.Kind.Operation()
	counts := uint32(1)
	if row.Family == backend.ReduceScatter && row.In == backend.List { // a reduction of each block
		counts = uint32(g.size)
	}
	lacks := func(format string, args ...any) error {
		detail := "ranks of PyTorch have no " + fmt.Sprintf(format, args...)
		return &backend.UnsupportedError{Where: g.Of(op), Detail: detail}
	}
	switch {
	case row.Family == backend.Barrier:
		return nil
	case row.Prefix:
		return lacks("scans")
	case row.Family == backend.AllGather && row.Uneven:
		return lacks("all-gathers of blocks of several sizes")
	case row.Reduces && op.Reduce.Kind == backend.PremulSumKind:
		g.tag += counts
		return lacks("sums with a factor")
	}
	switch dt := op.First().DType(); dt {
	case dtype.Float16, dtype.Float32, dtype.Float64, dtype.Int8, dtype.Uint8, dtype.Int32, dtype.Int64:
		return nil
	case dtype.Bool, dtype.BFloat16:
		if !g.job.old {
			return nil
		}
		g.tag += counts
		return lacks("%s in PyTorch 1.13", dt)
	case dtype.Complex64, dtype.Complex128:
		if row.Family != backend.Gather {
			return nil
		}
		g.tag += counts
		return lacks("gathers of %s", dt)
	default:
		g.tag += counts
		return lacks("collectives of %s", dt)
	}
}
