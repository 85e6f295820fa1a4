package kernel

import (
	"fmt"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
)

// SortFamily puts the elements of lines along a dimension in order.
//
// An element's key is an unsigned integer with the element's order. A block sorts the keys of short lines, or of pieces
// of a long one, in local memory. Runs of sorted keys are then merged, two at a time. Of results that are the first k
// elements, runs keep k.
const SortFamily Family = 30

func init() { register(SortFamily, "sort", sortSource) }

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
	if in.Type.IsComplex() {
		return fmt.Errorf("kernel: %s of %v isn't defined", op, in.Type)
	}
	if in.Type == dtype.Invalid {
		return fmt.Errorf("kernel: %s of no input", op)
	}
	if err := p.along(op, &l, operands[:]); err != nil {
		return err
	}
	q, n, results := &p.space, l.n[2], 0
	for k, o := range operands[:2] {
		if o.Type == dtype.Invalid {
			continue
		}
		if want := [2]dtype.DType{in.Type, dtype.Int64}[k]; o.Type != want {
			return fmt.Errorf("kernel: %s of %v with a result of %v instead of %v", op, in.Type, o.Type, want)
		}
		if results > 0 && l.n[k] != results {
			return fmt.Errorf("kernel: %s with %d values and %d indexes", op, results, l.n[k])
		}
		if results = l.n[k]; results == 0 {
			break
		}
	}
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
	s := Spec{Family: SortFamily, Compute: in.Type, Block: threads, Outs: 2, Ins: 1, Dims: uint8(q.dims),
		Wide: l.wide || wide(n)}
	s.Types = [MaxOperands]dtype.DType{in.Type, dtype.Int64, in.Type}
	tensors := func(c *Call) {
		for _, o := range operands {
			c.Args.Pointer(o.Ptr)
		}
		c.index(q.count)
		c.index(n)
		for k := range operands {
			c.index(l.steps[k])
		}
		if s.Dims > 0 {
			q.layout(&c.Args, s.Wide)
		}
	}
	piece, few := sortPiece, keep <= sortFew && n > 4*sortPiece
	if few {
		piece = sortLarge
	}
	span, pieces := 1, (n+piece-1)/piece
	for span < min(n, sortPiece) {
		span *= 2
	}
	each := sortPiece / span // lines or pieces of a block
	flip := int32(0)
	if descending {
		flip = -1
	}
	grid := device.Dim{X: (q.count*pieces + each - 1) / each, Y: 1, Z: 1}
	if s.Form = sortLines; n <= sortPiece && form == sortWrite {
		c := p.blocks(s, grid)
		tensors(c)
		c.Args.Int32(int32(span)).Int32(flip)
		c.index(from)
		c.index(keep)
		return nil
	}
	// Two buffers take turns. Between runs of a line are gaps, where a run has fewer elements than others.
	room := 0
	for run, runs := piece, pieces; ; run, runs = 2*run, (runs+1)/2 {
		room = max(room, runs*min(run, keep))
		if runs == 1 {
			break
		}
	}
	room *= q.count
	s.Wide = s.Wide || wide(room)
	var keys, places [2]device.Ptr
	size := 4
	if s.Wide {
		size = 8
	}
	for k := range keys {
		if k == 1 && pieces == 1 {
			break
		}
		var err error
		if keys[k], err = p.scratch(room * in.Type.Size()); err != nil {
			return err
		}
		if places[k], err = p.scratch(room * size); err != nil {
			return err
		}
	}
	if s.Form = sortPieces; few {
		s.Form = sortFirst
	}
	c := p.blocks(s, grid)
	tensors(c)
	c.Args.Int32(int32(span)).Int32(flip)
	c.index(pieces)
	c.index(min(piece, keep))
	c.Args.Pointer(keys[0]).Pointer(places[0])
	run, runs, now := piece, pieces, 0
	merge := s
	merge.Form, merge.Dims = sortMerge, 0
	for ; runs > 1; run, runs, now = 2*run, (runs+1)/2, 1-now {
		pitch, next := min(run, keep), min(2*run, keep)
		units := (next + sortUnit - 1) / sortUnit
		c = p.call(merge, q.count*((runs+1)/2)*units)
		c.Args.Pointer(keys[1-now]).Pointer(places[1-now]).Pointer(keys[now]).Pointer(places[now])
		for _, v := range [...]int{q.count, n, run, runs, pitch, next, units} {
			c.index(v)
		}
	}
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
	c.index(from)
	c.index(results)
	c.index(min(run, keep))
	c.Args.Pointer(keys[now]).Pointer(places[now])
	return nil
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

func sortSource(s Spec) (Source, error) {
	t := s.Types[0]
	var w writer
	w.line("typedef %s T;", map[int]string{1: "u8", 2: "u16", 4: "u32", 8: "u64"}[t.Size()]) // the bits of elements
	w.line("typedef T K;")
	w.line("typedef %s I;", map[bool]string{true: "i64", false: "i32"}[s.Wide])
	w.line("DEVICE K key_of(T x) { return %s; }", sortKey(t))
	w.layoutType("layout", int(s.Dims), 3)
	if s.Form == sortMerge {
		return w.sortMerge()
	}
	w.param("GLOBAL T *o0, GLOBAL i64 *o1, GLOBAL const T *i0, I rows, I n, I step0, I step1, I step2")
	if s.Dims > 0 {
		w.param("layout l")
	}
	if s.Form == sortFirst {
		return w.sortFirst(s)
	}
	if s.Form <= sortPieces {
		return w.sortBlock(s)
	}
	w.param("I from, I results, I pitch, GLOBAL const K *keys, GLOBAL const I *places")
	w.function([...]string{"", "", "", "", "sort_write", "sort_median", "sort_nanmedian", "sort_mode"}[s.Form])
	switch s.Form {
	case sortWrite:
		w.line("\tI g = (I)(BLOCK * THREADS + THREAD), row = g / results, j = g %% results, at = from + j;")
		w.line("\tif (row >= rows)")
		w.line("\t\treturn;")
	case sortMode:
		w.sortMode(s, t)
	default:
		w.line("\tI row = (I)(BLOCK * THREADS + THREAD), j = 0, at, low = 0, high = n;")
		w.line("\tif (row >= rows)")
		w.line("\t\treturn;")
		if t.IsFloating() {
			w.line("\twhile (low < high) {") // to the first NaN
			w.line("\t\tI mid = low + (high - low) / 2;")
			w.line("\t\tif (keys[row * pitch + mid] == (K)~(K)0)")
			w.line("\t\t\thigh = mid;")
			w.line("\t\telse")
			w.line("\t\t\tlow = mid + 1;")
			w.line("\t}")
		} else {
			w.line("\tlow = n;")
		}
		if s.Form == sortMedian {
			w.line("\tat = low < n ? low : (n - 1) / 2;")
		} else {
			w.line("\tat = low == 0 ? 0 : (low - 1) / 2;")
		}
	}
	w.places("row", "l", int(s.Dims), 3)
	w.line("\tI place = places[row * pitch + at];")
	w.line("\tif (o0)")
	w.line("\t\to0[at0 + j * step0] = i0[at2 + place * step2];")
	w.line("\tif (o1)")
	w.line("\t\to1[at1 + j * step1] = place;")
	return w.done()
}

// network writes Batcher's bitonic network, which sorts each span of the keys in local memory. The places that they
// come from make equal keys different, so that the order is stable.
func (w *writer) network(place string) {
	w.line("\tfor (int k = 2; k <= span; k *= 2)")
	w.line("\t\tfor (int d = k / 2; d > 0; d /= 2) {")
	w.line("\t\t\tfor (int e = THREAD; e < %d; e += THREADS) {", sortPiece/2)
	w.line("\t\t\t\tint a = 2 * e - (e & (d - 1)), b = a + d;")
	w.line("\t\t\t\tint up = (a & (span - 1) & k) == 0;")
	w.line("\t\t\t\tK x = key[a], y = key[b];")
	w.line("\t\t\t\t%s p = from_[a], q = from_[b];", place)
	w.line("\t\t\t\tif ((x > y || (x == y && p > q)) == up) {")
	w.line("\t\t\t\t\tkey[a] = y;")
	w.line("\t\t\t\t\tkey[b] = x;")
	w.line("\t\t\t\t\tfrom_[a] = q;")
	w.line("\t\t\t\t\tfrom_[b] = p;")
	w.line("\t\t\t\t}")
	w.line("\t\t\t}")
	w.line("\t\t\tBARRIER();")
	w.line("\t\t}")
}

// sortBlock writes the kernel that sorts in local memory.
func (w *writer) sortBlock(s Spec) (Source, error) {
	w.param("i32 span, i32 flip")
	if s.Form == sortLines {
		w.param("I from, I keep")
		w.function("sort_lines")
		w.line("\tI pieces = 1;")
	} else {
		w.param("I pieces, I pitch, GLOBAL K *keys, GLOBAL I *places")
		w.function("sort_pieces")
	}
	w.line("\tLOCAL K key[%d];", sortPiece)
	w.line("\tLOCAL u16 from_[%d];", sortPiece)
	w.line("\tI each = %d / span;", sortPiece)
	element := func() {
		w.line("\t\tint j = e & (span - 1);")
		w.line("\t\tI item = (I)BLOCK * each + e / span, row = item / pieces, piece = item %% pieces;")
		w.line("\t\tI i = piece * %d + j;", sortPiece)
	}
	w.line("\tfor (int e = THREAD; e < %d; e += THREADS) {", sortPiece)
	element()
	w.line("\t\tK k = (K)~(K)0;")
	w.line("\t\tif (row < rows && i < n) {")
	w.places("row", "l", int(s.Dims), 3)
	w.line("\t\t\tk = (K)(key_of(i0[at2 + i * step2]) ^ (K)flip);")
	w.line("\t\t}")
	w.line("\t\tkey[e] = k;")
	w.line("\t\tfrom_[e] = (u16)j;")
	w.line("\t}")
	w.line("\tBARRIER();")
	w.network("u16")
	w.line("\tfor (int e = THREAD; e < %d; e += THREADS) {", sortPiece)
	element()
	if s.Form == sortPieces {
		w.line("\t\tif (row < rows && i < n && j < pitch) {")
		w.line("\t\t\tkeys[item * pitch + j] = key[e];")
		w.line("\t\t\tplaces[item * pitch + j] = i - j + from_[e];")
		w.line("\t\t}")
		w.line("\t}")
		return w.done()
	}
	w.line("\t\tif (row < rows && j >= from && j < keep) {")
	w.places("row", "l", int(s.Dims), 3)
	w.line("\t\t\tI place = from_[e], to = j - from;")
	w.line("\t\t\tif (o0)")
	w.line("\t\t\t\to0[at0 + to * step0] = i0[at2 + place * step2];")
	w.line("\t\t\tif (o1)")
	w.line("\t\t\t\to1[at1 + to * step1] = place;")
	w.line("\t\t}")
	w.line("\t}")
	return w.done()
}

// sortFirst writes the kernel that gathers elements of a piece in local memory and drops all but the first ones when
// that is full. Elements behind the last of these aren't gathered from then on.
func (w *writer) sortFirst(s Spec) (Source, error) {
	w.param("i32 span, i32 flip, I pieces, I pitch, GLOBAL K *keys, GLOBAL I *places")
	w.function("sort_first")
	w.line("\tLOCAL K key[%d];", sortPiece)
	w.line("\tLOCAL I from_[%d];", sortPiece)
	w.line("\tLOCAL u32 count;")
	w.line("\tI row = (I)BLOCK / pieces, piece = (I)BLOCK %% pieces, first = piece * %d;", sortLarge)
	w.line("\tI end = n - first < %d ? n : first + %[1]d, base = first;", sortLarge)
	w.line("\tK last = (K)~(K)0;")
	w.line("\tint some = 0;") // have been dropped
	w.places("row", "l", int(s.Dims), 3)
	w.line("\tif (THREAD == 0)")
	w.line("\t\tcount = 0;")
	w.line("\tBARRIER();")
	w.line("\twhile (base < end) {")
	w.line("\t\tu32 now;")
	w.line("\t\tdo {")
	w.line("\t\t\tI i = base + THREAD;")
	w.line("\t\t\tif (i < end) {")
	w.line("\t\t\t\tK k = (K)(key_of(i0[at2 + i * step2]) ^ (K)flip);")
	w.line("\t\t\t\tif (!some || k < last) {")
	w.line("\t\t\t\t\tu32 to = ADD_LOCAL(&count, 1u);")
	w.line("\t\t\t\t\tkey[to] = k;")
	w.line("\t\t\t\t\tfrom_[to] = i;")
	w.line("\t\t\t\t}")
	w.line("\t\t\t}")
	w.line("\t\t\tbase += THREADS;")
	w.line("\t\t\tBARRIER();")
	w.line("\t\t\tnow = count;")
	w.line("\t\t\tBARRIER();")
	w.line("\t\t} while (base < end && now + THREADS <= %d);", sortPiece)
	w.line("\t\tfor (int e = THREAD; e < %d; e += THREADS)", sortPiece)
	w.line("\t\t\tif (e >= now) {")
	w.line("\t\t\t\tkey[e] = (K)~(K)0;")
	w.line("\t\t\t\tfrom_[e] = n + e;")
	w.line("\t\t\t}")
	w.line("\t\tBARRIER();")
	w.network("I")
	w.line("\t\tif (THREAD == 0 && now > pitch)")
	w.line("\t\t\tcount = (u32)pitch;")
	w.line("\t\tsome = some || now >= pitch;")
	w.line("\t\tlast = key[pitch - 1];")
	w.line("\t\tBARRIER();")
	w.line("\t}")
	w.line("\tfor (I e = THREAD; e < pitch && e < end - first; e += THREADS) {")
	w.line("\t\tkeys[(I)BLOCK * pitch + e] = key[e];")
	w.line("\t\tplaces[(I)BLOCK * pitch + e] = from_[e];")
	w.line("\t}")
	return w.done()
}

// sortMerge writes the kernel that merges two runs: a thread finds where its part begins in both by bisection.
func (w *writer) sortMerge() (Source, error) {
	w.param("GLOBAL K *keys, GLOBAL I *places, GLOBAL const K *k0, GLOBAL const I *p0")
	w.param("I rows, I n, I run, I runs, I pitch, I next, I units")
	w.function("sort_merge")
	w.line("\tI g = (I)(BLOCK * THREADS + THREAD), pairs = (runs + 1) / 2;")
	w.line("\tI unit = g %% units, pair = g / units %% pairs, row = g / units / pairs;")
	w.line("\tif (row >= rows)")
	w.line("\t\treturn;")
	w.line("\tI left = 2 * pair * run, n0, n1 = 0, d = unit * %d;", sortUnit)
	w.line("\tn0 = n - left < pitch ? n - left : pitch;")
	w.line("\tif (2 * pair + 1 < runs)")
	w.line("\t\tn1 = n - left - run < pitch ? n - left - run : pitch;")
	w.line("\tI end = d + %d, a, b, high;", sortUnit)
	w.line("\tif (end > n0 + n1)")
	w.line("\t\tend = n0 + n1;")
	w.line("\tif (end > next)")
	w.line("\t\tend = next;")
	w.line("\tif (d >= end)")
	w.line("\t\treturn;")
	w.line("\tI at = (row * runs + 2 * pair) * pitch;")
	w.line("\tGLOBAL const K *x = k0 + at, *y = x + pitch;")
	w.line("\tGLOBAL const I *p = p0 + at, *q = p + pitch;")
	w.line("\ta = d > n1 ? d - n1 : 0;")
	w.line("\thigh = d < n0 ? d : n0;")
	w.line("\twhile (a < high) {")
	w.line("\t\tI mid = a + (high - a) / 2;")
	w.line("\t\tif (x[mid] <= y[d - 1 - mid])")
	w.line("\t\t\ta = mid + 1;")
	w.line("\t\telse")
	w.line("\t\t\thigh = mid;")
	w.line("\t}")
	w.line("\tb = d - a;")
	w.line("\tI to = (row * pairs + pair) * next;")
	w.line("\tfor (; d < end; d++) {")
	w.line("\t\tint first = b >= n1 || (a < n0 && x[a] <= y[b]);")
	w.line("\t\tkeys[to + d] = first ? x[a] : y[b];")
	w.line("\t\tplaces[to + d] = first ? p[a] : q[b];")
	w.line("\t\ta += first;")
	w.line("\t\tb += !first;")
	w.line("\t}")
	return w.done()
}

// sortMode writes the search for the longest run of equal keys. As in PyTorch no NaN equals another.
func (w *writer) sortMode(s Spec, t dtype.DType) {
	nan := "0"
	if t.IsFloating() {
		nan = "k[i] == (K)~(K)0"
	}
	w.line("\tLOCAL I length[%d], last[%[1]d];", s.Block)
	w.line("\tI row = (I)BLOCK, j = 0, at, most = 0, best = 0;")
	w.line("\tGLOBAL const K *k = keys + row * pitch;")
	w.line("\tfor (I i = THREAD; i < n; i += THREADS) {")
	w.line("\t\tif (i > 0 && k[i - 1] == k[i] && !(%s))", nan)
	w.line("\t\t\tcontinue;")
	w.line("\t\tI low = i + 1, high = %s ? i + 1 : n;", nan)
	w.line("\t\twhile (low < high) {")
	w.line("\t\t\tI mid = low + (high - low) / 2;")
	w.line("\t\t\tif (k[mid] == k[i])")
	w.line("\t\t\t\tlow = mid + 1;")
	w.line("\t\t\telse")
	w.line("\t\t\t\thigh = mid;")
	w.line("\t\t}")
	w.line("\t\tif (low - i > most) {")
	w.line("\t\t\tmost = low - i;")
	w.line("\t\t\tbest = low - 1;")
	w.line("\t\t}")
	w.line("\t}")
	w.line("\tlength[THREAD] = most;")
	w.line("\tlast[THREAD] = best;")
	w.line("\tBARRIER();")
	w.line("\tif (THREAD != 0)")
	w.line("\t\treturn;")
	w.line("\tfor (int i = 1; i < THREADS; i++)")
	w.line("\t\tif (length[i] > most || (length[i] == most && last[i] < best)) {")
	w.line("\t\t\tmost = length[i];")
	w.line("\t\t\tbest = last[i];")
	w.line("\t\t}")
	w.line("\tat = best;")
}
