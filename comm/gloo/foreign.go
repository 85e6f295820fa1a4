package gloo

import (
	"fmt"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
)

// hasPyTorch reports whether some ranks are PyTorch's.
func (g *group) hasPyTorch() bool { return g.size > 1 && !g.mesh.allChorus }

// pytorchHas reports whether PyTorch's ranks have collectives on a type.
func (j *job) pytorchHas(dt dtype.DType) bool {
	switch dt {
	case dtype.Float16, dtype.Float32, dtype.Float64, dtype.Int8, dtype.Uint8, dtype.Int32, dtype.Int64:
		return true
	case dtype.Bool, dtype.BFloat16, dtype.Complex64, dtype.Complex128:
		return !j.old
	}
	return false
}

// pytorchReduces reports whether PyTorch's ranks have a reduction on a type.
func (j *job) pytorchReduces(k backend.ReduceKind, dt dtype.DType) bool {
	average := !j.old && (dt.IsFloating() || dt.IsComplex())
	return j.pytorchHas(dt) && k != backend.PremulSumKind && (k != backend.AvgKind || average)
}

// refuseUnsupported refuses a collective that PyTorch's ranks can't take part in, before anything is sent. Where their
// own call fails, too, they count it, and so does this rank: the next one has the same number everywhere.
func (g *group) refuseUnsupported(op *backend.Op) error {
	if !g.hasPyTorch() {
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
	case row.Reduces && op.Reduce.Kind == backend.AvgKind && g.job.old:
		g.tag += counts
		return lacks("averages in PyTorch 1.13")
	}
	dt := op.First().DType()
	switch {
	case !g.job.pytorchHas(dt):
		g.tag += counts
		return lacks("collectives of %s", dt)
	case dt.IsComplex() && row.Family == backend.Gather:
		g.tag += counts
		return lacks("gathers of %s", dt)
	}
	return nil
}
