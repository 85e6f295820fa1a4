package kernel

import (
	"fmt"
	"strings"

	"github.com/chorus-comms/chorus/device"
)

// On a processor a block has several short rows at a time. Its threads are the lanes of a vector. They share the
// elements of one row after the other. Then each has a row, of which it joins what the lanes have added: that is so
// many rows at once, where one lane would do it for a row while the others wait.
const (
	mostRows     = processorThreads
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
func (p *Plan) sharing(s Spec, rows, n int) *Call {
	blocks := rows
	if p.Cores > 0 {
		blocks = min(blocks, max(1, rows*n/processorLeast), p.Cores*processorBlocks)
	}
	c := p.blocks(s, device.Dim{X: blocks, Y: 1, Z: 1})
	c.shape = anyBlock
	return c
}

// eachBatch writes a loop over a block's rows, of which all blocks together have `rows`. body has `first`, and `count`
// rows, at most so many.
func (w *writer) eachBatch(rows string, most int, body func()) {
	w.line("\tI share = (I)((U)(%s - 1) / (U)BLOCKS) + 1, begin = (I)BLOCK * share;", rows)
	w.line("\tI end = %s - begin < share ? %[1]s : begin + share;", rows)
	w.line("\tfor (I first = begin; first < end; first += %d) {", most)
	w.line("\tI count = end - first < %d ? end - first : %[1]d;", most)
	body()
	w.line("\t}")
}

// batches writes the body of a processor's kernel on rows.
func (w *rowWriter) batches() {
	s, o := w.s, w.o
	most, lanes := max(1, int(s.Extra[3])), int(s.Block)
	// An exponential costs a processor more than storing it in a result of the same type.
	keeps := o.kept != "" && s.Types[0] == s.Compute
	w.line("\tLOCAL T lanes_v[%d];", most*lanes)
	for _, stage := range o.stages {
		if stage.u != "" {
			w.line("\tLOCAL T lanes_u[%d];", most*lanes)
		}
		for _, name := range stage.names {
			w.line("\tLOCAL T all_%c[%d];", name, most)
		}
	}
	w.line("\tT n = (T)length;")
	eachRow := func(stages int, body func()) {
		w.line("\tfor (I r = 0; r < count; r++) {")
		w.line("\tI row = first + r;")
		w.begins()
		w.known(stages, "r")
		body()
		w.line("\t}")
	}
	each := func(body func()) { // element of the row
		w.line("\t{ I from = 0, to = length;")
		w.threadLoop(s, "j", body)
		w.line("\t}")
	}
	w.eachBatch("rows", most, func() {
		for k, stage := range o.stages {
			last := k == len(o.stages)-1
			eachRow(k, func() {
				w.sums(stage, func(a string) {
					v := stage.v
					w.element()
					if keeps && last {
						w.line("\t\tT e = %s;", v)
						w.line("\t\to0[%s] = e;", w.at(0))
						v = "e"
					}
					w.line("\t\t%s", stage.join(a, v, stage.u))
				})
				w.line("\tlanes_v[r * %d + THREAD] = a.v;", lanes)
				if stage.u != "" {
					w.line("\tlanes_u[r * %d + THREAD] = a.u;", lanes)
				}
			})
			w.line("\tBARRIER();")
			w.line("\tif (THREAD < count) {")
			w.known(k, "THREAD")
			w.line("\tA a;")
			w.line("\ta.v = %s; a.u = 0;", stage.first())
			w.line("\tfor (int k = 0; k < %d; k++) { %s }", lanes,
				stage.join("a", fmt.Sprintf("lanes_v[THREAD * %d + k]", lanes), fmt.Sprintf("lanes_u[THREAD * %d + k]", lanes)))
			w.line("\t%s", stage.result)
			for _, name := range stage.names {
				w.line("\tall_%c[THREAD] = %[1]c;", name)
			}
			if last && len(o.rowOut) > 0 {
				w.line("\tI row = first + THREAD;")
				w.rowResults()
			}
			w.line("\t}")
			w.line("\tBARRIER();")
		}
		eachRow(len(o.stages), func() {
			each(func() {
				if keeps {
					w.line("\t\tT e = o0[%s];", w.at(0))
					w.line("\t\to0[%s] = %s;", w.at(0), o.kept)
					return
				}
				w.result()
			})
		})
		w.line("\tBARRIER();")
	})
}

// known writes what the first stages have found out of a row.
func (w *rowWriter) known(stages int, of string) {
	for _, stage := range w.o.stages[:stages] {
		for _, name := range stage.names {
			w.line("\tT %c = all_%[1]c[%s];", name, of)
		}
	}
}

// sums writes the accumulators of a stage over a row, of which there are several, as in [writer.accumulate], and joins
// them in the first one. step adds element j to one of them.
func (w *rowWriter) sums(stage rowStage, step func(a string)) {
	w.line("\tA %s;", strings.Join(accumulators[:], ", "))
	for _, a := range accumulators {
		w.line("\t%s.v = %s; %[1]s.u = 0;", a, stage.first())
	}
	w.line("\t{ I from = 0, to = length, at = from;")
	w.accumulate(w.s, "j", step)
	w.line("\t}")
	for _, b := range accumulators[1:] {
		w.line("\t%s", stage.join("a", b+".v", b+".u"))
	}
}
