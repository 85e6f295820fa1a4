package kernel

import (
	"math"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
)

// tileSide is how many rows and columns of a product a block computes, tileEach by tileEach a thread. It has tileDepth
// elements of the sums in local memory at once. The block has 16 by 16 threads.
const tileSide, tileDepth, tileThreads, tileEach = 64, 16, 16, tileSide / tileThreads

// tileSides are those that a tuned product may have. The order in which sums are added up is the same.
var tileSides = [...]int{tileSide, 32, 128}

// tilesFit reports whether a product may have tiles of a side. Large ones need room in 32 KiB of local memory and in
// the registers of their threads, and small ones are more blocks.
func tilesFit(side int, c *Call) bool {
	if side > tileSide {
		return c.Spec.Compute.Size() <= 4
	}
	return c.Grid.Y*tileSide/side <= math.MaxUint16
}

// tiled is the spec and grid of a product in tiles of another side, of one in those of tileSide.
func tiled(s Spec, grid device.Dim, side int) (Spec, device.Dim) {
	s.Extra[2] = int32(side / tileThreads)
	grid.X, grid.Y = (grid.X*tileSide+side-1)/side, (grid.Y*tileSide+side-1)/side
	return s, grid
}

// tileEachOf is how many rows and columns of a tile of a product a thread has.
func tileEachOf(s Spec) int {
	if n := int(s.Extra[2]); n > 0 && s.Form&matmulScaled == 0 {
		return n
	}
	return tileEach
}

func tilesOf(n int) int { return (n + tileSide - 1) / tileSide }

// tiles adds a run of a block for each tile.
func (p *Plan) tiles(s Spec, grid device.Dim) *Call {
	c := p.blocks(s, grid)
	c.Block = device.Dim{X: tileThreads, Y: tileThreads, Z: 1}
	return c
}

// tileSizes defines the sizes of tiles with so many rows and columns for a thread.
func (w *writer) tileSizes(each int) {
	w.define("TILE_SIDE", tileSide)
	w.define("TILE_DEPTH", tileDepth)
	w.define("TILE_THREADS", tileThreads)
	w.define("TILE_EACH", each)
}

// zero is 0 of a type that's computed in.
func zero(compute dtype.DType) string {
	if compute.IsComplex() {
		return "c_make(0, 0)"
	}
	return "0"
}

// multiplyAdd is the statement sum += x * y.
func multiplyAdd(compute dtype.DType, sum, x, y string) string {
	if compute.IsComplex() {
		return sum + " = c_add(" + sum + ", c_mul(" + x + ", " + y + "));"
	}
	return sum + " += " + x + " * " + y + ";"
}
