package kernel

import (
	"github.com/chorus-comms/chorus/kernel/text"
)

// A transposed input has its neighbours in another dimension than the result has its own. Tiles of it are copied to
// local memory, line by line of its own, and read from there.
const (
	transposedSide  = 32 // of a tile; twice as long for a processor's small elements
	transposedLeast = 16 // elements of both dimensions
	transposedMost  = 2  // inputs
)

// transposed is the set of transposed inputs, a bit for each operand. The dimension of their neighbours becomes the
// second one.
func (p *space) transposed(outs int) (set int32) {
	if p.dims < 2 || p.sizes[0] < transposedLeast {
		return 0
	}
	inputs := 0
	for o := outs; o < p.ops && inputs < transposedMost; o++ {
		if step := p.strides[o][0]; step == 0 || step == 1 || step == -1 {
			continue
		}
		for k := 1; k < p.dims && set == 0; k++ {
			if p.strides[o][k] == 1 && p.sizes[k] >= transposedLeast {
				p.swap(1, k)
				break
			}
		}
		if p.strides[o][1] == 1 && p.sizes[1] >= transposedLeast {
			set |= 1 << o
			inputs++
		}
	}
	return set
}

// transposedTiles is how many tiles there are.
func (p *space) transposedTiles() int {
	tiles := func(n int) int { return (n + transposedSide - 1) / transposedSide }
	return p.count / (p.sizes[0] * p.sizes[1]) * tiles(p.sizes[0]) * tiles(p.sizes[1])
}

// eachTransposedTile writes a block's loop over its tiles. element does the one at j in the innermost dimension and k in
// the second. Transposed inputs are tile0[j][k] and so on.
func (w *writer) eachTransposedTile(s text.Spec, operands int, unsigned string, element func()) {
	side := transposedSide
	if s.Vector {
		side = 2 * transposedSide
		for o := range operands {
			if s.Extra[2]>>o&1 == 1 && s.Types[o].Size() > 4 {
				side = transposedSide
			}
		}
	}
	for o := range operands {
		if s.Extra[2]>>o&1 == 1 {
			w.Line("\tLOCAL %s tile%d[%d][%d];", text.Stored(s.Types[o]), o-int(s.Outs), side, side+1)
		}
	}
	w.Line("\tI inner = l.sizes[0], outer = l.sizes[1];")
	w.Line("\tI across = (inner - 1) / %d + 1, down = (outer - 1) / %[1]d + 1;", side)
	w.Line("\tI units = n / inner / outer * across * down;")
	w.eachUnit(unsigned, func() {
		w.Line("\tI row = unit / down, low = unit %% down * %d, left = row %% across * %[1]d;", side)
		w.Line("\tI width = inner - left < %d ? inner - left : %[1]d;", side)
		w.Line("\tI height = outer - low < %d ? outer - low : %[1]d;", side)
		w.Line("\trow /= across;")
		w.OffsetsFrom("row", "l", 2, int(s.Dims), operands)
		for o := range operands {
			w.Line("\tI row%d = at%[1]d + left * l.strides[%[1]d][0] + low * l.strides[%[1]d][1];", o)
		}
		for o := range operands {
			if s.Extra[2]>>o&1 == 1 {
				w.transposedLines(s, "j", "width", "k", "height", func() {
					in := o - int(s.Outs)
					w.Line("\ttile%d[j][k] = i%[1]d[row%d + j * l.strides[%[2]d][0] + k];", in, o)
				})
			}
		}
		w.Line("\tBARRIER();")
		w.transposedLines(s, "k", "height", "j", "width", func() {
			for o := range operands {
				w.Line("\tI at%d = row%[1]d + k * l.strides[%[1]d][1]%s;", o, stepOf(s, o))
			}
			element()
		})
		w.Line("\tBARRIER();")
	})
}

// transposedLines writes loops over the lines of a tile, and the elements of a line, which are neighbouring threads'.
func (w *writer) transposedLines(s text.Spec, line, lines, element, elements string, body func()) {
	if s.Vector {
		w.Line("\tfor (I %s = 0; %[1]s < %[2]s; %[1]s++) {", line, lines)
		w.Line("\tI from = 0, to = %s;", elements)
		w.ThreadLoop(s, element, body)
		w.Line("\t}")
		return
	}
	w.Line("\tif (THREAD %% %d < %s) {", transposedSide, elements)
	w.Line("\tI %s = THREAD %% %d;", element, transposedSide)
	w.Line("\tfor (I %s = THREAD / %d; %[1]s < %[3]s; %[1]s += THREADS / %[2]d) {", line, transposedSide, lines)
	body()
	w.Line("\t}}")
}
