package kernel

import (
	"fmt"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/text"
)

// On a processor a block reduces so many neighbouring columns, of which it reads whole lines of memory, and has an
// accumulator for each. Accumulators of so many rows at a time are joined, so that long sums are as precise as short
// ones.
const (
	columnsOfBlock  = 8 * loader.Lanes
	rowsOfSum       = 256
	blocksOfColumns = 4 // for a core, if there are enough rows
)

// hasScratch reports whether the kernel of a reduction leaves accumulators in memory, or joins them.
func hasScratch(s text.Spec) bool {
	return s.Form == reduceParts || s.Form == reduceJoin || s.Form == reduceColumns && s.Extra[2] == 1
}

// reducedColumns adds a reduction whose results are neighbours where the elements that they're of are, on a processor.
// Where there are few columns, the rows are divided among blocks.
func (p *Plan) reducedColumns(s text.Spec, args func(c *loader.Call, parts int, scratch device.Ptr)) error {
	keep, away := &p.space, &p.reduced
	tiles := keep.count / keep.sizes[0] * ((keep.sizes[0]-1)/columnsOfBlock + 1)
	parts := max(1, min(mostParts, (blocksOfColumns*p.Cores-1)/tiles+1, away.count/rowsOfSum))
	join := s
	s.Form, s.Block, s.Vector = reduceColumns, loader.Lanes, true
	var scratch device.Ptr
	if parts > 1 {
		s.Extra[2] = 1
		var err error
		if scratch, err = p.scratch(keep.count * parts * accumulator); err != nil {
			return err
		}
	}
	args(p.blocks(s, device.Dim{X: tiles * parts, Y: 1, Z: 1}), parts, scratch)
	if parts > 1 {
		join.Form = reduceJoin
		c := p.blocks(join, device.Dim{X: keep.count, Y: 1, Z: 1})
		c.Shape = loader.AnyBlock
		args(c, parts, scratch)
	}
	return nil
}

// reducedColumns writes the body of such a kernel.
func (w *writer) reducedColumns(s text.Spec, r *Reduction, away int, args string) {
	outs := int(s.Outs)
	w.Line("\tI inner = l.sizes[0], tiles = (inner - 1) / %d + 1, unit = (I)BLOCK, from = 0, to = n;", columnsOfBlock)
	if hasScratch(s) {
		w.Line("\tI part = unit %% parts, chunk = (n - 1) / parts + 1;")
		w.Line("\tunit /= parts;")
		w.Line("\tfrom = part * chunk;")
		w.Line("\tto = n - from < chunk ? n : from + chunk;")
	}
	w.Line("\tI row = unit / tiles, column = unit %% tiles * %d;", columnsOfBlock)
	w.OffsetsFrom("row", "l", 1, int(s.Dims), outs+1)
	vectors := func(n int) { // that many
		each := func(line func(k, lane int)) {
			for k := range n {
				line(k, k*loader.Lanes)
			}
		}
		each(func(k, _ int) { w.Line("\tA total%d = r_init();", k) })
		w.Line("\tfor (I start = from; start < to; start += %d) {", rowsOfSum)
		w.Line("\tI stop = to - start < %d ? to : start + %[1]d;", rowsOfSum)
		each(func(k, _ int) { w.Line("\tA a%d = r_init();", k) })
		w.Line("\tfor (I i = start; i < stop; i++) {")
		w.Line("\tI in;")
		w.inner("i", away)
		w.Line("\tI at = at%d + in + column;", outs)
		each(func(k, lane int) {
			x := text.Converted(s.Compute, s.Inputs()[0], fmt.Sprintf("i0[at + %d + THREAD]", lane))
			w.Line("\ta%d = r_step(a%[1]d, %s, i%s);", k, x, args)
		})
		w.Line("\t}")
		each(func(k, _ int) { w.Line("\ttotal%d = r_join(total%[1]d, a%[1]d);", k) })
		w.Line("\t}")
		each(func(k, lane int) {
			if hasScratch(s) {
				w.Line("\tscratch[(row * inner + column + %d + THREAD) * parts + part] = total%d;", lane, k)
				return
			}
			for j, o := range r.done {
				done := fmt.Sprintf("r_done%d(total%d, n%s)", j, k, args)
				w.Line("\to%d[at%[1]d + (column + %[2]d + THREAD) * l.strides[%[1]d][0]] = %[3]s;", j, lane,
					text.Narrowed(s.Types[j], o.kind.dtype(s.Compute), done))
			}
		})
	}
	w.Line("\tif (inner - column >= %d) {", columnsOfBlock)
	vectors(columnsOfBlock / loader.Lanes)
	w.Line("\treturn;")
	w.Line("\t}")
	w.Line("\tfor (; inner - column >= %d; column += %[1]d) {", loader.Lanes)
	vectors(1)
	w.Line("\t}")
	w.Line("\tif (THREAD < inner - column) {")
	vectors(1)
	w.Line("\t}")
}
