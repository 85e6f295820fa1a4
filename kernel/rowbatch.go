package kernel

import (
	"fmt"
	"strings"

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

// eachBatch writes a loop over a block's rows, of which all blocks together have `rows`. body has `first`, and `count`
// rows, at most so many.
func (w *writer) eachBatch(rows string, most int, body func()) {
	w.Line("\tI share = (I)((U)(%s - 1) / (U)BLOCKS) + 1, begin = (I)BLOCK * share;", rows)
	w.Line("\tI end = %s - begin < share ? %[1]s : begin + share;", rows)
	w.Line("\tfor (I first = begin; first < end; first += %d) {", most)
	w.Line("\tI count = end - first < %d ? end - first : %[1]d;", most)
	body()
	w.Line("\t}")
}

// batches writes the body of a processor's kernel on rows.
func (w *rowWriter) batches() {
	s, o := w.s, w.o
	most, lanes := max(1, int(s.Extra[3])), int(s.Block)
	// An exponential costs a processor more than storing it in a result of the same type.
	keeps := o.kept != "" && s.Types[0] == s.Compute
	w.Line("\tLOCAL T lanes_v[%d];", most*lanes)
	for _, stage := range o.stages {
		if stage.u != "" {
			w.Line("\tLOCAL T lanes_u[%d];", most*lanes)
		}
		for _, name := range stage.names {
			w.Line("\tLOCAL T all_%c[%d];", name, most)
		}
	}
	w.Line("\tT n = (T)length;")
	eachRow := func(stages int, body func()) {
		w.Line("\tfor (I r = 0; r < count; r++) {")
		w.Line("\tI row = first + r;")
		w.begins()
		w.known(stages, "r")
		body()
		w.Line("\t}")
	}
	each := func(body func()) { // element of the row
		w.Line("\t{ I from = 0, to = length;")
		w.ThreadLoop(s, "j", body)
		w.Line("\t}")
	}
	w.eachBatch("rows", most, func() {
		for k, stage := range o.stages {
			last := k == len(o.stages)-1
			eachRow(k, func() {
				w.sums(stage, func(a string) {
					v := stage.v
					w.element()
					if keeps && last {
						w.Line("\t\tT e = %s;", v)
						w.Line("\t\to0[%s] = e;", w.at(0))
						v = "e"
					}
					w.Line("\t\t%s", stage.join(a, v, stage.u))
				})
				w.Line("\tlanes_v[r * %d + THREAD] = a.v;", lanes)
				if stage.u != "" {
					w.Line("\tlanes_u[r * %d + THREAD] = a.u;", lanes)
				}
			})
			w.Line("\tBARRIER();")
			w.Line("\tif (THREAD < count) {")
			w.known(k, "THREAD")
			w.Line("\tA a;")
			w.Line("\ta.v = %s; a.u = 0;", stage.first())
			w.Line("\tfor (int k = 0; k < %d; k++) { %s }", lanes,
				stage.join("a", fmt.Sprintf("lanes_v[THREAD * %d + k]", lanes), fmt.Sprintf("lanes_u[THREAD * %d + k]", lanes)))
			w.Line("\t%s", stage.result)
			for _, name := range stage.names {
				w.Line("\tall_%c[THREAD] = %[1]c;", name)
			}
			if last && len(o.rowOut) > 0 {
				w.Line("\tI row = first + THREAD;")
				w.rowResults()
			}
			w.Line("\t}")
			w.Line("\tBARRIER();")
		}
		eachRow(len(o.stages), func() {
			each(func() {
				if keeps {
					w.Line("\t\tT e = o0[%s];", w.at(0))
					w.Line("\t\to0[%s] = %s;", w.at(0), o.kept)
					return
				}
				w.result()
			})
		})
		w.Line("\tBARRIER();")
	})
}

// known writes what the first stages have found out of a row.
func (w *rowWriter) known(stages int, of string) {
	for _, stage := range w.o.stages[:stages] {
		for _, name := range stage.names {
			w.Line("\tT %c = all_%[1]c[%s];", name, of)
		}
	}
}

// sums writes the accumulators of a stage over a row, of which there are several, as in [writer.accumulate], and joins
// them in the first one. step adds element j to one of them.
func (w *rowWriter) sums(stage rowStage, step func(a string)) {
	w.Line("\tA %s;", strings.Join(accumulators[:], ", "))
	for _, a := range accumulators {
		w.Line("\t%s.v = %s; %[1]s.u = 0;", a, stage.first())
	}
	w.Line("\t{ I from = 0, to = length, at = from;")
	w.accumulate(w.s, "j", step)
	w.Line("\t}")
	for _, b := range accumulators[1:] {
		w.Line("\t%s", stage.join("a", b+".v", b+".u"))
	}
}
