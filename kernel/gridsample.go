package kernel

import (
	"fmt"
	"math"

	"github.com/chorus-comms/chorus/dtype"
)

// GridFamily reads images at places that a tensor says.
const GridFamily Family = 24

func init() { register(GridFamily, "grid_sample", gridSource) }

// GridSampling describes how images of two dimensions are read at places between their elements.
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

// GridSample adds grid_sampler_2d: out [batch, channels, height, width] is in at the places grid [batch, height, width,
// 2], of which each has x and y from -1 to 1.
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
	s := Spec{Family: GridFamily, Op: op, Compute: Opmath(in.Type), Block: threads, Outs: 1, Ins: 2, Dims: 2}
	var m sampledImages
	if result == nil {
		result = grid
	}
	for _, o := range [...]*Operand{out, in, grid, result} {
		if err := o.check("an operand of grid_sample"); err != nil {
			return err
		}
		if o.Value != nil || len(o.Sizes) != 4 || o.Sizes[0] != in.Sizes[0] || o.Type != in.Type || !o.Type.IsFloating() {
			return fmt.Errorf("kernel: grid_sample of %v %v at %v %v to %v %v", in.Type, in.Sizes, grid.Type, grid.Sizes,
				out.Type, out.Sizes)
		}
		s.Wide = s.Wide || o.reach() > math.MaxInt32/2 || o.Count() > math.MaxInt32/2
	}
	if out.Sizes[1] != in.Sizes[1] || grid.Sizes[1] != out.Sizes[2] || grid.Sizes[2] != out.Sizes[3] ||
		grid.Sizes[3] != 2 || result.Sizes[1] != grid.Sizes[1] || result.Sizes[2] != grid.Sizes[2] || result.Sizes[3] != 2 {
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
	m.pair(in, out, 2)
	m.gridBatch, m.gridPart, m.resultBatch, m.resultPart = grid.Strides[0], grid.Strides[3], result.Strides[0],
		result.Strides[3]
	for k := range 2 {
		m.gridSteps[k], m.resultSteps[k] = grid.Strides[1+k], result.Strides[1+k]
		if m.in[k] == 0 && out.Count() > 0 {
			return fmt.Errorf("kernel: grid_sample of images of %v", in.Sizes)
		}
	}
	places := m.batch * m.out[0] * m.out[1]
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
	r := record{dims: 2, wide: s.Wide}
	m.visit(&r)
	r.add(&c.Args)
	return nil
}

// gridPlace has the place in an image of size elements of a number x from -1 to 1, and its derivative by x.
const gridPlace = `DEVICE T g_clip(T x, T size, T *slope) {
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
DEVICE T g_place(T x, T size, T *slope) {
	%s
	return x > (T)-1e9 && x < (T)1e9 ? x : (T)-100;
}
`

func gridSource(s Spec) (Source, error) {
	if !s.Compute.IsFloating() {
		return Source{}, fmt.Errorf("kernel: there is no grid_sample of %v", s.Compute)
	}
	bits := s.Extra[0]
	corners, nearest := bits&gridCorners != 0, bits&gridNearest != 0
	body := "*slope = size / 2; x = ((x + 1) * size - 1) / 2;"
	reflected := "x = g_reflect(x, (T)-0.5, size, slope);"
	if corners {
		body = "*slope = (size - 1) / 2; x = (x + 1) / 2 * (size - 1);"
		reflected = "x = g_reflect(x, 0, size - 1, slope);"
	}
	if bits&gridReflection != 0 {
		body += " " + reflected
	}
	if bits&(gridBorder|gridReflection) != 0 {
		body += " x = g_clip(x, size, slope);"
	}
	var w writer
	w.begin(s)
	w.line(gridPlace, body)
	w.recordType("images", 2, (&sampledImages{}).visit)
	w.pointers(s)
	w.param("images g")
	w.function("grid_" + s.Op)
	w.line("\tI rest = (I)(BLOCK * THREADS + THREAD), up, c = 0, u0, u1;")
	elements := map[string]string{"sample": "g.batch * g.channels * g.out[0] * g.out[1]", "input": "g.batch * g.channels",
		"grid": "g.batch * g.out[0] * g.out[1]"}[s.Op]
	w.line("\tif (rest >= %s)", elements)
	w.line("\t\treturn;")
	if s.Op != "input" {
		w.split("\t", "u1", "g.out[1]")
		w.split("\t", "u0", "g.out[0]")
	}
	if s.Op != "grid" {
		w.split("\t", "c", "g.channels")
	}
	w.line("\tI in = rest * g.in_batch + c * g.in_channel, out = rest * g.out_batch + c * g.out_channel;")
	if s.Op == "input" {
		w.line("\tfor (u0 = 0; u0 < g.out[0]; u0++)")
		w.line("\tfor (u1 = 0; u1 < g.out[1]; u1++) {")
	}
	grid := fmt.Sprintf("i%d", s.Ins-1)
	w.line("\tI at = rest * g.grid_batch + u0 * g.grid_steps[0] + u1 * g.grid_steps[1];")
	w.line("\tT slope0, slope1;")
	w.line("\tT x1 = g_place(%s, (T)g.in[1], &slope1);", converted(s.Compute, s.Types[0], grid+"[at]"))
	w.line("\tT x0 = g_place(%s, (T)g.in[0], &slope0);", converted(s.Compute, s.Types[0], grid+"[at + g.grid_part]"))
	if nearest {
		w.line("\tI k0 = (I)rint(x0), k1 = (I)rint(x1);")
	} else {
		w.line("\tI k0 = (I)floor(x0), k1 = (I)floor(x1);")
		w.line("\tT p0 = x0 - (T)k0, p1 = x1 - (T)k1;")
	}
	// the elements around the place, their weights, and the derivatives of those
	corner := func(indent string, use func(indent, place, weight, slope0, slope1 string)) {
		if nearest {
			w.line("%sif ((U)k0 < (U)g.in[0] && (U)k1 < (U)g.in[1]) {", indent)
			use(indent+"\t", "in + k0 * g.in_steps[0] + k1 * g.in_steps[1]", "1", "0", "0")
			w.line("%s}", indent)
			return
		}
		w.line("%sfor (int t = 0; t < 4; t++) {", indent)
		w.line("%s\tI j0 = k0 + t / 2, j1 = k1 + t %% 2;", indent)
		w.line("%s\tT w0 = t / 2 ? p0 : 1 - p0, w1 = t %% 2 ? p1 : 1 - p1;", indent)
		w.line("%s\tif ((U)j0 < (U)g.in[0] && (U)j1 < (U)g.in[1]) {", indent)
		use(indent+"\t\t", "in + j0 * g.in_steps[0] + j1 * g.in_steps[1]", "w0 * w1", "(t / 2 ? w1 : -w1)",
			"(t % 2 ? w0 : -w0)")
		w.line("%s\t}", indent)
		w.line("%s}", indent)
	}
	here := "out + u0 * g.out_steps[0] + u1 * g.out_steps[1]"
	switch s.Op {
	case "sample":
		w.line("\tT v = 0;")
		corner("\t", func(indent, place, weight, _, _ string) {
			w.line("%sv += %s * (%s);", indent, converted(s.Compute, s.Types[1], "i0["+place+"]"), weight)
		})
		w.line("\to0[%s] = %s;", here, narrowed(s.Types[0], s.Compute, "v"))
	case "input":
		w.line("\tT v = %s;", converted(s.Compute, s.Types[1], "i0["+here+"]"))
		corner("\t", func(indent, place, weight, _, _ string) {
			w.line("%sI to = %s;", indent, place)
			w.line("%sT sum = %s + v * (%s);", indent, converted(s.Compute, s.Types[0], "o0[to]"), weight)
			w.line("%so0[to] = %s;", indent, narrowed(s.Types[0], s.Compute, "sum"))
		})
		w.line("\t}")
	case "grid":
		w.line("\tT sum0 = 0, sum1 = 0;")
		w.line("\tfor (c = 0; c < g.channels; c++) {")
		w.line("\t\tT v = %s;", converted(s.Compute, s.Types[1], "i0["+here+"]"))
		corner("\t\t", func(indent, place, _, slope0, slope1 string) {
			w.line("%sT x = v * %s;", indent, converted(s.Compute, s.Types[2], "i1["+place+"]"))
			w.line("%ssum0 += x * %s;", indent, slope0)
			w.line("%ssum1 += x * %s;", indent, slope1)
		})
		w.line("\t\tin += g.in_channel;")
		w.line("\t\tout += g.out_channel;")
		w.line("\t}")
		w.line("\tat = rest * g.result_batch + u0 * g.result_steps[0] + u1 * g.result_steps[1];")
		w.line("\to0[at] = %s;", narrowed(s.Types[0], s.Compute, "(sum1 * slope1)"))
		w.line("\to0[at + g.result_part] = %s;", narrowed(s.Types[0], s.Compute, "(sum0 * slope0)"))
	}
	return w.done()
}
