package kernel

import (
	"fmt"
	"math"

	"github.com/chorus-comms/chorus/dtype"
)

// images are two images of the same batch and channels, and how elements of the larger one, in, belong to those of the
// smaller one, out. Windows of a convolution, of a pool, and interpolations are such.
type images struct {
	imagePair
	dims    int
	windows [maxSpatial]window

	moreBatch, moreChannel int // strides of a third operand, which has the sizes of out
	moreSteps              [maxSpatial]int

	wide bool
}

// imagePair is the sizes and strides of two images of the same batch and channels.
type imagePair struct {
	batch, channels                          int
	in, out                                  [maxSpatial]int // sizes
	inBatch, inChannel, outBatch, outChannel int             // strides
	inSteps, outSteps                        [maxSpatial]int
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
func (m *imagePair) visit(r *record) {
	r.one("batch", m.batch)
	r.one("channels", m.channels)
	r.one("in_batch", m.inBatch)
	r.one("in_channel", m.inChannel)
	r.one("out_batch", m.outBatch)
	r.one("out_channel", m.outChannel)
	r.each("in", &m.in)
	r.each("out", &m.out)
	r.each("in_steps", &m.inSteps)
	r.each("out_steps", &m.outSteps)
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
		m.wide = m.wide || o.reach() > math.MaxInt32/2 || o.Count() > math.MaxInt32/2
	}
	if d < 1 || d > maxSpatial {
		return fmt.Errorf("kernel: %s of %d dimensions of space, of 1 to %d", op, d, maxSpatial)
	}
	m.dims = d
	m.pair(in, out, d)
	for k := range d {
		m.windows[k] = window{1, 0, 1, 1}
		m.wide = m.wide || (m.in[k]+1)*(m.out[k]+1) > math.MaxInt32/2
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

// visit names the numbers.
func (m *images) visit(r *record) {
	m.imagePair.visit(r)
	r.one("more_batch", m.moreBatch)
	r.one("more_channel", m.moreChannel)
	r.each("more_steps", &m.moreSteps)
	var w [4][maxSpatial]int
	for k, x := range m.windows {
		w[0][k], w[1][k], w[2][k], w[3][k] = x.stride, x.padding, x.dilation, x.kernel
	}
	r.each("stride", &w[0])
	r.each("padding", &w[1])
	r.each("dilation", &w[2])
	r.each("window", &w[3])
}

// imageLast of a spec's Extra[0] says that channels are the last digit of an element's number, and not the second.
const imageLast = 1

// add adds a run of a thread for each element of out, or of in. The caller adds what follows the struct's argument.
func (m *images) add(p *Plan, s Spec, ofIn bool, operands ...*Operand) *Call {
	n, channel := m.batch*m.channels, m.outChannel
	sizes := &m.out
	if ofIn {
		sizes, channel = &m.in, m.inChannel
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
	for k, o := range operands {
		s.Types[k] = o.Type
		if o.Type == dtype.Invalid {
			s.Types[k] = operands[0].Type
		}
	}
	c := p.call(s, n)
	for _, o := range operands {
		c.Args.Pointer(o.Ptr)
	}
	r := record{dims: m.dims, wide: m.wide}
	m.visit(&r)
	r.add(&c.Args)
	return c
}

// imageElement writes the place of a thread's element: n, c, and u0, u1 and u2 in space, and where in begins for its
// batch and channel, and out, and the third operand.
func (w *writer) imageElement(s Spec, ofIn bool) {
	size := "g.out"
	if ofIn {
		size = "g.in"
	}
	w.line("\tI rest = (I)(BLOCK * THREADS + THREAD), n = g.batch * g.channels, up, c;")
	for k := range int(s.Dims) {
		w.line("\tI u%d;", k)
		w.line("\tn *= %s[%d];", size, k)
	}
	w.line("\tif (rest >= n)")
	w.line("\t\treturn;")
	last := s.Extra[0]&imageLast != 0
	if last {
		w.split("\t", "c", "g.channels")
	}
	for k := int(s.Dims) - 1; k >= 0; k-- {
		w.split("\t", fmt.Sprintf("u%d", k), fmt.Sprintf("%s[%d]", size, k))
	}
	if !last {
		w.split("\t", "c", "g.channels")
	}
	w.line("\tn = rest;")
	for _, x := range []string{"in", "out", "more"} {
		w.line("\tI %s = n * g.%[1]s_batch + c * g.%[1]s_channel;", x)
	}
}

// place is the place in operand in, out or more of coordinates x0, x1 and x2.
func place(operand, x string, dims int) string {
	at := operand
	for k := range dims {
		at += fmt.Sprintf(" + %s%d * g.%s_steps[%[2]d]", x, k, operand)
	}
	return at
}
