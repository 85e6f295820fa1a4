package kernel

import (
	"fmt"
	"strings"
)

// attentionWriter writes a kernel of attention. A block has TILE rows and TILE keys at a time. Of heads it has CHUNK
// elements in local memory at once, so that what it needs doesn't depend on their size. Its threads have, of a tile of
// products, one column and every (THREADS / TILE)th row; of results, every (THREADS / CHUNK)th row, and one column of
// each chunk.
type attentionWriter struct {
	writer
	s    Spec
	tile int
}

func (w *attentionWriter) has(option int32) bool { return w.s.Extra[2]&option != 0 }

// element is an element of an input as T, 0 beyond the limits. Its rows begin at a place, rows first of limit.
func (w *attentionWriter) element(input int, place, row, limit, column, columns string) string {
	at := int(w.s.Outs) + input
	return fmt.Sprintf("%s < %s && %s < %s ? %s : (T)0", row, limit, column, columns, converted(w.s.Compute, w.s.Types[at],
		fmt.Sprintf("i%d[%s + (%s) * l.s[%d][2] + (%s) * l.s[%[4]d][3]]", input, place, row, at, column)))
}

// load reads a chunk of a tile's rows to a local array; across: element first.
func (w *attentionWriter) load(to string, across bool, input int, place, first, limit, column, columns string) {
	at := fmt.Sprintf("r * %d + c", headChunk+1)
	if across {
		at = fmt.Sprintf("c * %d + r", w.tile+1)
	}
	w.line("\t\t\tfor (int e = THREAD; e < %d; e += THREADS) {", w.tile*headChunk)
	w.line("\t\t\t\tint r = e / %d, c = e %% %[1]d;", headChunk)
	w.line("\t\t\t\t%s[%s] = %s;", to, at, w.element(input, place, first+" + r", limit, column+" + c", columns))
	w.line("\t\t\t}")
}

// products adds those of rows of two inputs to a variable, chunk by chunk: x[j] of a thread's rows j and its column.
func (w *attentionWriter) products(x string, chunks int32, left int, leftPlace string, right int, rightPlace,
	columns string) {
	w.line("\t\tT %s[%d];", x, w.scores())
	w.line("\t\tfor (int j = 0; j < %d; j++)", w.scores())
	w.line("\t\t\t%s[j] = 0;", x)
	w.line("\t\tfor (int d = 0; d < %d; d += %d) {", int(chunks)*headChunk, headChunk)
	w.line("\t\t\tBARRIER();")
	w.load("left", false, left, leftPlace, "row0", "rows", "d", columns)
	w.load("right", true, right, rightPlace, "key0", "keys", "d", columns)
	w.line("\t\t\tBARRIER();")
	w.line("\t\t\tfor (int k = 0; k < %d; k++) {", headChunk)
	w.line("\t\t\t\tT y = right[k * %d + tx];", w.tile+1)
	w.line("\t\t\t\tfor (int j = 0; j < %d; j++)", w.scores())
	w.line("\t\t\t\t\t%s[j] += left[(ty + j * %d) * %d + k] * y;", x, threads/w.tile, headChunk+1)
	w.line("\t\t\t}")
	w.line("\t\t}")
}

// weighted adds sums of rows of an input, with weights of a local array, to a variable: x[j][i] of a thread's rows j
// and chunks i. across: the weights' rows are those of the input.
func (w *attentionWriter) weighted(x, weights string, across bool, chunks int32, input int, place, first, limit,
	columns string) {
	w.line("\t\tUNROLL")
	w.line("\t\tfor (int i = 0; i < %d; i++) {", chunks)
	w.line("\t\t\tBARRIER();")
	w.load("right", false, input, place, first, limit, fmt.Sprintf("i * %d", headChunk), columns)
	w.line("\t\t\tBARRIER();")
	w.line("\t\t\tfor (int k = 0; k < %d; k++) {", w.tile)
	w.line("\t\t\t\tT y = right[k * %d + cx];", headChunk+1)
	w.line("\t\t\t\tfor (int j = 0; j < %d; j++)", w.results())
	at := fmt.Sprintf("(cy + j * %d) * %d + k", threads/headChunk, w.tile+1)
	if across {
		at = fmt.Sprintf("k * %d + cy + j * %d", w.tile+1, threads/headChunk)
	}
	w.line("\t\t\t\t\t%s[j][i] += %s * y;", x, strings.ReplaceAll(weights, "@", at))
	w.line("\t\t\t}")
	w.line("\t\t}")
}

// scores and results are how many rows a thread has, of a tile of products and of a result.
func (w *attentionWriter) scores() int  { return w.tile * w.tile / threads }
func (w *attentionWriter) results() int { return w.tile * headChunk / threads }

// zeros declares sums of a thread's rows and chunks.
func (w *attentionWriter) zeros(x string, chunks int32) {
	w.line("\tT %s[%d][%d];", x, w.results(), chunks)
	w.line("\tfor (int j = 0; j < %d; j++)", w.results())
	w.line("\t\tfor (int i = 0; i < %d; i++)", chunks)
	w.line("\t\t\t%s[j][i] = 0;", x)
}

// store writes sums to a result.
func (w *attentionWriter) store(x string, chunks int32, result int, first, limit, columns, value string) {
	w.line("\tUNROLL")
	w.line("\tfor (int i = 0; i < %d; i++)", chunks)
	w.line("\t\tfor (int j = 0; j < %d; j++) {", w.results())
	w.line("\t\t\tI row = %s + cy + j * %d, column = i * %d + cx;", first, threads/headChunk, headChunk)
	w.line("\t\t\tif (row < %s && column < %s)", limit, columns)
	w.line("\t\t\t\to%d[to%[1]d + row * l.s[%[1]d][2] + column * l.s[%[1]d][3]] = %[2]s;", result,
		narrowed(w.s.Types[result], w.s.Compute, strings.ReplaceAll(value, "@", x+"[j][i]")))
	w.line("\t\t}")
}

// score begins a loop over a thread's rows of a tile, with the score y of a product x[j], and what dropout does to its
// weight: kept.
func (w *attentionWriter) score() {
	w.line("\t\tfor (int j = 0; j < %d; j++) {", w.scores())
	w.line("\t\t\tint r = ty + j * %d, place = r * %d + tx;", threads/w.tile, w.tile+1)
	w.line("\t\t\tI row = row0 + r, key = key0 + tx;")
	w.line("\t\t\tT y = -(T)INFINITY;")
	w.line("\t\t\tint kept = 1;")
	inside := "row < rows && key < keys"
	if w.has(attentionCausal) {
		inside += " && key <= row"
	}
	mask := int(w.s.Ins) - 1
	at := fmt.Sprintf("i%d[mask + row * l.s[%d][2] + key * l.s[%[2]d][3]]", mask, int(w.s.Outs)+mask)
	if w.has(attentionBool) {
		inside += " && " + at + " != 0"
	}
	w.line("\t\t\tif (%s) {", inside)
	w.line("\t\t\t\ty = x[j] * scale;")
	if w.has(attentionAdded) {
		w.line("\t\t\t\ty += %s;", converted(w.s.Compute, w.s.Types[int(w.s.Outs)+mask], at))
	}
	if w.has(attentionDropout) {
		w.line("\t\t\t\tu64 number = (((u64)batch * (u64)heads + (u64)head) * (u64)rows + (u64)row) * (u64)keys + (u64)key;")
		w.line("\t\t\t\tkept = is_kept(number, keep, seed, block, generators);")
	}
	w.line("\t\t\t}")
}

// place declares where a batch's and a head's rows begin in an operand.
func (w *attentionWriter) place(name string, operand int, head string) {
	w.line("\tI %s = batch * l.s[%d][0] + %s * l.s[%[2]d][1];", name, operand, head)
}

func attentionSource(s Spec) (Source, error) {
	w := attentionWriter{s: s, tile: attentionTile(s.Compute)}
	w.begin(s)
	if w.has(attentionDropout) {
		w.WriteString(philoxHeader)
		w.line("DEVICE int is_kept(u64 i, f32 keep, u64 seed, u64 block, u64 generators) {")
		w.line("\tu64 k = i / generators;")
		w.line("\tnumbers4 v = philox(seed, i %% generators, block, k / 4);")
		w.line("\treturn (f32)v.v[k %% 4] * 0x1p-32f + 0x1p-33f < keep;")
		w.line("}")
	}
	w.line("typedef struct { I s[%d][4]; } layout;", s.Outs+s.Ins)
	w.pointers(s)
	w.param("I heads, I group, I rows, I keys, I size, I vsize, I tiles, T scale")
	if w.has(attentionDropout) {
		w.param("f32 keep, T inverse")
		w.randomParams(w.has(attentionState))
		w.param("u64 generators")
	}
	w.param("layout l")
	w.function("attention_" + s.Op)
	w.line("\tLOCAL T left[%d], right[%d], weights[%d];", w.tile*(headChunk+1), max(w.tile*(headChunk+1),
		headChunk*(w.tile+1)), w.tile*(w.tile+1))
	w.loadRandom(w.has(attentionState))
	switch s.Op {
	case "forward":
		w.forward()
	case "query":
		w.query()
	case "keys":
		w.keys()
	default:
		return Source{}, fmt.Errorf("kernel: there is no attention %q", s.Op)
	}
	return w.done()
}

// begins declares a block's batch, head and first row, and the thread's places in tiles.
func (w *attentionWriter) begins(first, heads string) {
	w.line("\tint tx = THREAD %% %d, ty = THREAD / %[1]d, cx = THREAD %% %d, cy = THREAD / %[2]d;", w.tile, headChunk)
	w.line("\tI unit = (I)(BLOCK / tiles), batch = unit / %s, head = unit %% %[1]s, %s = (I)(BLOCK %% tiles) * %d;", heads,
		first, w.tile)
}

// eachKey begins the loop over the tiles of keys of a tile of queries.
func (w *attentionWriter) eachKey() {
	if w.has(attentionCausal) {
		w.line("\tI end = keys - row0 < %d ? keys : row0 + %[1]d;", w.tile)
	} else {
		w.line("\tI end = keys;")
	}
	w.line("\tfor (I key0 = 0; key0 < end; key0 += %d) {", w.tile)
}

func (w *attentionWriter) forward() {
	t := w.tile
	w.line("\tLOCAL T high[%d], shrink[%[1]d];", t)
	w.begins("row0", "heads")
	w.place("q", 2, "head")
	w.place("k", 3, "(head / group)")
	w.place("v", 4, "(head / group)")
	w.place("to0", 0, "head")
	w.place("to1", 1, "head")
	if w.s.Ins > 3 {
		w.place("mask", 5, "head")
	}
	w.line("\tT sum[%d];", w.results())
	w.line("\tfor (int j = 0; j < %d; j++)", w.results())
	w.line("\t\tsum[j] = 0;")
	w.zeros("o", w.s.Extra[1])
	w.line("\tif (THREAD < %d)", t)
	w.line("\t\thigh[THREAD] = -(T)INFINITY;")
	w.eachKey()
	w.products("x", w.s.Extra[0], 0, "q", 1, "k", "size")
	w.score()
	w.line("\t\t\tweights[place] = y;")
	w.line("\t\t\tx[j] = kept;")
	w.line("\t\t}")
	w.line("\t\tBARRIER();")
	w.line("\t\tif (THREAD < %d) {", t)
	w.line("\t\t\tT old = high[THREAD], m = old;")
	w.line("\t\t\tfor (int k = 0; k < %d; k++)", t)
	w.line("\t\t\t\tm = t_max(m, weights[THREAD * %d + k]);", t+1)
	w.line("\t\t\tshrink[THREAD] = m == -(T)INFINITY ? 1 : exp(old - m);")
	w.line("\t\t\thigh[THREAD] = m;")
	w.line("\t\t}")
	w.line("\t\tBARRIER();")
	w.line("\t\tfor (int j = 0; j < %d; j++) {", w.scores())
	w.line("\t\t\tint r = ty + j * %d, place = r * %d + tx;", threads/t, t+1)
	w.line("\t\t\tT e = high[r] == -(T)INFINITY ? 0 : exp(weights[place] - high[r]);")
	w.line("\t\t\tweights[place] = x[j] != 0 ? e : -e;") // negative: counts in the sum alone
	w.line("\t\t}")
	w.line("\t\tBARRIER();")
	w.line("\t\tfor (int j = 0; j < %d; j++) {", w.results())
	w.line("\t\t\tint r = cy + j * %d;", threads/headChunk)
	w.line("\t\t\tT s = sum[j] * shrink[r];")
	w.line("\t\t\tfor (int k = 0; k < %d; k++)", t)
	w.line("\t\t\t\ts += fabs(weights[r * %d + k]);", t+1)
	w.line("\t\t\tsum[j] = s;")
	w.line("\t\t\tfor (int i = 0; i < %d; i++)", w.s.Extra[1])
	w.line("\t\t\t\to[j][i] *= shrink[r];")
	w.line("\t\t}")
	weight := "weights[@]"
	if w.has(attentionDropout) {
		weight = "(weights[@] < 0 ? (T)0 : weights[@])"
	}
	w.weighted("o", weight, false, w.s.Extra[1], 2, "v", "key0", "keys", "vsize")
	w.line("\t}")
	w.line("\tBARRIER();") // high, if there was no key
	value := "@ / sum[j]"
	if w.has(attentionDropout) {
		value = "@ * inverse / sum[j]"
	}
	w.store("o", w.s.Extra[1], 0, "row0", "rows", "vsize", "(sum[j] == 0 ? 0 : "+value+")")
	if !w.has(attentionNoSecond) {
		w.line("\tfor (int j = 0; j < %d; j++) {", w.results())
		w.line("\t\tint r = cy + j * %d;", threads/headChunk)
		w.line("\t\tif (cx == 0 && row0 + r < rows)")
		w.line("\t\t\to1[to1 + (row0 + r) * l.s[1][2]] = %s;", narrowed(w.s.Types[1], w.s.Compute,
			"(sum[j] == 0 ? 0 : high[r] + log(sum[j]))"))
		w.line("\t}")
	}
}

// gradient writes the gradient of a score, that of its weight less the row's sum times the weight, from x[j] and dy[j];
// e is the weight.
func (w *attentionWriter) gradient(delta string) {
	lse := 5
	w.line("\t\t\tT e = y == -(T)INFINITY ? 0 : exp(y - %s);", converted(w.s.Compute, w.s.Types[int(w.s.Outs)+lse],
		fmt.Sprintf("i%d[lse + row * l.s[%d][2]]", lse, int(w.s.Outs)+lse)))
	g := "dy[j]"
	if w.has(attentionDropout) {
		g = "(kept ? dy[j] * inverse : (T)0)"
	}
	w.line("\t\t\tT slope = y == -(T)INFINITY ? 0 : e * (%s - %s) * scale;", g, delta)
}

func (w *attentionWriter) query() {
	t := w.tile
	w.line("\tLOCAL T deltas[%d];", t)
	w.begins("row0", "heads")
	w.place("q", 2, "head")
	w.place("k", 3, "(head / group)")
	w.place("v", 4, "(head / group)")
	w.place("g", 5, "head")
	w.place("out", 6, "head")
	w.place("lse", 7, "head")
	w.place("to0", 0, "head")
	if w.s.Ins > 6 {
		w.place("mask", 8, "head")
	}
	// the sum of a row's weights times their gradients is that of its results times theirs
	w.line("\tfor (int j = 0; j < %d; j++) {", w.scores())
	w.line("\t\tint r = ty + j * %d;", threads/t)
	w.line("\t\tI row = row0 + r;")
	w.line("\t\tT part = 0;")
	w.line("\t\tif (row < rows)")
	w.line("\t\t\tfor (I c = tx; c < vsize; c += %d)", t)
	at := func(input int, place string) string {
		o := 2 + input
		x := fmt.Sprintf("i%d[%s + row * l.s[%d][2] + c * l.s[%[3]d][3]]", input, place, o)
		return converted(w.s.Compute, w.s.Types[o], x)
	}
	w.line("\t\t\t\tpart += %s * %s;", at(3, "g"), at(4, "out"))
	w.line("\t\tweights[r * %d + tx] = part;", t+1)
	w.line("\t}")
	w.line("\tBARRIER();")
	w.line("\tif (THREAD < %d) {", t)
	w.line("\t\tT whole = 0;")
	w.line("\t\tfor (int k = 0; k < %d; k++)", t)
	w.line("\t\t\twhole += weights[THREAD * %d + k];", t+1)
	w.line("\t\tdeltas[THREAD] = whole;")
	w.line("\t\tif (row0 + THREAD < rows)")
	w.line("\t\t\to1[unit * rows + row0 + THREAD] = whole;")
	w.line("\t}")
	if w.has(attentionNoFirst) {
		return
	}
	w.zeros("o", w.s.Extra[0])
	w.eachKey()
	w.products("x", w.s.Extra[0], 0, "q", 1, "k", "size")
	w.products("dy", w.s.Extra[1], 3, "g", 2, "v", "vsize")
	w.score()
	w.gradient("deltas[r]")
	w.line("\t\t\tweights[place] = slope;")
	w.line("\t\t}")
	w.weighted("o", "weights[@]", false, w.s.Extra[0], 1, "k", "key0", "keys", "size")
	w.line("\t}")
	w.store("o", w.s.Extra[0], 0, "row0", "rows", "size", "@")
}

func (w *attentionWriter) keys() {
	t := w.tile
	w.line("\tLOCAL T slopes[%d];", t*(t+1))
	w.begins("key0", "(heads / group)")
	w.line("\tI shared = head;")
	w.place("k", 3, "shared")
	w.place("v", 4, "shared")
	w.place("to0", 0, "shared")
	w.place("to1", 1, "shared")
	if !w.has(attentionNoFirst) {
		w.zeros("o", w.s.Extra[0])
	}
	if !w.has(attentionNoSecond) {
		w.zeros("u", w.s.Extra[1])
	}
	w.line("\tfor (head = shared * group; head < (shared + 1) * group; head++) {")
	w.place("q", 2, "head")
	w.place("g", 5, "head")
	w.place("lse", 7, "head")
	w.line("\tGLOBAL const T *delta = i4 + (batch * heads + head) * rows;")
	if w.s.Ins > 6 {
		w.place("mask", 8, "head")
	}
	from := "0"
	if w.has(attentionCausal) {
		from = "key0" // a multiple of the tile
	}
	w.line("\tfor (I row0 = %s; row0 < rows; row0 += %d) {", from, t)
	w.products("x", w.s.Extra[0], 0, "q", 1, "k", "size")
	w.products("dy", w.s.Extra[1], 3, "g", 2, "v", "vsize")
	w.score()
	w.gradient("delta[row]")
	kept := "e"
	if w.has(attentionDropout) {
		kept = "kept ? e * inverse : (T)0"
	}
	w.line("\t\t\tweights[place] = %s;", kept)
	w.line("\t\t\tslopes[place] = slope;")
	w.line("\t\t}")
	if !w.has(attentionNoSecond) {
		w.weighted("u", "weights[@]", true, w.s.Extra[1], 3, "g", "row0", "rows", "vsize")
	}
	if !w.has(attentionNoFirst) {
		w.weighted("o", "slopes[@]", true, w.s.Extra[0], 0, "q", "row0", "rows", "size")
	}
	w.line("\t}")
	w.line("\t}")
	if !w.has(attentionNoFirst) {
		w.store("o", w.s.Extra[0], 0, "key0", "keys", "size", "@")
	}
	if !w.has(attentionNoSecond) {
		w.store("u", w.s.Extra[1], 1, "key0", "keys", "vsize", "@")
	}
}
