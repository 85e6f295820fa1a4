package kernel

import (
	"fmt"
	"strings"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/text"
)

// images are two images of the same batch and channels, and how elements of the larger one, in, belong to those of the
// smaller one, out. Windows of a convolution, of a pool, and interpolations are such.
type images struct {
	imagePair
	dims    int
	windows [text.MaxSpatial]window

	moreBatch, moreChannel int // strides of a third operand, which has the sizes of out
	moreSteps              [text.MaxSpatial]int

	wide bool
}

// imagePair is the sizes and strides of two images of the same batch and channels.
type imagePair struct {
	batch, channels                          int
	in, out                                  [text.MaxSpatial]int // sizes
	inBatch, inChannel, outBatch, outChannel int                  // strides
	inSteps, outSteps                        [text.MaxSpatial]int
}

// pair takes the operands, which have so many dimensions of space.
func (m *imagePair) pair(in, out *Operand, dims int) {
	m.batch, m.channels = in.Sizes[0], in.Sizes[1]
	m.inBatch, m.inChannel, m.outBatch, m.outChannel = in.Strides[0], in.Strides[1], out.Strides[0], out.Strides[1]
	for k := range dims {
		m.in[k], m.out[k] = in.Sizes[2+k], out.Sizes[2+k]
		m.inSteps[k], m.outSteps[k] = in.Strides[2+k], out.Strides[2+k]
	}
}

// visit names the numbers.
func (m *imagePair) visit(r *text.Record) {
	r.One("batch", m.batch)
	r.One("channels", m.channels)
	r.One("in_batch", m.inBatch)
	r.One("in_channel", m.inChannel)
	r.One("out_batch", m.outBatch)
	r.One("out_channel", m.outChannel)
	r.Each("in", &m.in)
	r.Each("out", &m.out)
	r.Each("in_steps", &m.inSteps)
	r.Each("out_steps", &m.outSteps)
}

// set takes the operands, which have a batch, channels and 1 to 3 dimensions of space. The third may be nil.
func (m *images) set(op string, in, out, more *Operand) error {
	d := len(in.Sizes) - 2
	for _, o := range [...]*Operand{in, out, more} {
		if o == nil {
			continue
		}
		if err := o.check(op); err != nil {
			return err
		}
		if o.Value != nil || len(o.Sizes) != d+2 || o.Sizes[0] != in.Sizes[0] || o.Sizes[1] != in.Sizes[1] {
			return fmt.Errorf("kernel: %s of %v and %v, which must be batch, channels and space", op, in.Sizes, o.Sizes)
		}
		m.wide = m.wide || wide(o.reach(), o.Count())
	}
	if d < 1 || d > text.MaxSpatial {
		return fmt.Errorf("kernel: %s of %d dimensions of space, of 1 to %d", op, d, text.MaxSpatial)
	}
	m.dims = d
	m.pair(in, out, d)
	for k := range d {
		m.windows[k] = window{1, 0, 1, 1}
		m.wide = m.wide || wide((m.in[k]+1)*(m.out[k]+1))
	}
	if more == nil {
		return nil
	}
	m.moreBatch, m.moreChannel = more.Strides[0], more.Strides[1]
	for k := range d {
		if more.Sizes[2+k] != m.out[k] {
			return fmt.Errorf("kernel: %s: operands of sizes %v and %v", op, out.Sizes, more.Sizes)
		}
		m.moreSteps[k] = more.Strides[2+k]
	}
	return nil
}

// follow reports whether the larger image's elements have the distances of their numbers in it.
func (m *images) follow() bool {
	for k := range m.dims - 1 {
		if m.inSteps[k] != m.in[k+1]*m.inSteps[k+1] {
			return false
		}
	}
	return true
}

// visit names the numbers.
func (m *images) visit(r *text.Record) {
	m.imagePair.visit(r)
	r.One("more_batch", m.moreBatch)
	r.One("more_channel", m.moreChannel)
	r.Each("more_steps", &m.moreSteps)
	var w [4][text.MaxSpatial]int
	for k, x := range m.windows {
		w[0][k], w[1][k], w[2][k], w[3][k] = x.stride, x.padding, x.dilation, x.kernel
	}
	r.Each("stride", &w[0])
	r.Each("padding", &w[1])
	r.Each("dilation", &w[2])
	r.Each("window", &w[3])
}

// Bits of a spec's Extra[0]. Those behind the first are set for a processor alone, whose threads are the lanes of a
// vector: see [writer.imageElements].
const (
	imageLast       = 1 << iota // channels are the last digit of an element's number, and not the second
	imageUnitIn                 // the lanes' step is 1 in the larger image
	imageUnitOut                // in the smaller one
	imageUnitMore               // in the third operand
	imageUnitStride             // windows follow each other in the lanes' dimension without a step
)

// fewLanes are too few for a vector, if there is a longer dimension.
const fewLanes = loader.Lanes / 2

// lanes is the dimension whose elements are the lanes of a vector: 0 for channels, and 1 for the first one of space.
// It's one whose elements are neighbours in the result, or else a long one.
func (m *images) lanes(sizes, steps *[text.MaxSpatial]int, channel int) int {
	best, size := 0, m.channels
	if channel == 1 && size >= fewLanes {
		return 0
	}
	for k := m.dims - 1; k >= 0; k-- {
		if steps[k] == 1 && sizes[k] >= fewLanes {
			return 1 + k
		}
		if sizes[k] > size {
			best, size = 1+k, sizes[k]
		}
	}
	return best
}

// hints sets the bits for a processor.
func (m *images) hints(s *text.Spec, lanes int) {
	s.Extra[1] = int32(lanes)
	in, out, more, stride := m.inChannel, m.outChannel, m.moreChannel, 0
	if k := lanes - 1; k >= 0 {
		in, out, more, stride = m.inSteps[k], m.outSteps[k], m.moreSteps[k], m.windows[k].stride
	}
	for _, x := range [...]struct{ step, bit int }{{in, imageUnitIn}, {out, imageUnitOut}, {more, imageUnitMore},
		{stride, imageUnitStride}} {
		if x.step == 1 {
			s.Extra[0] |= int32(x.bit)
		}
	}
}

// add adds a run of a thread for each element of out, or of in. The caller adds what follows the struct's argument.
func (m *images) add(p *Plan, s text.Spec, ofIn bool, operands ...*Operand) *loader.Call {
	n, channel := m.batch*m.channels, m.outChannel
	sizes, steps := &m.out, &m.outSteps
	if ofIn {
		sizes, steps, channel = &m.in, &m.inSteps, m.inChannel
	}
	for k := range m.dims {
		n *= sizes[k]
	}
	if n == 0 {
		return nil
	}
	s.Block, s.Dims, s.Wide = threads, uint8(m.dims), m.wide
	if channel == 1 {
		s.Extra[0] |= imageLast
	}
	if p.Cores > 0 {
		m.hints(&s, m.lanes(sizes, steps, channel))
	}
	c := p.call(s, n)
	c.Shape = loader.AnyThreads
	m.arguments(c, operands...)
	return c
}

// arguments adds those of a run.
func (m *images) arguments(c *loader.Call, operands ...*Operand) {
	for k, o := range operands {
		c.Spec.Types[k] = o.Type
		if o.Type == dtype.Invalid {
			c.Spec.Types[k] = operands[0].Type
		}
		c.Args.Pointer(o.Ptr)
	}
	r := text.Record{Dims: m.dims, Wide: m.wide}
	m.visit(&r)
	r.Add(&c.Args)
}

// imageElements writes a body for each element: n, c, and u0, u1 and u2 in space, and where in begins for its batch and
// channel, and out, and the third operand. A GPU's thread has one element.
//
// A processor's block has neighbouring rows, a row being the elements that differ in the dimension of the lanes. All
// that doesn't depend on that dimension is the same for a whole vector, and needs no division for each element.
func (w *writer) imageElements(s text.Spec, ofIn bool, body func()) {
	size, dims := "g.out", int(s.Dims)
	if ofIn {
		size = "g.in"
	}
	digits, sizes := []string{}, []string{} // the last one first
	for k := dims - 1; k >= 0; k-- {
		digits, sizes = append(digits, fmt.Sprintf("u%d", k)), append(sizes, fmt.Sprintf("%s[%d]", size, k))
	}
	if s.Extra[0]&imageLast != 0 {
		digits, sizes = append([]string{"c"}, digits...), append([]string{"g.channels"}, sizes...)
	} else {
		digits, sizes = append(digits, "c"), append(sizes, "g.channels")
	}
	lane, length := "", "1"
	if s.Vector {
		lane = "c"
		if k := int(s.Extra[1]) - 1; k >= 0 {
			lane = fmt.Sprintf("u%d", k)
		}
	}
	w.Line("\tI count = g.batch;")
	for k, digit := range digits {
		if digit == lane {
			length = sizes[k]
		} else {
			w.Line("\tcount *= %s;", sizes[k])
		}
	}
	if s.Vector {
		w.Line("\tI rows = (I)((count - 1) / BLOCKS) + 1, row = (I)BLOCK * rows, end = row + rows;")
		w.Line("\tend = count - row < rows ? count : end;")
		w.Line("\tfor (; row < end; row++) {")
		w.Line("\tI rest = row, up, n;")
	} else {
		w.Line("\tI rest = (I)(BLOCK * THREADS + THREAD), up, n;")
		w.Line("\tif (rest >= count)")
		w.Line("\t\treturn;")
	}
	for k, digit := range digits {
		if digit != lane {
			w.Line("\tI %s;", digit)
			w.Split("\t", digit, sizes[k])
		}
	}
	w.Line("\tn = rest;")
	each := func() {
		for k, x := range []string{"in", "out", "more"} {
			step := fmt.Sprintf("c * g.%s_channel", x)
			if lane == "c" && s.Extra[0]>>k&imageUnitIn != 0 {
				step = "c"
			}
			w.Line("\tI %s = n * g.%[1]s_batch + %s;", x, step)
		}
		body()
	}
	if !s.Vector {
		each()
		return
	}
	w.Line("\tI at = 0, to = %s;", length)
	w.Vectors(s, lane, 1, func(int) { each() })
	w.Rest(s, lane, each)
	w.Line("\t}")
}

// placeOf is the place in operand in, out or more of coordinates x##0, x##1 and x##2.
func placeOf(s text.Spec, operand string) string {
	at, unit := operand, map[string]int32{"in": imageUnitIn, "out": imageUnitOut, "more": imageUnitMore}[operand]
	for k := range int(s.Dims) {
		if int(s.Extra[1]) == 1+k && s.Extra[0]&unit != 0 {
			at += fmt.Sprintf(" + x##%d", k)
		} else {
			at += fmt.Sprintf(" + x##%d * g.%s_steps[%[1]d]", k, operand)
		}
	}
	return at
}

// imageDefines defines what the elements of images need: OFFSET_IN(x) and others, and FLAT(x), the number of coordinates
// in the larger image, and STRIDE_0 and so on, the factors of coordinates of out in those of in.
func (w *writer) imageDefines(s text.Spec) {
	w.RecordType("images", int(s.Dims), (&images{}).visit)
	w.Defines(s, 0)
	w.Include("each_dim")
	for _, operand := range []string{"in", "out", "more"} {
		w.Define("OFFSET_"+strings.ToUpper(operand)+"(x)", placeOf(s, operand))
	}
	flat := "(i64)x##0"
	for k := range int(s.Dims) {
		stride := fmt.Sprintf("g.stride[%d]", k)
		if int(s.Extra[1]) == 1+k && s.Extra[0]&imageUnitStride != 0 {
			stride = "1"
		}
		w.Define(fmt.Sprintf("STRIDE_%d", k), stride)
		if k > 0 {
			flat = fmt.Sprintf("(%s) * g.in[%d] + x##%[2]d", flat, k)
		}
	}
	w.Define("FLAT(x)", flat)
	w.Param("images g")
}
