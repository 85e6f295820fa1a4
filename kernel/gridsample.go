package kernel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chorus-comms/chorus/dtype"
)

// GridFamily reads images at places that a tensor says.
const GridFamily Family = 24

func init() { register(GridFamily, "grid_sample", gridSource) }

// GridSampling describes how images of two or three dimensions are read at places between their elements.
type GridSampling struct {
	Mode         string // bilinear or nearest
	Border       string // zeros, border or reflection: what lies outside
	AlignCorners bool   // -1 and 1 are the middles of the outermost elements, and not their outer borders
}

// sampledImages is a sampling's sizes and strides.
type sampledImages struct {
	imagePair
	gridBatch, gridPart, resultBatch, resultPart int
	gridSteps, resultSteps                       [maxSpatial]int
}

func (m *sampledImages) visit(r *record) {
	m.imagePair.visit(r)
	r.one("grid_batch", m.gridBatch)
	r.one("grid_part", m.gridPart)
	r.one("result_batch", m.resultBatch)
	r.one("result_part", m.resultPart)
	r.each("grid_steps", &m.gridSteps)
	r.each("result_steps", &m.resultSteps)
}

// Bits of a sampling's Extra[0].
const (
	gridNearest = 1 << iota
	gridBorder
	gridReflection
	gridCorners
)

// GridSample adds grid_sampler_2d or grid_sampler_3d: out [batch, channels, height, width] is in at the places grid
// [batch, height, width, 2], of which each has x and y from -1 to 1. Volumes have a depth before the height, and z
// behind y.
func (p *Plan) GridSample(out, in, grid Operand, g *GridSampling) error {
	return p.gridSample("sample", &out, &in, &grid, nil, g)
}

// GridSampleBackward adds the gradients of [Plan.GridSample] by its input and by the places, either of which may be the
// zero Operand. A thread adds that of a channel of an image by its input, in the order of the places.
func (p *Plan) GridSampleBackward(gradIn, gradGrid, grad, in, grid Operand, g *GridSampling) error {
	if gradIn.Type != dtype.Invalid {
		if gradIn.Value != nil {
			return fmt.Errorf("kernel: the gradient of grid_sample is a number")
		}
		if err := p.Fill(gradIn, Int(0)); err != nil {
			return err
		}
		if err := p.gridSample("input", &grad, &gradIn, &grid, nil, g); err != nil {
			return err
		}
	}
	if gradGrid.Type == dtype.Invalid {
		return nil
	}
	return p.gridSample("grid", &grad, &in, &grid, &gradGrid, g)
}

func (p *Plan) gridSample(op string, out, in, grid, result *Operand, g *GridSampling) error {
	s := Spec{Family: GridFamily, Op: op, Compute: Opmath(in.Type), Block: threads, Outs: 1, Ins: 2}
	d := len(in.Sizes) - 2
	if d < 2 || d > maxSpatial {
		return fmt.Errorf("kernel: grid_sample of %v, which must be batch, channels, and 2 or 3 of space", in.Sizes)
	}
	s.Dims = uint8(d)
	var m sampledImages
	if result == nil {
		result = grid
	}
	for _, o := range [...]*Operand{out, in, grid, result} {
		if err := o.check("an operand of grid_sample"); err != nil {
			return err
		}
		if o.Value != nil || len(o.Sizes) != d+2 || o.Sizes[0] != in.Sizes[0] || o.Type != in.Type || !o.Type.IsFloating() {
			return fmt.Errorf("kernel: grid_sample of %v %v at %v %v to %v %v", in.Type, in.Sizes, grid.Type, grid.Sizes,
				out.Type, out.Sizes)
		}
		s.Wide = s.Wide || wide(o.reach(), o.Count())
	}
	if out.Sizes[1] != in.Sizes[1] || !slices.Equal(grid.Sizes[1:d+1], out.Sizes[2:]) || grid.Sizes[d+1] != d ||
		!slices.Equal(result.Sizes, grid.Sizes) {
		return fmt.Errorf("kernel: grid_sample of %v at %v to %v", in.Sizes, grid.Sizes, out.Sizes)
	}
	switch g.Mode {
	case "bilinear":
	case "nearest":
		s.Extra[0] |= gridNearest
	default:
		return fmt.Errorf("kernel: there is no grid_sample of mode %q", g.Mode)
	}
	switch g.Border {
	case "zeros":
	case "border":
		s.Extra[0] |= gridBorder
	case "reflection":
		s.Extra[0] |= gridReflection
	default:
		return fmt.Errorf("kernel: there is no grid_sample with the border %q", g.Border)
	}
	if g.AlignCorners {
		s.Extra[0] |= gridCorners
	}
	m.pair(in, out, d)
	m.gridBatch, m.gridPart, m.resultBatch, m.resultPart = grid.Strides[0], grid.Strides[d+1], result.Strides[0],
		result.Strides[d+1]
	places := m.batch
	for k := range d {
		places *= m.out[k]
		m.gridSteps[k], m.resultSteps[k] = grid.Strides[1+k], result.Strides[1+k]
		if m.in[k] == 0 && out.Count() > 0 {
			return fmt.Errorf("kernel: grid_sample of images of %v", in.Sizes)
		}
	}
	n, operands := places*m.channels, [4]*Operand{out, in, grid}
	count := 3
	switch op {
	case "input":
		n, operands = m.batch*m.channels, [4]*Operand{in, out, grid}
		if places == 0 {
			return nil
		}
	case "grid":
		n, count, operands = places, 4, [4]*Operand{result, out, in, grid}
		s.Ins = 3
	}
	if n == 0 {
		return nil
	}
	for k, o := range operands[:count] {
		s.Types[k] = o.Type
	}
	c := p.call(s, n)
	for _, o := range operands[:count] {
		c.Args.Pointer(o.Ptr)
	}
	r := record{dims: d, wide: s.Wide}
	m.visit(&r)
	r.add(&c.Args)
	return nil
}

// gridPlace has the place in an image of size elements of a number x from -1 to 1, and its derivative by x. lost is NaN
// if that place isn't finite, and otherwise 0. Within borders a place that is NaN becomes the number undefined.
const gridPlace = `DEVICE T g_clip(T x, T size, T *slope) {
	if (isnan(x)) {
		*slope = 0;
		return %[2]s;
	}
	if (x <= 0) {
		*slope = 0;
		return 0;
	}
	if (x >= size - 1) {
		*slope = 0;
		return size - 1;
	}
	return x;
}
DEVICE T g_reflect(T x, T low, T span, T *slope) {
	T flips, rest;
	if (span == 0) {
		*slope = 0;
		return 0;
	}
	x -= low;
	if (x < 0) {
		x = -x;
		*slope = -*slope;
	}
	flips = floor(x / span);
	rest = fmod(x, span);
	if (fmod(flips, (T)2) == 0)
		return rest + low;
	*slope = -*slope;
	return span - rest + low;
}
DEVICE T g_place(T x, T size, T *slope, T *lost) {
	%[1]s
	return x > (T)-1e9 && x < (T)1e9 ? x : (T)-100;
}
`

func gridSource(s Spec) (Source, error) {
	if !s.Compute.IsFloating() {
		return Source{}, fmt.Errorf("kernel: there is no grid_sample of %v", s.Compute)
	}
	bits := s.Extra[0]
	corners, nearest := bits&gridCorners != 0, bits&gridNearest != 0
	body := "*slope = size / 2; x = ((x + 1) * size - 1) / 2; *lost = x - x;"
	reflected := "x = g_reflect(x, (T)-0.5, size, slope);"
	if corners {
		body = "*slope = (size - 1) / 2; x = (x + 1) / 2 * (size - 1); *lost = x - x;"
		reflected = "x = g_reflect(x, 0, size - 1, slope);"
	}
	if bits&gridReflection != 0 {
		body += " " + reflected
	}
	if bits&(gridBorder|gridReflection) != 0 {
		body += " x = g_clip(x, size, slope);"
	}
	dims := int(s.Dims)
	undefined := "0" // as on PyTorch's CPU, whose loops over volumes aren't those over images
	switch {
	case dims > 2 && s.Op == "sample":
		undefined = "size - 1"
	case dims > 2:
		undefined = "x"
	}
	each := func(format, between string) string { // of a dimension's number, for all of them
		var list []string
		for k := range dims {
			list = append(list, fmt.Sprintf(format, k))
		}
		return strings.Join(list, between)
	}
	var w writer
	w.begin(s)
	w.line(gridPlace, body, undefined)
	w.recordType("images", dims, (&sampledImages{}).visit)
	w.pointers(s)
	w.param("images g")
	w.function("grid_" + s.Op)
	w.line("\tI rest = (I)(BLOCK * THREADS + THREAD), up, c = 0, %s;", each("u%d", ", "))
	places := each("g.out[%d]", " * ")
	elements := map[string]string{"sample": "g.batch * g.channels * " + places, "input": "g.batch * g.channels",
		"grid": "g.batch * " + places}[s.Op]
	w.line("\tif (rest >= %s)", elements)
	w.line("\t\treturn;")
	if s.Op != "input" {
		for k := dims - 1; k >= 0; k-- {
			w.split("\t", fmt.Sprintf("u%d", k), fmt.Sprintf("g.out[%d]", k))
		}
	}
	if s.Op != "grid" {
		w.split("\t", "c", "g.channels")
	}
	w.line("\tI in = rest * g.in_batch + c * g.in_channel, out = rest * g.out_batch + c * g.out_channel;")
	if s.Op == "input" {
		w.line("\t%s {", each("for (u%[1]d = 0; u%[1]d < g.out[%[1]d]; u%[1]d++)", "\n\t"))
	}
	grid := fmt.Sprintf("i%d", s.Ins-1)
	w.line("\tI at = rest * g.grid_batch + %s;", each("u%[1]d * g.grid_steps[%[1]d]", " + "))
	for k := range dims { // the last dimension has the place's first number
		number := fmt.Sprintf("%s[at + %d * g.grid_part]", grid, dims-1-k)
		w.line("\tT slope%d, lost%[1]d, x%[1]d = g_place(%[2]s, (T)g.in[%[1]d], &slope%[1]d, &lost%[1]d);", k,
			converted(s.Compute, s.Types[0], number))
	}
	if nearest {
		w.line("\tI %s;", each("k%[1]d = (I)rint(x%[1]d)", ", "))
	} else {
		w.line("\tI %s;", each("k%[1]d = (I)floor(x%[1]d)", ", "))
		w.line("\tT %s;", each("p%[1]d = x%[1]d - (T)k%[1]d", ", "))
	}
	// the elements around the place, their weights, and the derivatives of those
	corner := func(indent string, use func(indent, place, weight string, slopes []string)) {
		if nearest {
			w.line("%sif (%s) {", indent, each("(U)k%[1]d < (U)g.in[%[1]d]", " && "))
			use(indent+"\t", "in + "+each("k%[1]d * g.in_steps[%[1]d]", " + "), "1", []string{"0", "0", "0"}[:dims])
			w.line("%s}", indent)
			return
		}
		w.line("%sfor (int t = 0; t < %d; t++) {", indent, 1<<dims)
		for k := range dims { // the last dimension changes first
			w.line("%s\tint b%d = t >> %d & 1;", indent, k, dims-1-k)
		}
		w.line("%s\tI %s;", indent, each("j%[1]d = k%[1]d + b%[1]d", ", "))
		w.line("%s\tT %s;", indent, each("w%[1]d = b%[1]d ? p%[1]d : 1 - p%[1]d", ", "))
		w.line("%s\tif (%s) {", indent, each("(U)j%[1]d < (U)g.in[%[1]d]", " && "))
		var slopes []string
		for k := range dims {
			var others []string
			for i := range dims {
				if i != k {
					others = append(others, fmt.Sprintf("w%d", i))
				}
			}
			slopes = append(slopes, fmt.Sprintf("(b%d ? 1 : -1) * %s", k, strings.Join(others, " * ")))
		}
		use(indent+"\t\t", "in + "+each("j%[1]d * g.in_steps[%[1]d]", " + "), each("w%d", " * "), slopes)
		w.line("%s\t}", indent)
		w.line("%s}", indent)
	}
	// Where there's nothing outside, the weights of an image's elements are NaN at a place that isn't finite.
	start := []string{"0", "0", "0"}
	if dims == 2 && !nearest && bits&(gridBorder|gridReflection) == 0 {
		start = []string{"lost1", "lost0"}
	}
	here := "out + " + each("u%[1]d * g.out_steps[%[1]d]", " + ")
	switch s.Op {
	case "sample":
		w.line("\tT v = %s;", strings.Join(start, " + "))
		corner("\t", func(indent, place, weight string, _ []string) {
			w.line("%sv += %s * (%s);", indent, converted(s.Compute, s.Types[1], "i0["+place+"]"), weight)
		})
		w.line("\to0[%s] = %s;", here, narrowed(s.Types[0], s.Compute, "v"))
	case "input":
		w.line("\tT v = %s;", converted(s.Compute, s.Types[1], "i0["+here+"]"))
		corner("\t", func(indent, place, weight string, _ []string) {
			w.line("%sI to = %s;", indent, place)
			w.line("%sT sum = %s + v * (%s);", indent, converted(s.Compute, s.Types[0], "o0[to]"), weight)
			w.line("%so0[to] = %s;", indent, narrowed(s.Types[0], s.Compute, "sum"))
		})
		w.line("\t}")
	case "grid":
		for k := range dims {
			w.line("\tT sum%d = %s;", k, start[k])
		}
		w.line("\tfor (c = 0; c < g.channels; c++) {")
		w.line("\t\tT v = %s;", converted(s.Compute, s.Types[1], "i0["+here+"]"))
		corner("\t\t", func(indent, place, _ string, slopes []string) {
			w.line("%sT x = v * %s;", indent, converted(s.Compute, s.Types[2], "i1["+place+"]"))
			for k, slope := range slopes {
				w.line("%ssum%d += x * (%s);", indent, k, slope)
			}
		})
		w.line("\t\tin += g.in_channel;")
		w.line("\t\tout += g.out_channel;")
		w.line("\t}")
		w.line("\tat = rest * g.result_batch + %s;", each("u%[1]d * g.result_steps[%[1]d]", " + "))
		for k := range dims {
			w.line("\to0[at + %d * g.result_part] = %s;", dims-1-k,
				narrowed(s.Types[0], s.Compute, fmt.Sprintf("(sum%d * slope%[1]d)", k)))
		}
	}
	return w.done()
}
