package kernel

// share writes a loop of a block's threads over the numbers i from `from` to before `to`, of which each thread has its
// own. All threads run equally often, and of those beyond the end none does anything. body may be written several times.
//
// Where threads are the lanes of a vector, all of them have work in every run but the last. A processor loads and stores
// whole vectors of memory several times as fast as parts of vectors.
func (w *writer) share(s Spec, i string, body func()) {
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
