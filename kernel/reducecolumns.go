package kernel

import (
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
