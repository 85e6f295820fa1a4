package gemm

import (
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// A product's blocks are at most a tile, and as many as the cores take.
func TestPanelGrid(t *testing.T) {
	for _, x := range []struct {
		compute             dtype.DType
		m, n, count, cores  int
		down, across, lanes int
	}{
		{dtype.Float32, 1024, 1024, 1, 2, 11, 4, 16},
		{dtype.Float32, 64, 64, 1, 1, 2, 1, 16},
		{dtype.Float32, 64, 1024, 1, 2, 1, 4, 16},
		{dtype.Float32, 64, 1024, 1, 64, 6, 16, 16},
		{dtype.Float32, 64, 64, 100, 8, 1, 1, 8},
		{dtype.Float64, 1024, 1024, 1, 2, 11, 8, 16},
		{dtype.Complex128, 1024, 1024, 1, 2, 11, 16, 4},
	} {
		s := text.Spec{Compute: x.compute}
		s, grid := Packed(s, device.Dim{X: Tiles(x.n), Y: Tiles(x.m), Z: x.count}, x.cores, x.lanes)
		if grid != (device.Dim{X: x.down, Y: x.across, Z: x.count}) {
			t.Errorf("%+v: %+v", x, grid)
		}
		columns, _ := packedTile(x.compute)
		p := panelsOf(s)
		if up := (x.m-1)/grid.X/p.rows*p.rows + p.rows; up > panelRows {
			t.Errorf("%+v: %d rows of a block", x, up)
		}
		width := p.columns(x.compute)
		if up := (x.n-1)/grid.Y/width*width + width; up > columns || panelRows%p.rows != 0 || columns%width != 0 {
			t.Errorf("%+v: %d columns of a block of %d", x, up, columns)
		}
	}
	for _, dt := range dtype.All() {
		if bytes := PackedMemory(text.Opmath(dt)); bytes > 208<<10 { // Intel's runtime has 256 KiB, also for what it adds
			t.Errorf("%v: a tile needs %d bytes", dt, bytes)
		}
	}
}
