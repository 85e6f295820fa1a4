package kernel

import (
	"fmt"
	"maps"
	"slices"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/text"
)

// ScanFamily computes a reduction of the elements up to each one in a dimension.
const ScanFamily text.Family = 7

func init() { text.Register(ScanFamily, "scan", scanSource) }

// latest is [before] for scans, of which equal elements the last counts.
const latest = `DEVICE int r_before(A b, A a) {
	if (b.i < 0 || a.i < 0)
		return b.i >= 0;
	if (b.v != b.v || a.v != a.v)
		return b.v != b.v && (a.v == a.v || b.i > a.i);
	return b.v %s a.v || (b.v == a.v && b.i > a.i);
}`

// scans are the reductions of scans.
var scans = func() map[string]*Reduction {
	m := map[string]*Reduction{}
	for name, of := range map[string]string{"cumsum": "sum", "cumprod": "prod", "logcumsumexp": "logsumexp",
		"cummax": "max", "cummin": "min"} {
		r := reductions[reductionNames[of]]
		m[name] = &r
	}
	m["cummax"].helper, m["cummin"].helper = fmt.Sprintf(latest, ">"), fmt.Sprintf(latest, "<")
	return m
}()

// Scans are the names of all scans, sorted.
func Scans() []string { return slices.Sorted(maps.Keys(scans)) }

// The forms of a scan, by what has a row: see scan.h.
const (
	scanThread = iota
	scanBlocks
	scanParts  // several blocks, which leave their accumulators
	scanJoin   // a block, of those accumulators
	scanChunks // the several blocks again
	scanGroup  // threadsOfGroup neighbours of a block
	scanRows   // a processor's block, which has some at a time
)

// A processor's scan goes along so many rows at a time, and sums so many elements before it adds them to those before.
const (
	rowsOfScan    = 4
	elementsOfSum = 256
)

// Scan adds cumsum, cumprod, logcumsumexp, cummax or cummin along a dimension; the last two have a second result, the
// indexes. The results have the input's sizes, and are other memory. Scans of long rows need scratch memory.
func (p *Plan) Scan(op string, compute dtype.DType, outs []Operand, in Operand, dim int) error {
	r, ok := scans[op]
	s := text.Spec{Family: ScanFamily, Op: op, Compute: compute, Block: threads, Outs: uint8(len(outs)), Ins: 1}
	switch {
	case !ok:
		return fmt.Errorf("kernel: there is no scan %q", op)
	case !r.Defined(compute) || compute.Size() == 2 && compute.IsFloating() || !text.Supported(compute):
		return fmt.Errorf("kernel: %s isn't computed in %v", op, compute)
	case len(outs) != r.Results() || dim < 0 || dim >= max(len(in.Sizes), 1):
		return fmt.Errorf("kernel: %s with %d results in dimension %d of %d", op, len(outs), dim, len(in.Sizes))
	}
	var l lines
	var operands [3]*Operand
	for k := range outs {
		operands[k], s.Types[k] = &outs[k], outs[k].Type
	}
	operands[len(outs)], s.Types[len(outs)] = &in, in.Type
	l.dim = dim
	if err := p.along(op, &l, operands[:len(outs)+1]); err != nil {
		return err
	}
	q, n := &p.space, l.n[len(outs)]
	for k := range outs {
		if outs[k].Type == dtype.Invalid || l.n[k] != n {
			return fmt.Errorf("kernel: %s of %v to %v", op, in.Sizes, outs[k].Sizes)
		}
	}
	if q.count == 0 || n == 0 {
		return nil
	}
	s.Dims, s.Wide = uint8(q.dims), l.wide
	add := func(form uint8, c *loader.Call, parts int, scratch device.Ptr) {
		c.Spec.Form, c.Elements = form, q.count*n*slowElement
		for k := range outs {
			c.Args.Pointer(outs[k].Ptr)
		}
		c.Args.Pointer(in.Ptr)
		c.Index(q.count)
		c.Index(n)
		for k := range len(outs) + 1 {
			c.Index(l.steps[k])
		}
		if parts > 1 {
			c.Args.Pointer(scratch)
			c.Index(parts)
		}
		if s.Dims > 0 {
			q.layout(&c.Args, s.Wide)
		}
	}
	parts := p.partsOf(q.count, n)
	switch {
	case n <= fewElements || q.dims > 0 && q.strides[0][0] == 1 && q.count >= manyResults:
		add(scanThread, p.call(s, q.count), 1, 0)
	case p.Cores > 0:
		s.Block = 1
		blocks := min((q.count-1)/rowsOfScan+1, max(1, q.count*n/loader.LeastWork), p.Cores*loader.BlocksOfCore)
		add(scanRows, p.blocks(s, device.Dim{X: blocks, Y: 1, Z: 1}), 1, 0)
	case n <= shortRow:
		add(scanGroup, p.call(s, q.count*threadsOfGroup), 1, 0)
	case parts == 1:
		add(scanBlocks, p.blocks(s, device.Dim{X: q.count, Y: 1, Z: 1}), 1, 0)
	default:
		scratch, err := p.scratch(q.count * parts * accumulator)
		if err != nil {
			return err
		}
		add(scanParts, p.blocks(s, device.Dim{X: q.count * parts, Y: 1, Z: 1}), parts, scratch)
		add(scanJoin, p.blocks(s, device.Dim{X: q.count, Y: 1, Z: 1}), parts, scratch)
		add(scanChunks, p.blocks(s, device.Dim{X: q.count * parts, Y: 1, Z: 1}), parts, scratch)
	}
	return nil
}

func scanSource(s text.Spec) (text.Source, error) {
	whole, ok := scans[s.Op]
	if !ok || !whole.Defined(s.Compute) {
		return text.Source{}, fmt.Errorf("kernel: there is no scan %s of %v", s.Op, s.Compute)
	}
	r, outs := whole.of(s.Compute), int(s.Outs)
	var w writer
	w.Begin(s)
	w.accumulator(r, 0, s.Compute)
	steps, write, keep, at := "", "", "", "at%d"
	if s.Form == scanRows {
		at = "from[%d]"
		w.Include("batch")
	}
	place := func(k int) string { return fmt.Sprintf(at+" + i * step%[1]d", k) }
	for k := range outs + 1 {
		steps += fmt.Sprintf(", I step%d", k)
		keep += fmt.Sprintf("from[%d] = at%[1]d; ", k)
	}
	for k, o := range r.done {
		write += fmt.Sprintf("o%d[%s] = %s; ", k, place(k),
			text.Narrowed(s.Types[k], o.kind.dtype(s.Compute), fmt.Sprintf("r_done%d(a, i + 1)", k)))
	}
	w.Defines(s, outs+1)
	w.Define("OPERANDS", outs+1)
	w.Define("STEPS", steps)
	w.Define("KEEP_OFFSETS(from)", keep)
	w.Define("VALUE(from)", fmt.Sprintf("IN0(i0[%s])", place(outs)))
	w.Define("WRITE(a, from)", write)
	w.Define("ELEMENTS_OF_SUM", elementsOfSum)
	w.Define("GROUP", threadsOfGroup)
	w.Define([...]string{"ROW_OF_THREAD", "SCAN_BLOCKS", "SCAN_PARTS", "SCAN_JOIN", "SCAN_CHUNKS", "SCAN_GROUPS",
		"ROWS_AT_ONCE"}[s.Form], "")
	w.Define("SCRATCH", map[bool]string{true: ", GLOBAL A *scratch, I parts"}[s.Form >= scanParts && s.Form <= scanChunks])
	return w.File("scan", "scan_"+s.Op)
}
