package bench

import (
	"fmt"
	"io"

	"github.com/chorus-comms/chorus/internal/svg"
)

// WritePlot draws the bandwidths over the sizes as SVG, both on logarithmic axes, so that small sizes, where a call's
// latency counts, are seen beside large ones.
func (r *Result) WritePlot(w io.Writer) error {
	p := svg.Plot{XLabel: "size (bytes)", YLabel: "GB/s", LogY: true}
	if len(r.Rows) > 0 {
		f := r.Rows[0]
		p.Title = fmt.Sprintf("%s, %s, %d ranks, %s, %s memory", f.Operation, f.DType, f.Ranks, f.Fabric, f.Memory)
	}
	for _, inPlace := range []bool{false, true} {
		suffix := ""
		if inPlace {
			suffix = " in place"
		}
		for _, line := range []struct {
			name string
			of   func(Row) float64
		}{
			{"algbw", func(r Row) float64 { return r.AlgBW }},
			{"busbw", func(r Row) float64 { return r.BusBW }},
			{"one pass, unsynchronized", func(r Row) float64 { return r.Limit }},
		} {
			s := svg.Series{Name: line.name + suffix}
			for _, row := range r.Rows {
				if row.InPlace == inPlace {
					s.X, s.Y = append(s.X, float64(row.Bytes)), append(s.Y, line.of(row))
				}
			}
			if len(s.X) > 0 {
				p.Series = append(p.Series, s)
			}
		}
	}
	return p.Write(w)
}
