package kernel

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
)

// On a processor a block is one thread, which computes a tile of a product with vectors. It copies as much of both
// matrices as a core's caches keep to local memory, in panels. One of the left matrix has so many rows, and one of the
// right matrix so many columns, that their sums are in registers. A panel has its elements in the order in which
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
func panelsOf(s Spec) panels {
	if s.Form&matmulScaled != 0 {
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
	if Real(compute).Size() == 8 {
		p.lanes /= 2
	}
	return p
}

// columns is how many a panel of the right matrix has.
func (p panels) columns(compute dtype.DType) int {
	return 2 * p.lanes * Real(compute).Size() / max(compute.Size(), 1)
}

// panelTile is a tile's columns and depth.
func panelTile(compute dtype.DType) (columns, depth int) {
	columns, depth = panelColumns/max(compute.Size(), 4), panelDepth
	if compute.Size() == 16 {
		depth /= 2
	}
	return
}

// panelMemory is how many bytes of local memory a tile needs.
func panelMemory(compute dtype.DType) int {
	columns, depth := panelTile(compute)
	return (panelRows*depth + depth*columns + panelRows*columns) * compute.Size()
}

// panelled is the spec and grid of a product on a processor, of one for tiles of GPUs.
func panelled(s Spec, grid device.Dim, cores, lanes int) (Spec, device.Dim) {
	p := panelsFor(s.Compute, lanes)
	columns, _ := panelTile(s.Compute)
	s.Block, s.Vector, s.Extra[0], s.Extra[1] = 1, true, int32(p.lanes), int32(p.rows)
	m, n := grid.Y*tileSide, grid.X*tileSide
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

// panelType declares the vector V.
func (w *writer) panelType(s Spec) {
	w.line("typedef %s%d V;", vectorNames[Real(s.Compute)], panelsOf(s).lanes)
}

// panelTiles writes a block's place, and its sums of products. Its rows are those from row0, its columns those from
// column0.
func (w *writer) panelTiles(s Spec) {
	p, parts := panelsOf(s), s.Compute.Size()/Real(s.Compute).Size()
	columns, depth := panelTile(s.Compute)
	width := p.columns(s.Compute)
	vectors := func(elements int) int { return elements * parts / p.lanes }
	w.line("\tLOCAL V left[%d], right[%d], sums[%d];", vectors(panelRows*depth), vectors(depth*columns),
		vectors(panelRows*columns))
	w.line("\tI batch = (I)BLOCK_Z;")
	w.line("\tI rows = ((m - 1) / (I)BLOCKS + %d) / %[1]d * %[1]d, row0 = (I)BLOCK * rows;", p.rows)
	w.line("\tI columns = ((n - 1) / (I)BLOCKS_Y + %d) / %[1]d * %[1]d, column0 = (I)BLOCK_Y * columns;", width)
	w.line("\tif (row0 >= m || column0 >= n)")
	w.line("\t\treturn;")
	w.line("\trows = m - row0 < rows ? m - row0 : rows;")
	w.line("\tcolumns = n - column0 < columns ? n - column0 : columns;")
	w.places("batch", "l", int(s.Dims), 4)
	if s.Dims == 0 {
		w.line("\tat0 = at1 = at2 = at3 = 0;")
	}
	w.line("\tI k0 = 0;")
	w.line("\tdo {") // also without depth, when the sums are 0
	w.line("\t\tI ks = depth - k0 < %d ? depth - k0 : %[1]d;", depth)
	w.panel(s, "left", "i0", "at1 + row0 * am + k0 * ak", "rows", "am", "ak", p.rows, depth)
	w.panel(s, "right", "i1", "at2 + k0 * bk + column0 * bn", "columns", "bn", "bk", width, depth)
	w.line("\t\tfor (I j = 0; j < columns; j += %d)", width)
	w.line("\t\t\tfor (I i = 0; i < rows; i += %d) {", p.rows)
	w.line("\t\t\t\tLOCAL V *s = sums + (j / %d * %d + i) * 2;", width, panelRows)
	w.line("\t\t\t\tLOCAL const R *x = (LOCAL const R *)left + i * %d;", depth*parts)
	w.line("\t\t\t\tLOCAL const V *y = right + j / %d * %d;", width, 2*depth)
	for k := range 2 * p.rows {
		w.line("\t\t\t\tV s%d = k0 > 0 ? s[%[1]d] : (V)0;", k)
	}
	w.line("\t\t\t\tAS_IT_IS")
	w.line("\t\t\t\tfor (I k = 0; k < ks; k++, x += %d, y += 2) {", p.rows*parts)
	w.line("\t\t\t\t\tV y0 = y[0], y1 = y[1];")
	for r := range p.rows {
		if parts == 2 {
			w.line("\t\t\t\t\ts%d += (V)x[%[1]d] * y0;", 2*r)
			w.line("\t\t\t\t\ts%d -= (V)x[%d] * y1;", 2*r, 2*r+1)
			w.line("\t\t\t\t\ts%d += (V)x[%d] * y1;", 2*r+1, 2*r)
			w.line("\t\t\t\t\ts%d += (V)x[%[1]d] * y0;", 2*r+1)
			continue
		}
		w.line("\t\t\t\t\ts%d += (V)x[%d] * y0;", 2*r, r)
		w.line("\t\t\t\t\ts%d += (V)x[%d] * y1;", 2*r+1, r)
	}
	w.line("\t\t\t\t}")
	for k := range 2 * p.rows {
		w.line("\t\t\t\ts[%d] = s%[1]d;", k)
	}
	w.line("\t\t\t}")
	w.line("\t\tk0 += %d;", depth)
	w.line("\t} while (k0 < depth);")
}

// panel copies a part of a matrix to panels of so many lines, which are step apart, and ks elements, which are deep
// apart. The last panel repeats its last line.
func (w *writer) panel(s Spec, to, in, at, count, step, deep string, lines, depth int) {
	t, parts := s.Types[s.Outs+in[1]-'0'], s.Compute.Size()/Real(s.Compute).Size()
	w.line("\t\tfor (I p = 0; p < %s; p += %d) {", count, lines)
	w.line("\t\t\tLOCAL R *t = (LOCAL R *)%s + p * %d;", to, depth*parts)
	w.line("\t\t\tGLOBAL const %s *f = %s + (%s + p * %s);", stored(t), in, at, step)
	w.line("\t\t\tI last = %s - p - 1, k = 0;", count)
	w.line("\t\t\tif (last > %d)", lines-1)
	w.line("\t\t\t\tlast = %d;", lines-1)
	switch {
	case t == s.Compute && parts == 1:
		w.line("\t\t\tif (last == %d && %s == 1)", lines-1, step)
		w.line("\t\t\t\tfor (; k < ks; k++) {")
		for _, x := range vectorsOf(lines) {
			w.line("\t\t\t\t\tvstore%d(vload%[1]d(0, f + k * %[2]s + %[3]d), 0, t + k * %[4]d + %[3]d);", x.size, deep, x.at,
				lines)
		}
		w.line("\t\t\t\t}")
		side := 4 // of squares that are transposed
		if lines%side != 0 {
			side = 2
		}
		w.line("\t\t\telse if (last == %d && %s == 1)", lines-1, deep)
		w.line("\t\t\t\tfor (; k <= ks - %d; k += %[1]d)", side)
		w.line("\t\t\t\t\tfor (int r = 0; r < %d; r += %d) {", lines, side)
		vector := vectorNames[t] + strconv.Itoa(side)
		for k := range side {
			w.line("\t\t\t\t\t\t%s v%d = vload%d(0, f + (r + %[2]d) * %[4]s + k);", vector, k, side, step)
		}
		for k := range side {
			from := make([]string, side)
			for r := range side {
				from[r] = fmt.Sprintf("v%d.s%d", r, k)
			}
			w.line("\t\t\t\t\t\tvstore%d((%s)(%s), 0, t + (k + %d) * %d + r);", side, vector, strings.Join(from, ", "),
				k, lines)
		}
		w.line("\t\t\t\t\t}")
	default:
		w.line("\t\t\tif (last == %d && %s == 1)", lines-1, step)
		w.line("\t\t\t\tfor (; k < ks; k++)")
		w.line("\t\t\t\t\tfor (int r = 0; r < %d; r++) {", lines)
		w.panelElement(s, to, "r", lines, converted(s.Compute, t, "f[k * "+deep+" + r]"))
		w.line("\t\t\t\t\t}")
	}
	// what is left
	w.line("\t\t\tAS_IT_IS")
	w.line("\t\t\tfor (int r = 0; r < %d; r++) {", lines)
	w.line("\t\t\t\tGLOBAL const %s *g = f + (r < last ? r : last) * %s;", stored(t), step)
	w.line("\t\t\t\tI from = k;")
	w.line("\t\t\t\tAS_IT_IS")
	w.line("\t\t\t\tfor (I k = from; k < ks; k++) {")
	w.panelElement(s, to, "r", lines, converted(s.Compute, t, "g[k * "+deep+"]"))
	w.line("\t\t\t\t}")
	w.line("\t\t\t}")
	w.line("\t\t}")
}

// panelElement writes element k of a line of a panel, of which a complex number's parts are neighbours on the left, and
// in two vectors on the right.
func (w *writer) panelElement(s Spec, to, line string, lines int, value string) {
	switch {
	case !s.Compute.IsComplex():
		w.line("\t\t\t\t\tt[k * %d + %s] = %s;", lines, line, value)
	case to == "left":
		w.line("\t\t\t\t\tT v = %s;", value)
		w.line("\t\t\t\t\tt[(k * %d + %s) * 2] = v.re;", lines, line)
		w.line("\t\t\t\t\tt[(k * %d + %s) * 2 + 1] = v.im;", lines, line)
	default:
		w.line("\t\t\t\t\tT v = %s;", value)
		w.line("\t\t\t\t\tt[k * %d + %s] = v.re;", 2*lines, line)
		w.line("\t\t\t\t\tt[k * %d + %s + %d] = v.im;", 2*lines, line, lines)
	}
}

// vectorsOf are places and sizes of OpenCL's vectors that so many elements are.
func vectorsOf(n int) (all []struct{ at, size int }) {
	for at, size := 0, 16; at < n; size /= 2 {
		for ; n-at >= size; at += size {
			all = append(all, struct{ at, size int }{at, size})
		}
	}
	return all
}

// eachPanelSum writes a loop over the sums of a tile: body has one of them, sum, and its row and column.
func (w *writer) eachPanelSum(s Spec, body func()) {
	width := panelsOf(s).columns(s.Compute)
	w.line("\tfor (I i = 0; i < rows; i++)")
	w.line("\t\tfor (I j = 0; j < columns; j += %d) {", width)
	w.line("\t\t\tLOCAL const R *s = (LOCAL const R *)(sums + (j / %d * %d + i) * 2);", width, panelRows)
	w.line("\t\t\tint most = columns - j < %d ? (int)(columns - j) : %[1]d;", width)
	w.line("\t\t\tI row = row0 + i;")
	w.line("\t\t\tfor (int q = 0; q < most; q++) {")
	w.line("\t\t\t\tI column = column0 + j + q;")
	if s.Compute.IsComplex() {
		w.line("\t\t\t\tT sum = c_make(s[q], s[q + %d]);", width)
	} else {
		w.line("\t\t\t\tT sum = s[q];")
	}
	body()
	w.line("\t\t\t}")
	w.line("\t\t}")
}
