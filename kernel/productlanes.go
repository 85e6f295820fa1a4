package kernel

import (
	"fmt"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/text"
)

// On a processor a block's threads are the lanes of a vector, and each has a small tile of sums in registers. Extra[1]
// of a product says what the lanes are.
const (
	lanesColumns = 1 + iota // neighbours of the last dimension of space
	lanesRows
	lanesGroups // of channels that lie one after the other
	lanesDepth  // elements of the sums, which are added at the end
)

// Bits of a product's Extra[3].
const (
	laneUnitA     = 1 << iota // the lanes' step is 1 in a
	laneUnitB                 // in b
	laneUnitO                 // in the result
	laneTileOuter             // tiles have columns that differ in the number outer, and not in space
	laneLong                  // the inner loop is over the last dimension of the depth, and not over deep
)

// Sizes of tiles: columns, or rows where the lanes are columns.
const (
	laneColumns = 8
	laneRows    = 4
)

// lanes is the kind for a product; 0 if none is good for it.
func (g *product) lanes() int {
	near := g.bGroup == 1 && g.groups >= fewLanes && (!g.reduces || g.aGroup == 1)
	switch {
	case g.rows > fewRows:
		return lanesRows
	case g.dims == 0:
		return 0
	case near:
		return lanesGroups
	case g.reduces:
		return lanesDepth
	}
	return lanesColumns
}

// laneProduct adds a product for a processor.
func (p *Plan) laneProduct(s text.Spec, g *product, kind int, out, a, b, bias *Operand) error {
	packed := *a
	if g.depthCount() > 0 && (kind == lanesRows && g.aRow != 1 || kind == lanesGroups && g.aGroup != 1) {
		if err := p.pack(g, kind, &packed); err != nil {
			return err
		}
	}
	last := g.dims - 1
	s.Form, s.Block, s.Vector = productLanes, loader.Lanes, true
	s.Extra[0] &= productBias | productDivided
	s.Extra[1] = int32(kind)
	hint := func(bit int32, is bool) {
		if is {
			s.Extra[3] |= bit
		}
	}
	hint(laneTileOuter, g.reduces || last < 0)
	hint(laneLong, g.reduces && last >= 0)
	units := g.groups * g.parts * g.phases
	space := g.outer
	for k := range last {
		space *= g.columns[k]
	}
	rows := (g.rows-1)/laneRows + 1
	tiles := 1
	switch {
	case kind == lanesColumns:
		tiles = rows
		if g.rows == 1 {
			s.Extra[2] = 1
			tiles = 1
		} else {
			s.Extra[2] = laneRows
		}
	case kind == lanesDepth:
		s.Extra[2] = 1
		tiles = g.rows * g.columns[last]
	case s.Extra[3]&laneTileOuter != 0:
		tile := min(laneColumns, g.outer)
		s.Extra[2] = int32(tile)
		space = (g.outer-1)/tile + 1
		for k := range g.dims {
			space *= g.columns[k]
		}
	default:
		s.Extra[2] = laneColumns
		g.tiles = (g.columns[last]-1)/laneColumns + 1
		if g.divided {
			g.tiles = (g.columns[last]-1)/(g.divisor[last]*laneColumns) + 1
		}
		tiles = g.tiles
	}
	if g.divided { // the other dimensions aren't divided by phases
		units = g.groups * g.parts * g.divisor[last]
	}
	switch kind {
	case lanesColumns:
		hint(laneUnitO, g.oSteps[last] == 1 && !g.divided)
		hint(laneUnitB, g.bSteps[last] == 1 && (g.divided || g.columnStep[last] == 1))
	case lanesRows:
		hint(laneUnitO, g.oRow == 1)
	case lanesGroups:
		units = units / g.groups * g.rows
		hint(laneUnitO, g.oGroup == 1)
	case lanesDepth:
		hint(laneUnitA, g.aSteps[last] == 1)
		hint(laneUnitB, g.depthStep[last]*g.bSteps[last] == 1)
	}
	units *= space * tiles
	c := p.blocks(s, device.Dim{X: max(1, min(units, p.Cores*loader.BlocksOfCore)), Y: 1, Z: 1})
	c.Args.Pointer(out.Ptr).Pointer(packed.Ptr).Pointer(b.Ptr).Pointer(bias.Ptr)
	r := text.Record{Dims: g.dims, Wide: s.Wide}
	g.visit(&r)
	r.Add(&c.Args)
	return nil
}

// pack copies a so that elements of neighbouring lanes are neighbours.
func (p *Plan) pack(g *product, kind int, a *Operand) error {
	memory, err := p.scratch(g.groups * g.rows * g.depthCount() * a.Type.Size())
	if err != nil {
		return err
	}
	sizes, from, to := &p.images[4], &p.images[5], &p.images[6]
	d := 3 + g.dims
	*sizes = [3 + text.MaxSpatial]int{g.groups, g.rows, g.deep}
	*from = [3 + text.MaxSpatial]int{g.aGroup, g.aRow, g.aDeep}
	copy(sizes[3:], g.depth[:g.dims])
	copy(from[3:], g.aSteps[:g.dims])
	n := 1
	take := func(k int) {
		to[k] = n
		n *= sizes[k]
	}
	space := func() {
		for k := d - 1; k >= 3; k-- {
			take(k)
		}
	}
	switch {
	case g.reduces:
		take(1)
		take(0)
		space()
		take(2)
	case kind == lanesRows:
		take(1)
		take(2)
		space()
		take(0)
	default:
		take(0)
		take(2)
		space()
		take(1)
	}
	whole := *a
	whole.Sizes, whole.Strides = sizes[:d], from[:d]
	*a = Operand{Ptr: memory, Type: a.Type, Sizes: sizes[:d], Strides: to[:d]}
	g.aGroup, g.aRow, g.aDeep = to[0], to[1], to[2]
	copy(g.aSteps[:g.dims], to[3:d])
	return p.Copy(*a, whole)
}

// depthCount is how many elements a sum has.
func (g *product) depthCount() int {
	n := g.deep
	for k := range g.dims {
		n *= g.depth[k]
	}
	return n
}

// laneWriter writes a product for a processor.
type laneWriter struct {
	*writer
	s             text.Spec
	kind, tile    int
	dims, last    int
	bits          int32
	divided, long bool
	tileOuter     bool
	vectorsOfTile int
}

func (w *writer) productLanes(s text.Spec) {
	l := &laneWriter{writer: w, s: s, kind: int(s.Extra[1]), tile: int(s.Extra[2]), dims: int(s.Dims),
		last: int(s.Dims) - 1, bits: s.Extra[3], divided: s.Extra[0]&productDivided != 0, vectorsOfTile: 2}
	l.long, l.tileOuter = l.bits&laneLong != 0, l.bits&laneTileOuter != 0
	if s.Compute.Size() > dtype.Float32.Size() {
		l.vectorsOfTile = 1
	}
	w.Function("convolution_lanes")
	if l.kind == lanesDepth {
		w.Line("\tLOCAL T all[%d];", loader.Lanes)
	}
	l.units()
	l.begin()
	switch l.kind {
	case lanesDepth:
		l.sumDepth()
	case lanesColumns:
		l.chunks("width", l.columns)
	case lanesRows:
		l.chunks("g.rows", l.tiles)
	default:
		l.chunks("g.groups", l.tiles)
	}
	w.Line("\t}")
}

// units writes the loop over a block's units of work, and their digits.
func (l *laneWriter) units() {
	digits, sizes := []string{}, []string{}
	add := func(digit, size string) { digits, sizes = append(digits, digit), append(sizes, size) }
	space := func(k int) {
		for ; k >= 0; k-- {
			add(fmt.Sprintf("u%d", k), fmt.Sprintf("g.columns[%d]", k))
		}
	}
	outer := fmt.Sprintf("((g.outer - 1) / %d + 1)", l.tile)
	switch {
	case l.kind == lanesDepth:
		space(l.last)
		add("n", "g.outer")
		add("row", "g.rows")
	case l.tileOuter:
		space(l.last)
		add("tile", outer)
	case l.kind == lanesColumns:
		space(l.last - 1)
		add("tile", fmt.Sprintf("((g.rows - 1) / %d + 1)", l.tile))
	default:
		add("tile", "g.tiles")
		space(l.last - 1)
	}
	if l.divided {
		add("phase", fmt.Sprintf("g.divisor[%d]", l.last))
	}
	if l.kind == lanesGroups {
		add("row", "g.rows")
	} else {
		add("group", "g.groups")
	}
	if !l.tileOuter && l.kind != lanesDepth {
		add("n", "g.outer")
	}
	l.Line("\tI units = g.parts;")
	for _, size := range sizes {
		l.Line("\tunits *= %s;", size)
	}
	l.Line("\tI share = (I)((units - 1) / BLOCKS) + 1, unit = (I)BLOCK * share, end = unit + share;")
	l.Line("\tend = units - unit < share ? units : end;")
	l.Line("\tfor (; unit < end; unit++) {")
	l.Line("\tI rest = unit, up, n = 0, group = 0, row = 0, tile = 0, phase = 0;")
	for k := range l.dims {
		l.Line("\tI u%d = 0;", k)
	}
	for k, digit := range digits {
		l.Split("\t", digit, sizes[k])
	}
}

// begin writes where a unit's elements begin, and its coordinates.
func (l *laneWriter) begin() {
	if l.kind == lanesColumns {
		l.Line("\trow = tile * %d;", l.tile)
	}
	l.Line("\tI a = group * g.a_group + row * g.a_row, b = group * g.b_group + n * g.b_outer;")
	l.Line("\tI o = group * g.o_group + row * g.o_row + n * g.o_outer + rest * g.o_part;")
	l.Line("\tI from = rest * g.chunk, to = g.deep - from < g.chunk ? g.deep : from + g.chunk;")
	for k := range l.dims {
		if k == l.last && !l.tileOuter {
			continue
		}
		l.Line("\to += u%d * g.o_steps[%[1]d];", k)
		l.Line("\tI c%d = u%[1]d * g.column_step[%[1]d] + g.column_start[%[1]d] + g.depth_start[%[1]d];", k)
	}
	k := l.last
	switch {
	case l.kind == lanesDepth:
	case l.tileOuter:
		for c := range l.tile {
			l.Line("\tI at%d = tile * %d + %[1]d;", c, l.tile)
			l.Line("\tat%d = at%[1]d < g.outer ? at%[1]d : g.outer - 1;", c)
			l.Line("\tI e%d = at%[1]d * g.b_outer, p%[1]d = at%[1]d * g.o_outer;", c)
		}
		l.Line("\tI left = g.outer - tile * %d;", l.tile)
	default:
		l.Line("\tI c%d = phase + g.column_start[%[1]d] + g.depth_start[%[1]d], width = g.columns[%[1]d];", k)
		l.Line("\tI step = g.column_step[%d], o_step = g.o_steps[%[1]d];", k)
		if l.divided {
			l.Line("\twidth = phase < width ? (width - 1 - phase) / g.divisor[%d] + 1 : 0;", k)
			l.Line("\to += phase * o_step;")
			l.Line("\tstep = 1;")
			l.Line("\to_step *= g.divisor[%d];", k)
		}
		if l.kind == lanesColumns {
			return
		}
		l.Line("\tI left = width - tile * %d;", l.tile)
		l.Line("\tif (left <= 0)")
		l.Line("\t\tcontinue;")
		for c := range l.tile {
			l.Line("\tI at%d = tile * %d + (%[1]d < left ? %[1]d : left - 1);", c, l.tile)
			l.Line("\tI e%d = at%[1]d * step, p%[1]d = at%[1]d * o_step;", c)
		}
	}
}

// chunks writes a body for two vectors of lanes at a time, and for each one that is left. at is the first lane.
func (l *laneWriter) chunks(length string, body func(vectors int)) {
	l.Line("\tI at = 0, lanes = %s;", length)
	if n := l.vectorsOfTile; n > 1 {
		l.Line("\tfor (; lanes - at >= %d; at += %[1]d) {", n*loader.Lanes)
		body(n)
		l.Line("\t}")
	}
	l.Line("\tfor (; at < lanes; at += %d) {", loader.Lanes)
	l.Line("\tif (THREAD < lanes - at) {")
	body(1)
	l.Line("\t}}")
}

// sums declares them, in so many rows or columns of so many vectors.
func (l *laneWriter) sums(vectors int) {
	for v := range vectors {
		l.Line("\tI lane%d = at + %d + THREAD;", v, v*loader.Lanes)
		for c := range l.tile {
			l.Line("\tT s%d_%d = %s;", c, v, text.Zero(l.s.Compute))
		}
	}
}

// space writes loops over the dimensions of the depth before dimension end, and the coordinates x in them. Those that
// lanes or tiles have are checked by the body.
func (l *laneWriter) space(end int, body func()) {
	for k := range end {
		l.Line("\tfor (I t%d = 0; t%[1]d < g.depth[%[1]d]; t%[1]d++) {", k)
		l.Line("\tI x%d = c%[1]d + t%[1]d * g.depth_step[%[1]d];", k)
		if l.divided {
			l.Line("\tif (x%d %% g.divisor[%[1]d] != 0)", k)
			l.Line("\t\tcontinue;")
			l.Line("\tx%d /= g.divisor[%[1]d];", k)
		}
		if k < l.last || l.tileOuter {
			l.Line("\tif ((U)x%d >= (U)g.limits[%[1]d])", k)
			l.Line("\t\tcontinue;")
		}
	}
	body()
	for range end {
		l.Line("\t}")
	}
}

// places writes the places of a and b for the coordinates of the loops before dimension end.
func (l *laneWriter) places(end int) {
	l.Line("\tI in_a = a, in_b = b;")
	for k := range end {
		l.Line("\tin_a += t%d * g.a_steps[%[1]d];", k)
		if k < l.last || l.tileOuter {
			l.Line("\tin_b += x%d * g.b_steps[%[1]d];", k)
		}
	}
}

func (l *laneWriter) pointer(name string, operand int, at string) {
	l.Line("\tGLOBAL const %s *%s = i%d + (%s);", text.Stored(l.s.Types[1+operand]), name, operand, at)
}

func (l *laneWriter) load(operand int, expression string) string {
	return text.Converted(l.s.Compute, l.s.Types[1+operand], expression)
}

// columns writes the sums of some rows, whose lanes are columns.
func (l *laneWriter) columns(vectors int) {
	l.sums(vectors)
	l.space(l.dims, func() {
		l.places(l.dims)
		for r := range l.tile {
			row := "0"
			if r > 0 {
				row = fmt.Sprintf("(row + %d < g.rows ? %[1]d : 0) * g.a_row", r)
			}
			l.pointer(fmt.Sprintf("a%d", r), 0, "in_a + "+row)
		}
		for v := range vectors {
			at, x := fmt.Sprintf("(lane%d * step + x%d) * g.b_steps[%[2]d]", v, l.last), "step"
			if l.bits&laneUnitB != 0 {
				at, x = fmt.Sprintf("at + %d + x%d", v*loader.Lanes, l.last), "1"
			}
			l.Line("\tint inside%d = (U)(lane%[1]d * %[3]s + x%[2]d) < (U)g.limits[%[2]d];", v, l.last, x)
			l.pointer(fmt.Sprintf("b%d", v), 1, "in_b + "+at)
		}
		own := ""
		if l.bits&laneUnitB != 0 {
			own = " + LANE"
		}
		l.Line("\tfor (I q = from; q < to; q++) {")
		for v := range vectors {
			l.Line("\tT y%d = %s;", v, text.Zero(l.s.Compute))
			l.Line("\tif (inside%d)", v)
			l.Line("\t\ty%d = %s;", v, l.load(1, fmt.Sprintf("b%d[q * g.b_deep%s]", v, own)))
		}
		for r := range l.tile {
			l.Line("\tT x%dr = %s;", r, l.load(0, fmt.Sprintf("a%d[q * g.a_deep]", r)))
			for v := range vectors {
				l.Line("\t%s", text.MultiplyAdd(l.s.Compute, fmt.Sprintf("s%d_%d", r, v), fmt.Sprintf("x%dr", r),
					fmt.Sprintf("y%d", v)))
			}
		}
		l.Line("\t}")
	})
	for r := range l.tile {
		l.Line("\tif (row + %d < g.rows) {", r)
		l.Line("\tI first = row;")
		for v := range vectors {
			at := fmt.Sprintf("o + %d * g.o_row + lane%d * o_step", r, v)
			if l.bits&laneUnitO != 0 {
				at = fmt.Sprintf("o + %d * g.o_row + lane%d", r, v)
			}
			l.Line("\t{ T v = s%d_%d; I row = first + %[1]d;", r, v)
			l.Line("\tRESULT(%s)", at)
			l.Line("\t}")
		}
		l.Line("\t}")
	}
}

// tiles writes the sums of some columns, whose lanes are rows or groups.
func (l *laneWriter) tiles(vectors int) {
	l.sums(vectors)
	switch {
	case l.long:
		l.Line("\tfor (I q = from; q < to; q++) {")
		l.space(l.last, func() {
			l.places(l.last)
			l.Line("\tin_a += q * g.a_deep;")
			l.Line("\tin_b += q * g.b_deep;")
			l.inside()
			l.tileSums(vectors, "t = low; t < high; t++", "t * g.a_steps[%d]",
				"(c%[1]d + t * g.depth_step[%[1]d]) * g.b_steps[%[1]d]", false)
		})
		l.Line("\t}")
	case l.tileOuter:
		l.space(l.dims, func() {
			l.places(l.dims)
			l.tileSums(vectors, "q = from; q < to; q++", "q * g.a_deep", "q * g.b_deep", false)
		})
	default:
		l.space(l.dims, func() {
			l.places(l.dims)
			k := l.last
			for c := range l.tile {
				l.Line("\tint inside%d = (U)(e%[1]d + x%[2]d) < (U)g.limits[%[2]d];", c, k)
			}
			l.Line("\tif (inside0 && inside%d) {", l.tile-1)
			l.tileSums(vectors, "q = from; q < to; q++", "q * g.a_deep", "q * g.b_deep", false)
			l.Line("\t} else if (g.limits[%d] > 0) {", k)
			l.tileSums(vectors, "q = from; q < to; q++", "q * g.a_deep", "q * g.b_deep", true)
			l.Line("\t}")
		})
	}
	l.Line("\tI first = row, block = group;")
	for c := range l.tile {
		l.Line("\tif (%d < left) {", c)
		for v := range vectors {
			at, lane := "o_row", fmt.Sprintf("I row = lane%d, group = block;", v)
			if l.kind == lanesGroups {
				at, lane = "o_group", fmt.Sprintf("I row = first, group = lane%d;", v)
			}
			at = fmt.Sprintf("o + p%d + lane%d * g.%s", c, v, at)
			if l.bits&laneUnitO != 0 {
				at = fmt.Sprintf("o + p%d + lane%d", c, v)
			}
			l.Line("\t{ T v = s%d_%d; %s", c, v, lane)
			l.Line("\tRESULT(%s)", at)
			l.Line("\t}")
		}
		l.Line("\t}")
	}
}

// inside writes from low to before high: the places of the last dimension of the depth whose coordinates are inside.
func (l *laneWriter) inside() {
	k := l.last
	l.Line("\tI by = g.depth_step[%d], room = g.limits[%[1]d] - c%[1]d;", k)
	l.Line("\tI low = c%d < 0 ? (by - 1 - c%[1]d) / by : 0, high = room > 0 ? (room - 1) / by + 1 : 0;", k)
	l.Line("\thigh = high < g.depth[%d] ? high : g.depth[%[1]d];", k)
}

// tileSums writes the inner loop. If it's guarded, columns may be outside: they read the first element, and add 0.
func (l *laneWriter) tileSums(vectors int, loop, inA, inB string, guarded bool) {
	if l.long {
		inA, inB = fmt.Sprintf(inA, l.last), fmt.Sprintf(inB, l.last)
	}
	at0 := "in_b"
	if l.kind == lanesGroups {
		at0 += " + at"
	}
	for c := range l.tile {
		at := fmt.Sprintf("e%d", c)
		if !l.tileOuter {
			at = fmt.Sprintf("(e%d + x%d) * g.b_steps[%[2]d]", c, l.last)
			if guarded {
				at = fmt.Sprintf("inside%d ? %s : 0", c, at)
			}
		}
		l.pointer(fmt.Sprintf("b%d", c), 1, at0+" + ("+at+")")
	}
	l.pointer("first_a", 0, "in_a + at")
	l.Line("\tfor (I %s) {", loop)
	l.Line("\tI next_a = %s, next_b = %s;", inA, inB)
	for v := range vectors {
		l.Line("\tT x%dv = %s;", v, l.load(0, fmt.Sprintf("first_a[next_a + %d + LANE]", v*loader.Lanes)))
	}
	for c := range l.tile {
		for v := range vectors {
			at := fmt.Sprintf("b%d[next_b]", c)
			if l.kind == lanesGroups {
				at = fmt.Sprintf("b%d[next_b + %d + LANE]", c, v*loader.Lanes)
			}
			if v == 0 || l.kind == lanesGroups {
				l.Line("\tT y%d_%d = %s;", c, v, l.load(1, at))
				if guarded {
					l.Line("\ty%d_%d = inside%[1]d ? y%[1]d_%[2]d : %[3]s;", c, v, text.Zero(l.s.Compute))
				}
			}
			y := fmt.Sprintf("y%d_0", c)
			if l.kind == lanesGroups {
				y = fmt.Sprintf("y%d_%d", c, v)
			}
			l.Line("\t%s", text.MultiplyAdd(l.s.Compute, fmt.Sprintf("s%d_%d", c, v), fmt.Sprintf("x%dv", v), y))
		}
	}
	l.Line("\t}")
}

// sumDepth writes a sum whose elements the lanes share.
func (l *laneWriter) sumDepth() {
	k := l.last
	l.Line("\tT s0 = %s, s1 = s0;", text.Zero(l.s.Compute))
	l.Line("\tfor (I q = from; q < to; q++) {")
	l.space(l.last, func() {
		l.places(l.last)
		l.inside()
		l.Line("\tin_a += q * g.a_deep;")
		l.Line("\tin_b += q * g.b_deep + c%d * g.b_steps[%[1]d];", k)
		inA := fmt.Sprintf("(low + %%d + THREAD) * g.a_steps[%d]", k)
		inB := fmt.Sprintf("(low + %%d + THREAD) * by * g.b_steps[%d]", k)
		if l.bits&laneUnitA != 0 {
			inA = "low + %d + LANE"
		}
		if l.bits&laneUnitB != 0 {
			inB = "low + %d + LANE"
		}
		add := func(sum string, offset int) {
			l.Line("\t%s", text.MultiplyAdd(l.s.Compute, sum, l.load(0, fmt.Sprintf("i0[in_a + "+inA+"]", offset)),
				l.load(1, fmt.Sprintf("i1[in_b + "+inB+"]", offset))))
		}
		l.Line("\tfor (; high - low >= %d; low += %[1]d) {", 2*loader.Lanes)
		add("s0", 0)
		add("s1", loader.Lanes)
		l.Line("\t}")
		l.Line("\tif (high - low >= %d) {", loader.Lanes)
		add("s0", 0)
		l.Line("\tlow += %d;", loader.Lanes)
		l.Line("\t}")
		l.Line("\tif (THREAD < high - low)")
		add("s1", 0)
	})
	l.Line("\t}")
	plus := "s0 + s1"
	if l.s.Compute.IsComplex() {
		plus = "c_add(s0, s1)"
	}
	l.Line("\tall[THREAD] = %s;", plus)
	l.Line("\tBARRIER();")
	l.Line("\tif (THREAD == 0) {")
	l.Line("\tT v = all[0];")
	l.Line("\tfor (int k = 1; k < THREADS; k++)")
	if l.s.Compute.IsComplex() {
		l.Line("\t\tv = c_add(v, all[k]);")
	} else {
		l.Line("\t\tv += all[k];")
	}
	l.Line("\tRESULT(%s)", "o")
	l.Line("\t}")
	l.Line("\tBARRIER();")
}
