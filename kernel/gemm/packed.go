package gemm

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// Packed GEMM: on a processor a block is one thread, which computes a tile of a product with vectors. It copies as much
// of both matrices as a core's caches keep to local memory, in panels. One of the left matrix has so many rows, and one
// of the right matrix so many columns, that their sums are in registers. A panel has its elements in the order in which
// they are multiplied, whatever the order of the matrix. The sums are added up in the order of the depth, whatever the
// tile.
const (
	panelRows    = 96      // of a tile, a multiple of the rows of any panel
	panelColumns = 1 << 10 // bytes of a tile's line, at most 256 elements
	panelDepth   = 64      // elements of both matrices in local memory at once; half of it for 16 bytes
	panelLeast   = 64      // columns of a tile
	panelBlocks  = 2       // for each core, if the product has so many tiles
)

// panels is the size of panels for a processor's vectors, in Extra of a spec.
type panels struct {
	lanes int // of a vector; 0: the form of GPUs
	rows  int // of a panel of the left matrix; two vectors are one of the right matrix, or a complex number's parts
}

// panelsOf are none for a product with scales, whose Extra is something else.
func panelsOf(s text.Spec) panels {
	if s.Form&Scaled != 0 {
		return panels{}
	}
	return panels{int(s.Extra[0]), int(s.Extra[1])}
}

// panelsFor are the panels of a type for vectors of so many float32.
func panelsFor(compute dtype.DType, lanes int) panels {
	p := panels{lanes: 16, rows: 12} // all but a few of 32 registers
	switch {
	case lanes < 8:
		p = panels{lanes: 4, rows: 6} // of 16 registers
	case lanes < 16:
		p = panels{lanes: 8, rows: 6}
	}
	if text.Real(compute).Size() == 8 {
		p.lanes /= 2
	}
	return p
}

// columns is how many a panel of the right matrix has.
func (p panels) columns(compute dtype.DType) int {
	return 2 * p.lanes * text.Real(compute).Size() / max(compute.Size(), 1)
}

// packedTile is a tile's columns and depth.
func packedTile(compute dtype.DType) (columns, depth int) {
	columns, depth = panelColumns/max(compute.Size(), 4), panelDepth
	if compute.Size() == 16 {
		depth /= 2
	}
	return
}

// PackedMemory is how many bytes of local memory a tile needs.
func PackedMemory(compute dtype.DType) int {
	columns, depth := packedTile(compute)
	return (panelRows*depth + depth*columns + panelRows*columns) * compute.Size()
}

// Packed is the spec and grid of a product on a processor, of one for tiles of GPUs.
func Packed(s text.Spec, grid device.Dim, cores, lanes int) (text.Spec, device.Dim) {
	p := panelsFor(s.Compute, lanes)
	columns, _ := packedTile(s.Compute)
	s.Block, s.Vector, s.Extra[0], s.Extra[1] = 1, true, int32(p.lanes), int32(p.rows)
	m, n := grid.Y*Side, grid.X*Side
	// Blocks one after the other have the same columns.
	down, across := (m+panelRows-1)/panelRows, (n+columns-1)/columns
	for down*across*grid.Z < panelBlocks*cores {
		switch {
		case n > panelLeast*across:
			across++
		case m > p.rows*down:
			down++
		default:
			return s, device.Dim{X: down, Y: across, Z: grid.Z}
		}
	}
	return s, device.Dim{X: down, Y: across, Z: grid.Z}
}

// vectorNames are OpenCL's of numbers, which a count follows.
var vectorNames = map[dtype.DType]string{dtype.Int8: "char", dtype.Uint8: "uchar", dtype.Int16: "short",
	dtype.Uint16: "ushort", dtype.Int32: "int", dtype.Uint32: "uint", dtype.Int64: "long", dtype.Uint64: "ulong",
	dtype.Float32: "float", dtype.Float64: "double"}

// DefineSizes defines the sizes of a product's panels, or of its tiles.
func DefineSizes(w *text.Writer, s text.Spec) {
	if panelsOf(s).lanes == 0 {
		DefineTiles(w, s, tileEachOf(s), UnitDepth)
		return
	}
	p, parts := panelsOf(s), s.Compute.Size()/text.Real(s.Compute).Size()
	columns, depth := packedTile(s.Compute)
	width := p.columns(s.Compute)
	vectors := func(elements int) int { return elements * parts / p.lanes }
	w.Define("LANES", p.lanes)
	w.Define("VECTOR_OF(n)", vectorNames[text.Real(s.Compute)]+"##n")
	w.Define("VECTOR", vectorNames[text.Real(s.Compute)]+strconv.Itoa(p.lanes))
	w.Define("LEFT_VECTORS", vectors(panelRows*depth))
	w.Define("RIGHT_VECTORS", vectors(depth*columns))
	w.Define("SUM_VECTORS", vectors(panelRows*columns))
	w.Define("MOST_ROWS", panelRows)
	w.Define("ROWS", p.rows)
	w.Define("WIDTH", width)
	w.Define("DEPTH", depth)
	w.Define("PARTS", parts)
	w.Define("EACH_SUM(M)", times(2*p.rows, "M(%d) "))
	rows := ""
	for r := range p.rows {
		rows += fmt.Sprintf("M(%d, %d, %d) ", r, 2*r, 2*r+1)
	}
	w.Define("EACH_ROW(M)", rows)
	for k, lines := range [...]int{p.rows, width} {
		name := [...]string{"LEFT", "RIGHT"}[k]
		side := 4 // of squares that are transposed
		if lines%side != 0 {
			side = 2
		}
		w.Define("SIDE_OF_"+name, side)
		if s.Inputs()[k] == s.Compute && parts == 1 {
			w.Define("COPY_"+name, copyLines(lines))
		}
	}
}

// times is a text for the numbers from 0 to before n.
func times(n int, format string) string {
	var b strings.Builder
	for k := range n {
		fmt.Fprintf(&b, format, k)
	}
	return b.String()
}

// copyLines copies an element of so many lines that are neighbours, in OpenCL's vectors.
func copyLines(lines int) string {
	var b strings.Builder
	for at, size := 0, 16; at < lines; size /= 2 {
		for ; lines-at >= size; at += size {
			fmt.Fprintf(&b, "vstore%d(vload%[1]d(0, f + k * DEEP + %[2]d), 0, t + k * LINES + %[2]d); ", size, at)
		}
	}
	return b.String()
}
