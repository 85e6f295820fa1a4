package kernel

import (
	"fmt"

	"github.com/chorus-comms/chorus/kernel/text"
)

// A processor's scan of long rows: a block of one thread goes along four rows at a time, since each sum of a row waits
// for the one before. A row is summed in pieces, so that long sums are as precise as short ones.
const (
	scanRows      = 1 + reduceColumns // a form beside those of reductions
	rowsOfScan    = 4
	elementsOfSum = 256
)

// scannedRows writes such a kernel, whose parameters are the steps of its operands.
func (w *writer) scannedRows(s text.Spec, r *Reduction, steps string) (text.Source, error) {
	outs := int(s.Outs)
	w.LayoutType("kept", int(s.Dims), outs+1)
	w.Pointers(s)
	w.Param("I rows, I n%s", steps)
	if s.Dims > 0 {
		w.Param("kept l")
	}
	w.Line("ONE_THREAD")
	w.Function("scan_" + s.Op)
	scan := func(rows int) { // that many from `next`
		each := func(line func(k int)) {
			for k := range rows {
				line(k)
			}
		}
		each(func(k int) {
			for o := range outs + 1 {
				w.Line("\tI from%d_%d;", o, k)
			}
			w.Line("\t{ I row = next + %d;", k)
			w.Offsets("row", "l", int(s.Dims), outs+1)
			for o := range outs + 1 {
				w.Line("\tfrom%d_%d = at%[1]d;", o, k)
			}
			w.Line("\t}")
			w.Line("\tA total%d = r_init();", k)
		})
		w.Line("\tfor (I start = 0; start < n; start += %d) {", elementsOfSum)
		w.Line("\tI stop = n - start < %d ? n : start + %[1]d;", elementsOfSum)
		each(func(k int) { w.Line("\tA a%d = r_init();", k) })
		w.Line("\tfor (I i = start; i < stop; i++) {")
		each(func(k int) { // all are read before one is written, which may lie as far from the start of a page
			x := fmt.Sprintf("i0[from%d_%d + i * step%[1]d]", outs, k)
			w.Line("\t\tT x%d = %s;", k, text.Converted(s.Compute, s.Inputs()[0], x))
		})
		each(func(k int) {
			w.Line("\t\ta%d = r_step(a%[1]d, x%[1]d, i);", k)
			w.Line("\t\tA sum%d = r_join(total%[1]d, a%[1]d);", k)
		})
		each(func(k int) {
			for j, o := range r.done {
				done := fmt.Sprintf("r_done%d(sum%d, i + 1)", j, k)
				w.Line("\t\to%d[from%[1]d_%d + i * step%[1]d] = %[3]s;", j, k, text.Narrowed(s.Types[j], o.kind.dtype(s.Compute),
					done))
			}
		})
		w.Line("\t}")
		each(func(k int) { w.Line("\ttotal%d = r_join(total%[1]d, a%[1]d);", k) })
		w.Line("\t}")
	}
	w.eachBatch("rows", rowsOfScan, func() {
		w.Line("\tI next = first;")
		w.Line("\tif (count == %d) {", rowsOfScan)
		scan(rowsOfScan)
		w.Line("\t} else for (; next < first + count; next++) {")
		scan(1)
		w.Line("\t}")
	})
	return w.Done()
}
