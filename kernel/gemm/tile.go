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

// DefineTiles defines the sizes of tiles with so many rows and columns for a thread.
func DefineTiles(w *text.Writer, each int) {
	w.Define("TILE_SIDE", Side)
	w.Define("TILE_DEPTH", tileDepth)
	w.Define("TILE_THREADS", Threads)
	w.Define("TILE_EACH", each)
}
