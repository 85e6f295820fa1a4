package kernel

import (
	"fmt"
	"strings"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/text"
)

// SortFamily puts the elements of lines along a dimension in order.
//
// An element's key is an unsigned integer with the element's order. A block sorts the keys of short lines, or of pieces
// of a long one, in local memory. Runs of sorted keys are then merged, two at a time. Of results that are the first k
// elements, runs keep k.
const SortFamily text.Family = 30

func init() { text.Register(SortFamily, "sort", sortSource) }

// The forms of a sort.
const (
	sortLines     = iota // a block sorts short lines
	sortPieces           // a block sorts a piece of a long line, or short lines, for the forms that follow
	sortFirst            // a block finds the first elements of a larger piece
	sortMerge            // a thread merges part of two runs
	sortWrite            // a thread writes an element of a result
	sortMedian           // a thread writes the median of a line; NaN if there is one
	sortNanMedian        // likewise, of what isn't NaN
	sortMode             // a block writes the most frequent element of a line
)

// sortPiece is how many elements a block sorts, sortUnit how many a thread merges. Of sortLarge elements a block finds
// the first ones, if they are at most sortFew.
const sortPiece, sortUnit, sortLarge, sortFew = 1024, 8, 16 << 10, 256

// Sort adds sorting along a dimension, stably: equal elements keep their order. NaN is larger than all numbers, and
// -0 equals 0. values has the type of in, and indexes is int64; either may be the zero Operand. The results have the
// sizes of in, or fewer elements in the dimension: the first ones of the order. They are other memory than in. More
// than 1024 elements in the dimension need scratch memory.
func (p *Plan) Sort(values, indexes, in Operand, dim int, descending bool) error {
	return p.sort("sort", sortWrite, values, indexes, in, dim, 0, descending)
}

// Kth adds taking the k-th smallest element, counted from 1, along a dimension, and its index. The results have one
// element there.
func (p *Plan) Kth(values, indexes, in Operand, dim, k int) error {
	if k < 1 {
		return fmt.Errorf("kernel: kthvalue with k = %d", k)
	}
	return p.sort("kthvalue", sortWrite, values, indexes, in, dim, k-1, false)
}

// Median adds taking the lower median along a dimension, and its index. It's the first NaN of a line that has one, or
// with ignore the median of the numbers. The results have one element there.
func (p *Plan) Median(values, indexes, in Operand, dim int, ignore bool) error {
	form := uint8(sortMedian)
	if ignore {
		form = sortNanMedian
	}
	return p.sort("median", form, values, indexes, in, dim, 0, false)
}

// Mode adds taking the most frequent element along a dimension, of several the smallest, and the last of its indexes.
// The results have one element there.
func (p *Plan) Mode(values, indexes, in Operand, dim int) error {
	return p.sort("mode", sortMode, values, indexes, in, dim, 0, false)
}

// sort adds a sort whose results are elements from a place of the order on, or what a form takes of the whole line.
func (p *Plan) sort(op string, form uint8, values, indexes, in Operand, dim, from int, descending bool) error {
	l := lines{dim: dim}
	operands := [3]*Operand{&values, &indexes, &in}
	results, err := p.sortResults(op, &l, operands)
	if err != nil {
		return err
	}
	q, n := &p.space, l.n[2]
	if q.count == 0 || results == 0 {
		return nil
	}
	keep := from + results
	if form > sortWrite {
		keep = n
	}
	if keep > n || form > sortWrite && (results != 1 || n == 0) || op == "kthvalue" && results != 1 {
		return fmt.Errorf("kernel: %s: %d results from place %d on, of %d elements", op, results, from, n)
	}
	s := text.Spec{Family: SortFamily, Compute: in.Type, Block: threads, Outs: 2, Ins: 1, Dims: uint8(q.dims),
		Wide: l.wide || wide(n)}
	s.Types = [text.MaxOperands]dtype.DType{in.Type, dtype.Int64, in.Type}
	tensors := func(c *loader.Call) { p.sortArguments(c, &l, operands) }
	piece, few := sortPiece, keep <= sortFew && n > 4*sortPiece
	if few {
		piece = sortLarge
	}
	span, pieces := 1, (n+piece-1)/piece
	for span < min(n, sortPiece) {
		span *= 2
	}
	each := sortPiece / span // lines or pieces of a block
	flip := map[bool]int32{true: -1}[descending]
	grid := device.Dim{X: (q.count*pieces + each - 1) / each, Y: 1, Z: 1}
	if s.Form = sortLines; n <= sortPiece && form == sortWrite {
		c := p.blocks(s, grid)
		tensors(c)
		c.Args.Int32(int32(span)).Int32(flip)
		c.Index(from)
		c.Index(keep)
		return nil
	}
	room := q.count * sortRoom(piece, pieces, keep)
	s.Wide = s.Wide || wide(room)
	keys, places, err := p.sortBuffers(room, in.Type.Size(), s.Wide, pieces > 1)
	if err != nil {
		return err
	}
	if s.Form = sortPieces; few {
		s.Form = sortFirst
	}
	c := p.blocks(s, grid)
	tensors(c)
	c.Args.Int32(int32(span)).Int32(flip)
	c.Index(pieces)
	c.Index(min(piece, keep))
	c.Args.Pointer(keys[0]).Pointer(places[0])
	run, now := p.sortMerges(s, n, piece, pieces, keep, keys, places)
	s.Form = form
	switch form {
	case sortWrite:
		c = p.call(s, q.count*results)
	case sortMode:
		c = p.blocks(s, device.Dim{X: q.count, Y: 1, Z: 1})
	default:
		c = p.call(s, q.count)
	}
	tensors(c)
	c.Index(from)
	c.Index(results)
	c.Index(min(run, keep))
	c.Args.Pointer(keys[now]).Pointer(places[now])
	return nil
}

// sortArguments adds those that all forms but merges begin with.
func (p *Plan) sortArguments(c *loader.Call, l *lines, operands [3]*Operand) {
	for _, o := range operands {
		c.Args.Pointer(o.Ptr)
	}
	c.Index(p.space.count)
	c.Index(l.n[2])
	for k := range operands {
		c.Index(l.steps[k])
	}
	if c.Spec.Dims > 0 {
		p.space.layout(&c.Args, c.Spec.Wide)
	}
}

// sortRoom is how many keys of a line a buffer has. Two buffers take turns. Between runs of a line are gaps, where a run
// has fewer elements than others.
func sortRoom(run, runs, keep int) (room int) {
	for ; ; run, runs = 2*run, (runs+1)/2 {
		room = max(room, runs*min(run, keep))
		if runs == 1 {
			return room
		}
	}
}

// sortMerges adds runs that merge sorted ones of lines of n elements until each line is one. It returns how long that is
// and in which buffer.
func (p *Plan) sortMerges(s text.Spec, n, run, runs, keep int, keys, places [2]device.Ptr) (length, now int) {
	s.Form, s.Dims = sortMerge, 0
	for ; runs > 1; run, runs, now = 2*run, (runs+1)/2, 1-now {
		pitch, next := min(run, keep), min(2*run, keep)
		units := (next + sortUnit - 1) / sortUnit
		c := p.call(s, p.space.count*((runs+1)/2)*units)
		c.Args.Pointer(keys[1-now]).Pointer(places[1-now]).Pointer(keys[now]).Pointer(places[now])
		for _, v := range [...]int{p.space.count, n, run, runs, pitch, next, units} {
			c.Index(v)
		}
	}
	return run, now
}

// sortBuffers are scratch memory for so many keys of a size, and their places. There are two if runs are merged.
func (p *Plan) sortBuffers(room, bytes int, wide, merged bool) (keys, places [2]device.Ptr, err error) {
	size := 4
	if wide {
		size = 8
	}
	for k := range keys {
		if k == 1 && !merged {
			break
		}
		if keys[k], err = p.scratch(room * bytes); err != nil {
			return keys, places, err
		}
		if places[k], err = p.scratch(room * size); err != nil {
			return keys, places, err
		}
	}
	return keys, places, nil
}

// sortResults fills the plan's space and l, and returns how many elements of a line become results.
func (p *Plan) sortResults(op string, l *lines, operands [3]*Operand) (results int, err error) {
	in := operands[2]
	if in.Type.IsComplex() {
		return 0, fmt.Errorf("kernel: %s of %v isn't defined", op, in.Type)
	}
	if in.Type == dtype.Invalid {
		return 0, fmt.Errorf("kernel: %s of no input", op)
	}
	if err := p.along(op, l, operands[:]); err != nil {
		return 0, err
	}
	for k, o := range operands[:2] {
		if o.Type == dtype.Invalid {
			continue
		}
		if want := [2]dtype.DType{in.Type, dtype.Int64}[k]; o.Type != want {
			return 0, fmt.Errorf("kernel: %s of %v with a result of %v instead of %v", op, in.Type, o.Type, want)
		}
		if results > 0 && l.n[k] != results {
			return 0, fmt.Errorf("kernel: %s with %d values and %d indexes", op, results, l.n[k])
		}
		if results = l.n[k]; results == 0 {
			break
		}
	}
	return results, nil
}

// sortKey is an expression of the bits x of an element, an unsigned integer of its size, whose order is the element's.
// The largest key is that of NaN.
func sortKey(t dtype.DType) string {
	bits := 8 * t.Size()
	hex := func(v uint64) string {
		return fmt.Sprintf("(K)%#x%s", v, map[bool]string{true: "ul", false: "u"}[bits == 64])
	}
	sign := uint64(1) << (bits - 1)
	switch {
	case t == dtype.Bool:
		return "(K)(x != 0)"
	case !t.IsFloating() && t.IsSigned():
		return "(K)(x ^ " + hex(sign) + ")"
	case !t.IsFloating():
		return "x"
	}
	inf := map[dtype.DType]uint64{dtype.Float16: 0x7c00, dtype.BFloat16: 0x7f80, dtype.Float32: 0x7f800000,
		dtype.Float64: 0x7ff0000000000000}[t]
	a := "(K)(x & " + hex(sign-1) + ")"
	return fmt.Sprintf("%s > %s ? (K)~(K)0 : %s == 0 ? %s : x & %[4]s ? (K)~x : (K)(x | %[4]s)", a, hex(inf), a, hex(sign))
}

func sortSource(s text.Spec) (text.Source, error) {
	t := s.Types[0]
	var w writer
	w.Line("typedef %s T;", map[int]string{1: "u8", 2: "u16", 4: "u32", 8: "u64"}[t.Size()]) // the bits of elements
	w.Line("typedef %s I;", map[bool]string{true: "i64", false: "i32"}[s.Wide])
	w.Define("KEY", sortKey(t))
	nan := "0"
	if t.IsFloating() {
		nan = "x == (K)~(K)0"
		w.Define("FLOATING", "")
	}
	w.Define("IS_NAN(x)", nan)
	w.Define("PIECE", sortPiece)
	w.Define("LARGE", sortLarge)
	w.Define("UNIT", sortUnit)
	w.Define("THREADS_OF_BLOCK", s.Block)
	form := [...]string{"lines", "pieces", "first", "merge", "write", "median", "nanmedian", "mode"}[s.Form]
	w.Define("SORT_"+strings.ToUpper(form), "")
	w.Layout(s, 3)
	return w.File("sort", "sort_"+form)
}
