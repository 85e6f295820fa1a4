package kernel

import (
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
)

// tileSide is how many rows and columns of a product a block computes, 4 by 4 a thread; tileDepth how many elements of
// the sums it has in local memory at once. The block has 16 by 16 threads.
const tileSide, tileDepth, tileThreads = 64, 16, 16

func tilesOf(n int) int { return (n + tileSide - 1) / tileSide }

// tiles adds a run of a block for each tile.
func (p *Plan) tiles(s Spec, grid device.Dim) *Call {
	c := p.blocks(s, grid)
	c.Block = device.Dim{X: tileThreads, Y: tileThreads, Z: 1}
	return c
}

// tileMemory declares a tile's local memory, the thread's place in the block, and its sums.
func (w *writer) tileMemory(compute dtype.DType) {
	w.line("\tLOCAL T left[%d][%d], right[%[1]d][%[2]d];", tileDepth, tileSide+1)
	w.line("\tint tx = THREAD, ty = THREAD_Y;")
	w.line("\tT sum[4][4];")
	w.line("\tfor (int r = 0; r < 4; r++)")
	w.line("\t\tfor (int q = 0; q < 4; q++)")
	w.line("\t\t\tsum[r][q] = %s;", zero(compute))
}

// tileProducts adds the products of what's in local memory to the sums. Between barriers, the block has written it, and
// writes it again.
func (w *writer) tileProducts(compute dtype.DType) {
	w.line("\t\tBARRIER();")
	w.line("\t\tfor (int k = 0; k < %d; k++) {", tileDepth)
	w.line("\t\t\tT x[4], y[4];")
	w.line("\t\t\tfor (int r = 0; r < 4; r++) {")
	w.line("\t\t\t\tx[r] = left[k][ty + %d * r];", tileThreads)
	w.line("\t\t\t\ty[r] = right[k][tx + %d * r];", tileThreads)
	w.line("\t\t\t}")
	w.line("\t\t\tfor (int r = 0; r < 4; r++)")
	w.line("\t\t\t\tfor (int q = 0; q < 4; q++)")
	w.line("\t\t\t\t\t%s", multiplyAdd(compute, "sum[r][q]", "x[r]", "y[q]"))
	w.line("\t\t}")
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
