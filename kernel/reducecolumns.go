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

// A GPU's block has at most so many neighbouring columns, of each of which some threads add every so-many-th row.
const widestColumns = 32

// reducedColumns adds a reduction whose results are neighbours where the elements that they're of are. Where there are
// few columns, the rows are divided among blocks.
func (p *Plan) reducedColumns(s text.Spec, args func(c *loader.Call, parts int, scratch device.Ptr)) error {
	keep, away := &p.space, &p.reduced
	columns, blocks, most, join := columnsOfBlock, blocksOfColumns*p.Cores, mostParts, s
	if p.Cores > 0 {
		s.Block, s.Vector = loader.Lanes, true
	} else {
		for columns = 1; columns < min(widestColumns, keep.sizes[0]); columns *= 2 {
		}
		blocks, most, s.Extra[3] = blocksOfGPU, blocksOfGPU, int32(columns)
	}
	tiles := keep.count / keep.sizes[0] * ((keep.sizes[0]-1)/columns + 1)
	parts := max(1, min(most, (blocks-1)/tiles+1, away.count/rowsOfSum))
	s.Form = reduceColumns
	if parts == 1 {
		args(p.blocks(s, device.Dim{X: tiles, Y: 1, Z: 1}), 1, 0)
		return nil
	}
	s.Extra[2] = 1
	scratch, err := p.scratch(keep.count * parts * accumulator)
	if err != nil {
		return err
	}
	args(p.blocks(s, device.Dim{X: tiles * parts, Y: 1, Z: 1}), parts, scratch)
	p.joined(join, args, parts, scratch)
	return nil
}
