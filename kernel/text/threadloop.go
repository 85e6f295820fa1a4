package text

import "fmt"

// ThreadLoop writes a loop of a block's threads over the numbers i from `from` to before `to`, of which each thread has
// its own. All threads run equally often, and of those beyond the end none does anything. body may be written several
// times.
//
// Where threads are the lanes of a vector, all of them have work in every run but the last. A processor loads and
// stores whole vectors of memory several times as fast as parts of vectors.
func (w *Writer) ThreadLoop(s Spec, i string, body func()) {
	if !s.Vector {
		w.Line("\tfor (I left = to - from; left > 0; left -= THREADS) {")
		w.Line("\tif (THREAD < left) {")
		w.Line("\tI %s = to - left + THREAD;", i)
		body()
		w.Line("\t}}")
		return
	}
	w.Line("\tI at = from;")
	w.Vectors(s, i, 1, func(int) { body() })
	w.Rest(s, i, body)
}

// A processor fetches memory ahead by itself, but falls behind in a loop with many operations for each vector. Of
// operands that are larger than caches together, a kernel asks for what it uses next.
const (
	PrefetchLeast = 64 << 20 // bytes of all operands
	aheadBytes    = 2 << 10  // of an operand, between what is used and what is asked for
	aheadLine     = 64       // bytes that a processor fetches at a time
	aheadPiece    = 16       // vectors, whose memory is asked for at once: each thread asks for its share of lines
)

// ThreadLoopAhead is [Writer.ThreadLoop] for operands whose n elements lie one after the other.
func (w *Writer) ThreadLoopAhead(s Spec, i string, body func()) {
	if !s.Vector {
		w.ThreadLoop(s, i, body)
		return
	}
	piece, bytes, furthest := aheadPiece*int(s.Block), 0, 0
	var lines []string
	ask := func(operand string, size int) {
		bytes, furthest = bytes+size, max(furthest, aheadBytes/size)
		line := min(aheadLine/size, aheadPiece) // elements
		for at := 0; at < piece; at += line * int(s.Block) {
			lines = append(lines, fmt.Sprintf("\tPREFETCH(%s + at + %d + THREAD * %d);", operand, aheadBytes/size+at, line))
		}
	}
	for k, t := range s.Results() {
		ask(fmt.Sprintf("o%d", k), t.Size())
	}
	for k, t := range s.Inputs() {
		if s.Values>>k&1 == 0 {
			ask(fmt.Sprintf("i%d", k), t.Size())
		}
	}
	w.Line("\tI at = from;")
	w.Line("\twhile (to - at >= %d) {", s.Block)
	w.Line("\tI stop = to - at < %d ? to - (to - at) %% %d : at + %[1]d;", piece, s.Block)
	w.Line("\tif (n >= %d && to - at >= %d) {", PrefetchLeast/bytes, piece+furthest)
	for _, l := range lines {
		w.Line("%s", l)
	}
	w.Line("\t}")
	w.Line("\tfor (; at < stop; at += %d) {", s.Block)
	w.Line("\tI %s = at + THREAD;", i)
	body()
	w.Line("\t}}")
	w.Rest(s, i, body)
}

// Vectors writes a loop over whole vectors, n at a time, of the numbers from `at` to before `to`. body has the number
// of the vector among the n.
func (w *Writer) Vectors(s Spec, i string, n int, body func(k int)) {
	w.Line("\tfor (; to - at >= %d; at += %[1]d) {", n*int(s.Block))
	for k := range n {
		w.Line("\t{ I %s = at + %d + THREAD;", i, k*int(s.Block))
		body(k)
		w.Line("\t}")
	}
	w.Line("\t}")
}

// Rest writes what is left after [Writer.Vectors].
func (w *Writer) Rest(s Spec, i string, body func()) {
	w.Line("\tif (THREAD < to - at) {")
	w.Line("\tI %s = at + THREAD;", i)
	body()
	w.Line("\t}")
}
