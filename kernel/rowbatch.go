package kernel

import (
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/text"
)

// On a processor a block has several short rows at a time. Its threads are the lanes of a vector. They share the
// elements of one row after the other. Then each has a row, of which it joins what the lanes have added: that is so
// many rows at once, where one lane would do it for a row while the others wait.
const (
	mostRows     = loader.Lanes
	shortRow     = 1 << 8 // elements; of longer ones fewer stay in the nearest cache
	rowsOfMedium = 4
	mediumRow    = 1 << 10
)

// rowsAtOnce is how many rows of n elements a processor's block has at a time.
func rowsAtOnce(n int) int {
	switch {
	case n <= shortRow:
		return mostRows
	case n <= mediumRow:
		return rowsOfMedium
	}
	return 1
}

// sharing adds a run of blocks of which each has a row of n elements. On a processor blocks share the rows.
func (p *Plan) sharing(s text.Spec, rows, n int) *loader.Call {
	blocks := rows
	if p.Cores > 0 {
		blocks = min(blocks, max(1, rows*n/loader.LeastWork), p.Cores*loader.BlocksOfCore)
	}
	c := p.blocks(s, device.Dim{X: blocks, Y: 1, Z: 1})
	c.Shape = loader.AnyBlock
	return c
}
