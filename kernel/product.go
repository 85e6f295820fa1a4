package kernel

import (
	"fmt"
	"math"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
)

// ProductFamily multiplies matrices of which one has elements of images: the three products of a convolution.
const ProductFamily Family = 25

func init() { register(ProductFamily, "convolution", productSource) }

// The forms of a product.
const (
	productTiles   = iota // a block computes a tile of the result
	productThreads        // a thread computes an element
	productBlocks         // a block computes an element of a product that isn't divided
	productLanes          // a processor's: see [Plan.laneProduct]
)

// Bits of a product's Extra[0].
const (
	productBias         = 1 << iota
	productDivided      // see product.divisor
	productNearA        // neighbours of a are those of the sum, and not of the rows
	productNearB        // neighbours of b are those of the sum, and not of the columns
	productDeepInside   // deep is the last digit of the depth, and not the first
	productChannelsLast // rows are the last digit of elements, for forms other than tiles
)

// product is result[row, column] = sum over depth of a[row, depth] * b[depth, column], for each group. A column is the
// number outer and a place u in space, and a depth the number deep and a place t in space. They have the coordinate
// x = u*columnStep + columnStart + t*depthStep + depthStart in b, where elements beyond the limits are 0.
type product struct {
	dims        int
	rows        int
	outer, deep int
	groups      int
	parts       int // of the depth, each with a result of its own
	chunk       int // depth of a part
	phases      int // of a divided product, see below
	tiles       int // in a row

	columns, columnStep, columnStart [maxSpatial]int
	depth, depthStep, depthStart     [maxSpatial]int
	limits                           [maxSpatial]int

	// Of a divided product the coordinate is x / divisor, where that leaves nothing, and other elements are 0. Tiles have
	// columns of one remainder, a phase, so that they have the same elements of a, which are every skip-th one.
	divided       bool
	divisor, skip [maxSpatial]int

	oRow, oOuter, oGroup, oPart int // strides of the result
	aRow, aDeep, aGroup         int
	bOuter, bDeep, bGroup       int
	biasStep                    int
	oSteps, aSteps, bSteps      [maxSpatial]int

	reduces bool // few elements, and long sums
	wide    bool
	compute dtype.DType
}

// visit names the numbers.
func (g *product) visit(r *record) {
	r.one("rows", g.rows)
	r.one("outer", g.outer)
	r.one("deep", g.deep)
	r.one("groups", g.groups)
	r.one("parts", g.parts)
	r.one("chunk", g.chunk)
	r.one("phases", g.phases)
	r.one("tiles", g.tiles)
	r.one("o_row", g.oRow)
	r.one("o_outer", g.oOuter)
	r.one("o_group", g.oGroup)
	r.one("o_part", g.oPart)
	r.one("a_row", g.aRow)
	r.one("a_deep", g.aDeep)
	r.one("a_group", g.aGroup)
	r.one("b_outer", g.bOuter)
	r.one("b_deep", g.bDeep)
	r.one("b_group", g.bGroup)
	r.one("bias", g.biasStep)
	r.each("columns", &g.columns)
	r.each("column_step", &g.columnStep)
	r.each("column_start", &g.columnStart)
	r.each("depth", &g.depth)
	r.each("depth_step", &g.depthStep)
	r.each("depth_start", &g.depthStart)
	r.each("limits", &g.limits)
	r.each("divisor", &g.divisor)
	r.each("skip", &g.skip)
	r.each("o_steps", &g.oSteps)
	r.each("a_steps", &g.aSteps)
	r.each("b_steps", &g.bSteps)
}

// product adds a product.
func (p *Plan) product(g *product, out, a, b, bias *Operand) error {
	s := Spec{Family: ProductFamily, Compute: g.compute, Block: threads, Outs: 1, Ins: 3, Dims: uint8(g.dims),
		Wide: g.wide}
	s.Types = [MaxOperands]dtype.DType{out.Type, a.Type, b.Type, a.Type}
	columns, depth, widest := g.outer, g.depthCount(), g.outer
	for k := range g.dims {
		columns *= g.columns[k]
		g.skip[k] = 1
		if g.divided {
			g.skip[k] = g.divisor[k] / gcd(g.divisor[k], g.depthStep[k])
			g.phases *= g.divisor[k]
			widest *= (g.columns[k] + g.divisor[k] - 1) / g.divisor[k]
		} else {
			widest *= g.columns[k]
		}
	}
	elements := g.rows * g.groups * columns
	if elements == 0 {
		return nil
	}
	if g.parts == 1 {
		g.chunk = max(depth, 1)
	}
	s.Wide = s.Wide || wide(elements, depth)
	last := g.dims - 1
	aNear, bNear := g.aDeep, g.bDeep
	if last >= 0 {
		if g.bDeep == 1 || g.aDeep == 1 {
			s.Extra[0] |= productDeepInside
		} else {
			aNear, bNear = g.aSteps[last], g.depthStep[last]*g.bSteps[last]
		}
	}
	if aNear == 1 {
		s.Extra[0] |= productNearA
	}
	if bNear == 1 && !(last >= 0 && g.columnStep[last]*g.bSteps[last] == 1) {
		s.Extra[0] |= productNearB
	}
	if bias.Type != dtype.Invalid {
		s.Extra[0] |= productBias
	}
	if g.divided {
		s.Extra[0] |= productDivided
	}
	if g.oRow == 1 {
		s.Extra[0] |= productChannelsLast
	}
	if kind := g.lanes(); p.Cores > 0 && kind != 0 {
		return p.laneProduct(s, g, kind, out, a, b, bias)
	}
	var c *Call
	switch {
	case g.rows > fewRows || g.parts > 1:
		g.tiles = tilesOf(widest)
		grid := device.Dim{X: g.tiles * g.groups * g.parts * g.phases, Y: tilesOf(g.rows), Z: 1}
		if grid.X > math.MaxInt32 || grid.Y > math.MaxUint16 {
			return fmt.Errorf("kernel: a convolution of %d channels to %d elements", g.rows, columns)
		}
		c = p.tiles(s, grid)
	case g.reduces:
		s.Form = productBlocks
		c = p.blocks(s, device.Dim{X: elements, Y: 1, Z: 1})
	default:
		s.Form = productThreads
		c = p.call(s, elements)
	}
	c.Args.Pointer(out.Ptr).Pointer(a.Ptr).Pointer(b.Ptr).Pointer(bias.Ptr)
	r := record{dims: g.dims, wide: s.Wide}
	g.visit(&r)
	r.add(&c.Args)
	return nil
}

func gcd(a, b int) int {
	a, b = max(a, -a), max(b, -b)
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func productSource(s Spec) (Source, error) {
	if s.Compute == dtype.Bool || !Supported(s.Compute) {
		return Source{}, fmt.Errorf("kernel: a convolution isn't computed in %v", s.Compute)
	}
	var w writer
	w.begin(s)
	w.recordType("product", int(s.Dims), (&product{}).visit)
	w.pointers(s)
	w.param("product g")
	switch s.Form {
	case productTiles:
		w.productTiles(s)
	case productThreads, productBlocks:
		w.productElements(s)
	case productLanes:
		w.productLanes(s)
	}
	return w.done()
}

// productDigits declares the digits of a depth number: q of deep, and t0, t1 and t2 of space, with a prefix.
func (w *writer) productDigits(s Spec, indent, prefix string) {
	w.line("%sI %sq = 0;", indent, prefix)
	for k := range int(s.Dims) {
		w.line("%sI %st%d = 0;", indent, prefix, k)
	}
}

// productDepth writes the digits of depth number rest.
func (w *writer) productDepth(s Spec, indent, prefix string) {
	digits, sizes := s.depthDigits(prefix)
	for k, digit := range digits[:len(digits)-1] {
		w.split(indent, digit, sizes[k])
	}
	w.line("%s%s = rest;", indent, digits[len(digits)-1])
}

// depthDigits are the names of the digits and their sizes, the last digit first.
func (s Spec) depthDigits(prefix string) (digits, sizes []string) {
	add := func(digit, size string) { digits, sizes = append(digits, prefix+digit), append(sizes, size) }
	inside := s.Extra[0]&productDeepInside != 0
	if inside {
		add("q", "g.deep")
	}
	for k := int(s.Dims) - 1; k >= 0; k-- {
		add(fmt.Sprintf("t%d", k), fmt.Sprintf("g.depth[%d]", k))
	}
	if !inside {
		add("q", "g.deep")
	}
	return digits, sizes
}

// productResult writes the element of the result that has the sum v.
func (w *writer) productResult(s Spec, indent, at string) {
	if s.Extra[0]&productBias != 0 {
		bias := converted(s.Compute, s.Types[3], "i2[(group * g.rows + row) * g.bias]")
		if s.Compute.IsComplex() {
			w.line("%sv = c_add(v, %s);", indent, bias)
		} else {
			w.line("%sv += %s;", indent, bias)
		}
	}
	w.line("%so0[%s] = %s;", indent, at, narrowed(s.Types[0], s.Compute, "v"))
}

func (w *writer) productTiles(s Spec) {
	dims, bits := int(s.Dims), s.Extra[0]
	w.function("convolution_tiles")
	w.tileMemory(s.Compute, tileEach)
	w.line("\tLOCAL I column_b[%d], column_o[%[1]d], depth_a[%d], depth_b[%[2]d];", tileSide, tileDepth)
	if dims > 0 {
		w.line("\tLOCAL I column_x[%d][%d], depth_x[%[1]d][%[3]d];", dims, tileSide, tileDepth)
	}
	w.line("\tI block = (I)BLOCK, row0 = (I)BLOCK_Y * %d, column0, part, phase, group;", tileSide)
	w.line("\tcolumn0 = block %% g.tiles * %d;", tileSide)
	w.line("\tblock /= g.tiles;")
	w.line("\tpart = block %% g.parts;")
	w.line("\tblock /= g.parts;")
	w.line("\tphase = block %% g.phases;")
	w.line("\tgroup = block / g.phases;")
	w.line("\tI a = group * g.a_group, b = group * g.b_group, o = group * g.o_group + part * g.o_part;")
	if bits&productDivided != 0 {
		// Columns that leave the same remainder r, from the first one on, and elements of a from the first one on.
		for k := dims - 1; k >= 0; k-- {
			w.line("\t{")
			w.line("\t\tI size = g.divisor[%d], r = phase %% size, k = 0, first = (r - g.column_start[%[1]d]) %% size;", k)
			w.line("\t\tphase /= size;")
			w.line("\t\tif (first < 0)")
			w.line("\t\t\tfirst += size;")
			w.line("\t\twhile (k < g.depth[%d] && (r + k * g.depth_step[%[1]d]) %% size != 0)", k)
			w.line("\t\t\tk++;")
			w.line("\t\tg.columns[%d] = first < g.columns[%[1]d] ? (g.columns[%[1]d] - 1 - first) / size + 1 : 0;", k)
			w.line("\t\tg.column_start[%d] = (first + g.column_start[%[1]d] + k * g.depth_step[%[1]d]) / size;", k)
			w.line("\t\tg.depth[%d] = k < g.depth[%[1]d] ? (g.depth[%[1]d] - 1 - k) / g.skip[%[1]d] + 1 : 0;", k)
			w.line("\t\tg.depth_step[%d] = g.depth_step[%[1]d] * g.skip[%[1]d] / size;", k)
			w.line("\t\ta += k * g.a_steps[%d];", k)
			w.line("\t\tg.a_steps[%d] *= g.skip[%[1]d];", k)
			w.line("\t\to += first * g.o_steps[%d];", k)
			w.line("\t\tg.o_steps[%d] *= size;", k)
			w.line("\t}")
		}
	}
	w.line("\tI columns = g.outer, depth = g.deep;")
	for k := range dims {
		w.line("\tcolumns *= g.columns[%d];", k)
		w.line("\tdepth *= g.depth[%d];", k)
	}
	w.line("\tif (column0 >= columns)")
	w.line("\t\treturn;")
	w.line("\tif (ty < %d) {", tileSide/tileThreads)
	w.line("\t\tint e = ty * %d + tx;", tileThreads)
	w.line("\t\tI rest = column0 + e, up, u, x;")
	w.line("\t\tcolumn_b[e] = b;")
	w.line("\t\tcolumn_o[e] = o;")
	for k := dims - 1; k >= 0; k-- {
		w.split("\t\t", "u", fmt.Sprintf("g.columns[%d]", k))
		w.line("\t\tcolumn_x[%d][e] = x = u * g.column_step[%[1]d] + g.column_start[%[1]d];", k)
		w.line("\t\tcolumn_b[e] += x * g.b_steps[%d];", k)
		w.line("\t\tcolumn_o[e] += u * g.o_steps[%d];", k)
	}
	w.line("\t\tcolumn_b[e] += rest * g.b_outer;")
	w.line("\t\tcolumn_o[e] += rest * g.o_outer;")
	w.line("\t}")
	w.line("\tI from = part * g.chunk, to = depth - from < g.chunk ? depth : from + g.chunk;")
	w.line("\tfor (I k0 = from; k0 < to; k0 += %d) {", tileDepth)
	w.line("\t\tif (ty == 0) {")
	w.line("\t\t\tI rest = k0 + tx, up;")
	w.productDigits(s, "\t\t\t", "")
	w.productDepth(s, "\t\t\t", "")
	w.line("\t\t\tI x, in_a = a + q * g.a_deep, in_b = q * g.b_deep;")
	for k := range dims {
		w.line("\t\t\tx = t%d * g.depth_step[%[1]d] + g.depth_start[%[1]d];", k)
		w.line("\t\t\tdepth_x[%d][tx] = x;", k)
		w.line("\t\t\tin_a += t%d * g.a_steps[%[1]d];", k)
		w.line("\t\t\tin_b += x * g.b_steps[%d];", k)
	}
	w.line("\t\t\tdepth_a[tx] = in_a;")
	w.line("\t\t\tdepth_b[tx] = in_b;")
	w.line("\t\t}")
	w.line("\t\tBARRIER();")
	w.line("\t\tfor (int e = 0; e < %d; e++) {", tileSide/tileThreads)
	place := func(near bool) {
		if near {
			w.line("\t\t\tk = tx;")
			w.line("\t\t\tr = ty + %d * e;", tileThreads)
		} else {
			w.line("\t\t\tk = ty;")
			w.line("\t\t\tr = tx + %d * e;", tileThreads)
		}
		w.line("\t\t\tv = %s;", zero(s.Compute))
	}
	w.line("\t\t\tint k, r;")
	w.line("\t\t\tT v;")
	place(bits&productNearA != 0)
	w.line("\t\t\tif (row0 + r < g.rows && k0 + k < to)")
	w.line("\t\t\t\tv = %s;", converted(s.Compute, s.Types[1], "i0[depth_a[k] + (row0 + r) * g.a_row]"))
	w.line("\t\t\tleft[k][r] = v;")
	place(bits&productNearB != 0)
	inside := "column0 + r < columns && k0 + k < to"
	for k := range dims {
		inside += fmt.Sprintf(" && (U)(column_x[%d][r] + depth_x[%[1]d][k]) < (U)g.limits[%[1]d]", k)
	}
	w.line("\t\t\tif (%s)", inside)
	w.line("\t\t\t\tv = %s;", converted(s.Compute, s.Types[2], "i1[column_b[r] + depth_b[k]]"))
	w.line("\t\t\tright[k][r] = v;")
	w.line("\t\t}")
	w.tileProducts(s.Compute, tileEach)
	w.line("\t}")
	w.line("\tBARRIER();") // the columns, where the loop has no rounds
	w.line("\tfor (int r = 0; r < 4; r++)")
	w.line("\t\tfor (int q = 0; q < 4; q++) {")
	w.line("\t\t\tint c = tx + %d * q;", tileThreads)
	w.line("\t\t\tI row = row0 + ty + %d * r;", tileThreads)
	w.line("\t\t\tT v = sum[r][q];")
	w.line("\t\t\tif (row >= g.rows || column0 + c >= columns)")
	w.line("\t\t\t\tcontinue;")
	w.productResult(s, "\t\t\t", "column_o[c] + row * g.o_row")
	w.line("\t\t}")
}

func (w *writer) productElements(s Spec) {
	dims, bits := int(s.Dims), s.Extra[0]
	w.function("convolution_" + [...]string{productThreads: "threads", productBlocks: "blocks"}[s.Form])
	w.line("\tI channels = g.groups * g.rows, channel, up, group, row;")
	w.line("\tI elements = g.outer * channels;")
	for k := range dims {
		w.line("\telements *= g.columns[%d];", k)
	}
	if s.Form == productThreads {
		w.line("\tI rest = (I)(BLOCK * THREADS + THREAD);")
		w.line("\tif (rest >= elements)")
		w.line("\t\treturn;")
	} else {
		w.line("\tLOCAL T part[%d];", s.Block)
		w.line("\tI rest = (I)BLOCK;")
	}
	if bits&productChannelsLast != 0 {
		w.split("\t", "channel", "channels")
	}
	for k := dims - 1; k >= 0; k-- {
		w.line("\tI u%d;", k)
		w.split("\t", fmt.Sprintf("u%d", k), fmt.Sprintf("g.columns[%d]", k))
	}
	if bits&productChannelsLast == 0 {
		w.split("\t", "channel", "channels")
	}
	w.line("\tgroup = channel / g.rows;")
	w.line("\trow = channel - group * g.rows;")
	w.line("\tI a = group * g.a_group + row * g.a_row, b = group * g.b_group + rest * g.b_outer;")
	w.line("\tI o = group * g.o_group + row * g.o_row + rest * g.o_outer;")
	for k := range dims {
		w.line("\tI c%d = u%[1]d * g.column_step[%[1]d] + g.column_start[%[1]d] + g.depth_start[%[1]d];", k)
		w.line("\to += u%d * g.o_steps[%[1]d];", k)
	}
	w.line("\tT v = %s;", zero(s.Compute))
	coordinate := func(indent string, k int) {
		w.line("%sI x%d = c%[2]d + t%[2]d * g.depth_step[%[2]d];", indent, k)
		if bits&productDivided != 0 {
			w.line("%sif (x%d < 0 || x%[2]d %% g.divisor[%[2]d] != 0)", indent, k)
			w.line("%s\tcontinue;", indent)
			w.line("%sx%d /= g.divisor[%[2]d];", indent, k)
		}
		w.line("%sif ((U)x%d >= (U)g.limits[%[2]d])", indent, k)
		w.line("%s\tcontinue;", indent)
	}
	terms := func() (inA, inB string) {
		inA, inB = "a + q * g.a_deep", "b + q * g.b_deep"
		for k := range dims {
			inA += fmt.Sprintf(" + t%d * g.a_steps[%[1]d]", k)
			inB += fmt.Sprintf(" + x%d * g.b_steps[%[1]d]", k)
		}
		return converted(s.Compute, s.Types[1], "i0["+inA+"]"), converted(s.Compute, s.Types[2], "i1["+inB+"]")
	}
	inA, inB := terms()
	if s.Form == productThreads {
		indent := "\t"
		w.line("\tfor (I q = 0; q < g.deep; q++) {")
		for k := range dims {
			indent += "\t"
			w.line("%sfor (I t%d = 0; t%[2]d < g.depth[%[2]d]; t%[2]d++) {", indent, k)
			coordinate(indent+"\t", k)
		}
		w.line("%s\t%s", indent, multiplyAdd(s.Compute, "v", inA, inB))
		for range dims {
			w.line("%s}", indent)
			indent = indent[1:]
		}
		w.line("\t}")
		w.productResult(s, "\t", "o")
		return
	}
	w.line("\tI depth = g.deep;")
	for k := range dims {
		w.line("\tdepth *= g.depth[%d];", k)
	}
	// The digits of a thread's first number, and of the step to its next one, are divided once, and then added.
	w.productDigits(s, "\t", "")
	w.productDigits(s, "\t", "step_")
	w.line("\tif (depth > 0) {")
	w.line("\t\trest = THREAD;")
	w.productDepth(s, "\t\t", "")
	w.line("\t\trest = THREADS;")
	w.productDepth(s, "\t\t", "step_")
	w.line("\t}")
	w.line("\tfor (I k = THREAD; k < depth; k += THREADS) {")
	inside := "1"
	for k := range dims {
		w.line("\t\tI x%d = c%[1]d + t%[1]d * g.depth_step[%[1]d];", k)
		inside += fmt.Sprintf(" && (U)x%d < (U)g.limits[%[1]d]", k)
	}
	w.line("\t\tif (%s)", inside)
	w.line("\t\t\t%s", multiplyAdd(s.Compute, "v", inA, inB))
	digits, sizes := s.depthDigits("")
	for k, digit := range digits {
		w.line("\t\t%s += step_%s;", digit, digit)
		if k > 0 {
			w.line("\t\t%s += up;", digit)
		}
		if k < len(digits)-1 {
			w.line("\t\tup = %s >= %s;", digit, sizes[k])
			w.line("\t\t%s -= up ? %s : 0;", digit, sizes[k])
		}
	}
	w.line("\t}")
	w.line("\tpart[THREAD] = v;")
	w.line("\tBARRIER();")
	w.line("\tfor (int k = THREADS / 2; k > 0; k /= 2) {")
	if s.Compute.IsComplex() {
		w.line("\t\tif (THREAD < k) part[THREAD] = c_add(part[THREAD], part[THREAD + k]);")
	} else {
		w.line("\t\tif (THREAD < k) part[THREAD] += part[THREAD + k];")
	}
	w.line("\t\tBARRIER();")
	w.line("\t}")
	w.line("\tif (THREAD != 0)")
	w.line("\t\treturn;")
	w.line("\tv = part[0];")
	w.productResult(s, "\t", "o")
}
