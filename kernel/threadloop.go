package kernel

import "fmt"

// threadLoop writes a loop of a block's threads over the numbers i from `from` to before `to`, of which each thread has its
// own. All threads run equally often, and of those beyond the end none does anything. body may be written several times.
//
// Where threads are the lanes of a vector, all of them have work in every run but the last. A processor loads and stores
// whole vectors of memory several times as fast as parts of vectors.
func (w *writer) threadLoop(s Spec, i string, body func()) {
	if !s.Vector {
		w.line("\tfor (I left = to - from; left > 0; left -= THREADS) {")
		w.line("\tif (THREAD < left) {")
		w.line("\tI %s = to - left + THREAD;", i)
		body()
		w.line("\t}}")
		return
	}
	w.line("\tI at = from;")
	w.vectors(s, i, 1, func(int) { body() })
	w.rest(s, i, body)
}

// A processor fetches memory ahead by itself, but falls behind in a loop with many operations for each vector. Of
// operands that are larger than caches together, a kernel asks for what it uses next.
const (
	aheadLeast = 64 << 20 // bytes of all operands
	aheadBytes = 2 << 10  // of an operand, between what is used and what is asked for
	aheadLine  = 64       // bytes that a processor fetches at a time
	aheadPiece = 16       // vectors, whose memory is asked for at once: each thread asks for its share of lines
)

// threadLoopAhead is [writer.threadLoop] for operands whose n elements lie one after the other.
func (w *writer) threadLoopAhead(s Spec, i string, body func()) {
	if !s.Vector {
		w.threadLoop(s, i, body)
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
	for k, t := range s.outs() {
		ask(fmt.Sprintf("o%d", k), t.Size())
	}
	for k, t := range s.ins() {
		if s.Values>>k&1 == 0 {
			ask(fmt.Sprintf("i%d", k), t.Size())
		}
	}
	w.line("\tI at = from;")
	w.line("\twhile (to - at >= %d) {", s.Block)
	w.line("\tI stop = to - at < %d ? to - (to - at) %% %d : at + %[1]d;", piece, s.Block)
	w.line("\tif (n >= %d && to - at >= %d) {", aheadLeast/bytes, piece+furthest)
	for _, l := range lines {
		w.line("%s", l)
	}
	w.line("\t}")
	w.line("\tfor (; at < stop; at += %d) {", s.Block)
	w.line("\tI %s = at + THREAD;", i)
	body()
	w.line("\t}}")
	w.rest(s, i, body)
}

// vectors writes a loop over whole vectors, n at a time, of the numbers from `at` to before `to`. body has the number of
// the vector among the n.
func (w *writer) vectors(s Spec, i string, n int, body func(k int)) {
	w.line("\tfor (; to - at >= %d; at += %[1]d) {", n*int(s.Block))
	for k := range n {
		w.line("\t{ I %s = at + %d + THREAD;", i, k*int(s.Block))
		body(k)
		w.line("\t}")
	}
	w.line("\t}")
}

// rest writes what is left after [writer.vectors].
func (w *writer) rest(s Spec, i string, body func()) {
	w.line("\tif (THREAD < to - at) {")
	w.line("\tI %s = at + THREAD;", i)
	body()
	w.line("\t}")
}
