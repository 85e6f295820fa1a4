package kernel

import (
	"fmt"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// PoolFamily computes the largest elements of windows of images.
const PoolFamily text.Family = 21

func init() { text.Register(PoolFamily, "pool", poolSource) }

// Pool describes the windows of a pool. Each has Kernel elements; the size of the result says whether the last one may
// stand over the end, as ceil_mode does.
type Pool struct {
	Kernel, Stride, Padding, Dilation []int // one for each dimension of space; nil: Stride the Kernel's, 0 and 1

	// Adaptive windows divide the image among the elements of the result, and have none of the numbers above.
	Adaptive bool

	CountPadding bool // of an average: elements of the padding count
	Divisor      int  // of an average, instead of the number of elements; 0: none
}

// windows sets the windows of images.
func (c *Pool) windows(op string, m *images) error {
	if c.Adaptive {
		if c.Kernel != nil || c.Stride != nil || c.Padding != nil || c.Dilation != nil || c.Divisor != 0 {
			return fmt.Errorf("kernel: an adaptive %s with windows", op)
		}
		for k := range m.dims {
			if m.in[k] == 0 && m.out[k] > 0 {
				return fmt.Errorf("kernel: an adaptive %s of no elements", op)
			}
		}
		return nil
	}
	if len(c.Kernel) != m.dims {
		return fmt.Errorf("kernel: %s with windows of %v in %d dimensions", op, c.Kernel, m.dims)
	}
	stride := c.Stride
	if stride == nil {
		stride = c.Kernel
	}
	for k := range m.dims {
		w := &m.windows[k]
		w.kernel = c.Kernel[k]
		if err := w.set(k, m.dims, stride, c.Padding, c.Dilation); err != nil {
			return err
		}
		span := (w.kernel-1)*w.dilation + 1
		if w.padding > span/2 {
			return fmt.Errorf("kernel: %s with padding %v, more than half of windows of %d elements", op, c.Padding, span)
		}
		room := m.in[k] + 2*w.padding - span
		low, high := -1, -1
		if room >= 0 {
			low = room/w.stride + 1
		}
		if room+w.stride-1 >= 0 {
			high = (room+w.stride-1)/w.stride + 1
			if (high-1)*w.stride >= m.in[k]+w.padding {
				high--
			}
		}
		if n := m.out[k]; n != low && n != high {
			return fmt.Errorf("kernel: %s of %d elements to %d: windows of %d, stride %d, padding %d, dilation %d", op, m.in[k],
				n, w.kernel, w.stride, w.padding, w.dilation)
		}
	}
	return nil
}

// MaxPool adds the largest element of each window, and its index in its image if indexes isn't the zero Operand: a
// number in all dimensions of space together, int64.
func (p *Plan) MaxPool(out, indexes, in Operand, c *Pool) error {
	var m images
	more := &indexes
	if indexes.Type == dtype.Invalid {
		more = nil
	}
	if err := m.set("max_pool", &in, &out, more); err != nil {
		return err
	}
	if in.Type != out.Type || in.Type.IsComplex() || in.Type == dtype.Bool || more != nil && more.Type != dtype.Int64 {
		return fmt.Errorf("kernel: max_pool of %v to %v, with indexes of %v", in.Type, out.Type, indexes.Type)
	}
	if err := c.windows("max_pool", &m); err != nil {
		return err
	}
	s := text.Spec{Family: PoolFamily, Op: "max", Compute: text.Opmath(in.Type), Outs: 2, Ins: 1,
		Form: poolForm(c, more != nil)}
	m.add(p, s, false, &out, &indexes, &in)
	return nil
}

// MaxPoolBackward adds the gradient of [Plan.MaxPool] by its input. An element is the sum of those gradients whose
// indexes are its own, in the order of their places.
func (p *Plan) MaxPoolBackward(gradIn, grad, indexes Operand, c *Pool) error {
	var m images
	if err := m.set("max_pool_backward", &gradIn, &grad, &indexes); err != nil {
		return err
	}
	if grad.Type != gradIn.Type || grad.Type.IsComplex() || grad.Type == dtype.Bool || indexes.Type != dtype.Int64 {
		return fmt.Errorf("kernel: max_pool_backward of %v to %v, with indexes of %v", grad.Type, gradIn.Type, indexes.Type)
	}
	if err := c.windows("max_pool_backward", &m); err != nil {
		return err
	}
	s := text.Spec{Family: PoolFamily, Op: "max_backward", Compute: text.Opmath(grad.Type), Outs: 1, Ins: 2,
		Form: poolForm(c, true)}
	if p.Cores > 0 && s.Compute == grad.Type && m.follow() && m.lanes(&m.in, &m.inSteps, m.inChannel) == m.dims {
		m.scatter(p, s, &gradIn, &grad, &indexes)
	} else {
		m.add(p, s, true, &gradIn, &grad, &indexes)
	}
	return nil
}

// scatter adds a run of the form poolScatter, in which a block has a plane, or a band of it if there are few planes.
func (m *images) scatter(p *Plan, s text.Spec, gradIn, grad, indexes *Operand) {
	planes := m.batch * m.channels
	if planes == 0 || gradIn.Count() == 0 {
		return
	}
	bands := max(1, min(blocksOfPlanes*p.Cores/planes, m.in[0]/linesOfBand))
	s.Block, s.Dims, s.Wide = 1, uint8(m.dims), m.wide
	s.Form |= poolScatter
	m.hints(&s, m.dims)
	c := p.blocks(s, device.Dim{X: planes * bands, Y: 1, Z: 1})
	m.arguments(c, gradIn, grad, indexes)
	c.Index(bands)
}

// Bands of [images.scatter] have so many lines at least. Planes are divided for so many blocks for a core.
const (
	linesOfBand    = 16
	blocksOfPlanes = 4
)

// AveragePool adds the average of each window. Elements of the padding count as zeros if CountPadding is set, and else
// not at all.
func (p *Plan) AveragePool(out, in Operand, c *Pool) error {
	return p.average("avg_pool", false, &out, &in, c)
}

// AveragePoolBackward adds the gradient of [Plan.AveragePool] by its input.
func (p *Plan) AveragePoolBackward(gradIn, grad Operand, c *Pool) error {
	return p.average("avg_pool_backward", true, &grad, &gradIn, c)
}

func (p *Plan) average(name string, backward bool, out, in *Operand, c *Pool) error {
	var m images
	if err := m.set(name, in, out, nil); err != nil {
		return err
	}
	if c.Dilation != nil {
		return fmt.Errorf("kernel: %s with dilation", name)
	}
	if err := c.windows(name, &m); err != nil {
		return err
	}
	op, scale := "average", [text.MaxSpatial]float64{1, 1, 1}
	switch {
	case c.Adaptive:
		op = "average_adaptive"
	case c.Divisor != 0:
		op, scale[0] = "average_scaled", 1/float64(c.Divisor)
	case c.CountPadding:
		op = "average_padded"
	}
	return p.resample(op, &m, &scale, backward, out, in)
}

// Bits of a pool's Form.
const (
	poolAdaptive = 1 << iota
	poolIndexes
	poolScatter // of a processor's gradient: windows add to their elements, and elements don't search windows
)

func poolForm(c *Pool, indexes bool) (form uint8) {
	if c.Adaptive {
		form |= poolAdaptive
	}
	if indexes {
		form |= poolIndexes
	}
	return form
}

// MaxUnpool adds the opposite of [Plan.MaxPool]: each element is put at its index in its image of the result, and
// other elements are 0. The result's dimensions of space lie one after the other, in order. An index that's out of
// range sets the word at bad, unless that's null.
func (p *Plan) MaxUnpool(out, in, indexes Operand, bad device.Ptr) error {
	flat, at, err := p.unpooled(&out, &in, &indexes)
	if err != nil {
		return err
	}
	if err := p.Fill(out, Int(0)); err != nil || in.Count() == 0 {
		return err
	}
	return p.Put("put", flat, in, bad, at)
}

// MaxUnpoolBackward adds the gradient of [Plan.MaxUnpool] by its input: the gradient's elements at the indexes.
func (p *Plan) MaxUnpoolBackward(gradIn, grad, indexes Operand, bad device.Ptr) error {
	flat, at, err := p.unpooled(&grad, &gradIn, &indexes)
	if err != nil || gradIn.Count() == 0 {
		return err
	}
	return p.Take(gradIn, flat, bad, at)
}

// unpooled is the large image as an operand of the small one's sizes with its dimensions of space indexed.
func (p *Plan) unpooled(large, small, indexes *Operand) (Operand, Index, error) {
	d := len(small.Sizes)
	bad := func() (Operand, Index, error) {
		return Operand{}, Index{}, fmt.Errorf("kernel: max_unpool of %v with indexes of %v to %v", small.Sizes, indexes.Sizes,
			large.Sizes)
	}
	if d < 3 || d > 2+text.MaxSpatial || len(large.Sizes) != d || len(indexes.Sizes) != d || len(large.Strides) != d {
		return bad()
	}
	n := 1
	for k := d - 1; k >= 0; k-- {
		if indexes.Sizes[k] != small.Sizes[k] || k < 2 && large.Sizes[k] != small.Sizes[k] ||
			k >= 2 && large.Sizes[k] > 1 && large.Strides[k] != n*large.Strides[d-1] {
			return bad()
		}
		if k >= 2 {
			n *= large.Sizes[k]
		}
	}
	flat := *large
	flat.Sizes = small.Sizes
	p.images[0] = [3 + text.MaxSpatial]int{}
	flat.Strides = p.images[0][:d]
	copy(flat.Strides, large.Strides[:2])
	return flat, Index{Operand: *indexes, Size: n, Stride: large.Strides[d-1], NoNegative: true}, nil
}

func poolSource(s text.Spec) (text.Source, error) {
	if s.Compute.IsComplex() || s.Compute == dtype.Bool || s.Op != "max" && s.Op != "max_backward" {
		return text.Source{}, fmt.Errorf("kernel: there is no pool %s of %v", s.Op, s.Compute)
	}
	var w writer
	w.Begin(s)
	w.imageDefines(s)
	w.DefineIf(s.Form&poolAdaptive != 0, "ADAPTIVE")
	w.DefineIf(s.Form&poolIndexes != 0, "INDEXES")
	w.Include("window")
	w.Include("pool_windows")
	if s.Form&poolScatter != 0 {
		w.Param("I bands")
		step := ""
		if s.Extra[0]&imageUnitIn == 0 {
			step = fmt.Sprintf("* g.in_steps[%d]", s.Dims-1)
		}
		w.Define("STEP", step)
	}
	w.Function("pool_" + s.Op)
	switch {
	case s.Form&poolScatter != 0:
		w.Include("pool_scattered")
	case s.Op == "max":
		w.imageElements(s, false, func() { w.Include("pool_largest") })
	default:
		w.imageElements(s, true, func() { w.Include("pool_gathered") })
	}
	return w.Done()
}
