package gemm

import (
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/kernel/text"
)

// Bits of the form of a product.
const (
	Plus         = 1 << iota // c is added
	Scaled                   // see Scales
	ScaledResult             // the result has a scale
)

// Side is how many rows and columns of a product a block computes, Each by Each a thread. It has tileDepth
// elements of the sums in local memory at once. The block has 16 by 16 threads.
const Side, tileDepth, Threads, Each = 64, 16, 16, Side / Threads

// A matrix unit multiplies parts of unitSide rows and columns, of which local memory has UnitDepth of the sums at once
// in a product. Between two rows is a gap, so that threads read from different banks.
const unitSide, UnitDepth, unitGap = 32, 32, 8

// UnitSide is the side of tiles of a product by a matrix unit: large ones, which read less for each sum, where there is
// one for each of a device's multiprocessors.
func UnitSide(grid device.Dim, multiprocessors int) int {
	const large = 128
	if _, tiles := Tiled(text.Spec{}, grid, large); tiles.X*tiles.Y*tiles.Z >= max(multiprocessors, 1) {
		return large
	}
	return Side
}

// Sides are those that a tuned product may have. The order in which sums are added up is the same.
var Sides = [...]int{Side, 32, 128}

// Fit reports whether a product may have tiles of a side. Large ones need room in 32 KiB of local memory and in
// the registers of their threads.
func Fit(side int, s text.Spec) bool { return side <= Side || s.Compute.Size() <= 4 }

// Tiled is the spec and grid of a product in tiles of another side, of one in those of Side.
func Tiled(s text.Spec, grid device.Dim, side int) (text.Spec, device.Dim) {
	s.Extra[2] = int32(side / Threads)
	grid.X, grid.Y = (grid.X*Side+side-1)/side, (grid.Y*Side+side-1)/side
	return s, grid
}

// tileEachOf is how many rows and columns of a tile of a product a thread has.
func tileEachOf(s text.Spec) int {
	if n := int(s.Extra[2]); n > 0 && s.Form&Scaled == 0 {
		return n
	}
	return Each
}

// Tiles is how many tiles n rows or columns of a product have, of Side each.
func Tiles(n int) int { return (n + Side - 1) / Side }

// DefineTiles defines the sizes of tiles with so many rows and columns for a thread. A matrix unit takes parts of
// unitSide rows and columns, and takes a depth where blocks read whole tiles of it.
func DefineTiles(w *text.Writer, s text.Spec, each, unitDepth int) {
	side, depth, parts, sums := each*Threads, tileDepth, each, 1
	if s.Unit != text.NoUnit {
		depth, parts = unitDepth, side/unitSide
		sums = unitSide * unitSide / (Threads * Threads)
		w.Define("TILE_STEP", depth+unitGap)
	}
	w.Define("TILE_SIDE", side)
	w.Define("TILE_DEPTH", depth)
	w.Define("TILE_THREADS", Threads)
	w.Define("TILE_PARTS", parts)
	w.Define("TILE_SUMS", sums)
}
