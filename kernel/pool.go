package kernel

import (
	"fmt"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
)

// PoolFamily computes the largest elements of windows of images.
const PoolFamily Family = 21

func init() { register(PoolFamily, "pool", poolSource) }

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
	s := Spec{Family: PoolFamily, Op: "max", Compute: Opmath(in.Type), Outs: 2, Ins: 1, Form: poolForm(c, more != nil)}
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
	s := Spec{Family: PoolFamily, Op: "max_backward", Compute: Opmath(grad.Type), Outs: 1, Ins: 2, Form: poolForm(c, true)}
	if p.Cores > 0 && s.Compute == grad.Type && m.follow() && m.lanes(&m.in, &m.inSteps, m.inChannel) == m.dims {
		m.scatter(p, s, &gradIn, &grad, &indexes)
	} else {
		m.add(p, s, true, &gradIn, &grad, &indexes)
	}
	return nil
}

// scatter adds a run of the form poolScatter, in which a block has a plane, or a band of it if there are few planes.
func (m *images) scatter(p *Plan, s Spec, gradIn, grad, indexes *Operand) {
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
	c.index(bands)
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
	op, scale := "average", [maxSpatial]float64{1, 1, 1}
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
	if d < 3 || d > 2+maxSpatial || len(large.Sizes) != d || len(indexes.Sizes) != d || len(large.Strides) != d {
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
	p.images[0] = [3 + maxSpatial]int{}
	flat.Strides = p.images[0][:d]
	copy(flat.Strides, large.Strides[:2])
	return flat, Index{Operand: *indexes, Size: n, Stride: large.Strides[d-1], NoNegative: true}, nil
}

func poolSource(s Spec) (Source, error) {
	if s.Compute.IsComplex() || s.Compute == dtype.Bool || s.Op != "max" && s.Op != "max_backward" {
		return Source{}, fmt.Errorf("kernel: there is no pool %s of %v", s.Op, s.Compute)
	}
	var w writer
	w.begin(s)
	w.recordType("images", int(s.Dims), (&images{}).visit)
	w.pointers(s)
	w.param("images g")
	if s.Form&poolScatter != 0 {
		w.param("I bands")
	}
	w.function("pool_" + s.Op)
	switch {
	case s.Form&poolScatter != 0:
		w.poolScattered(s)
	case s.Op == "max":
		w.imageElements(s, false, func() { w.poolLargest(s) })
	default:
		w.imageElements(s, true, func() { w.poolGathered(s) })
	}
	return w.done()
}

// windowElements writes loops over the elements x0, x1 and x2 of the window of element u0, u1 and u2 of the result.
func (w *writer) windowElements(s Spec, adaptive bool, body func(indent string)) {
	indent := "\t"
	for k := range int(s.Dims) {
		if adaptive {
			w.line("%sI to%d = ((u%[2]d + 1) * g.in[%[2]d] - 1) / g.out[%[2]d] + 1;", indent, k)
			w.line("%sfor (I x%d = u%[2]d * g.in[%[2]d] / g.out[%[2]d]; x%[2]d < to%[2]d; x%[2]d++) {", indent, k)
		} else {
			w.line("%sfor (I t%d = 0; t%[2]d < g.window[%[2]d]; t%[2]d++) {", indent, k)
			w.line("%s\tI x%d = u%[2]d * %s - g.padding[%[2]d] + t%[2]d * g.dilation[%[2]d];", indent, k, s.stride(k))
			w.line("%s\tif ((U)x%d >= (U)g.in[%[2]d])", indent, k)
			w.line("%s\t\tcontinue;", indent)
		}
		indent += "\t"
	}
	body(indent)
	for range int(s.Dims) {
		indent = indent[1:]
		w.line("%s}", indent)
	}
}

// poolLargest writes the search for the largest element of a window.
func (w *writer) poolLargest(s Spec) {
	w.line("\tI best = -1;")
	w.line("\tT v = 0;")
	w.windowElements(s, s.Form&poolAdaptive != 0, func(indent string) {
		w.line("%sT x = %s;", indent, converted(s.Compute, s.Types[2], "i0["+s.place("in", "x")+"]"))
		w.line("%sif (best < 0 || x > v%s) {", indent, map[bool]string{true: " || x != x"}[s.Compute.IsFloating()])
		w.line("%s\tv = x;", indent)
		w.line("%s\tbest = %s;", indent, flatIndex("x", int(s.Dims)))
		w.line("%s}", indent)
	})
	w.line("\to0[%s] = %s;", s.place("out", "u"), narrowed(s.Types[0], s.Compute, "v"))
	if s.Form&poolIndexes != 0 {
		w.line("\to1[%s] = best;", s.place("more", "u"))
	}
}

// windowsOf writes from and to: the first and the last element of the result in dimension k in whose windows elements
// low to high of the input are.
func (w *writer) windowsOf(s Spec, indent string, k int, low, high string) {
	w.line("%sI from%d, to%[2]d;", indent, k)
	if s.Form&poolAdaptive != 0 {
		w.line("%sfrom%d = %s * g.out[%[2]d] / g.in[%[2]d];", indent, k, low)
		w.line("%sto%d = ((%s + 1) * g.out[%[2]d] - 1) / g.in[%[2]d];", indent, k, high)
		return
	}
	w.line("%sfrom%d = %s + g.padding[%[2]d] - (g.window[%[2]d] - 1) * g.dilation[%[2]d];", indent, k, low)
	w.line("%sfrom%d = from%[2]d <= 0 ? 0 : (from%[2]d - 1) / %s + 1;", indent, k, s.stride(k))
	w.line("%sto%d = (%s + g.padding[%[2]d]) / %[4]s;", indent, k, high, s.stride(k))
	w.line("%sto%d = to%[2]d < g.out[%[2]d] ? to%[2]d : g.out[%[2]d] - 1;", indent, k)
}

// poolGathered writes the sum of the gradients whose indexes are the element's own.
func (w *writer) poolGathered(s Spec) {
	dims, indent := int(s.Dims), "\t"
	w.line("\ti64 own = %s;", flatIndex("u", dims))
	w.line("\tT v = 0;")
	for k := range dims {
		u := fmt.Sprintf("u%d", k)
		w.windowsOf(s, indent, k, u, u)
		w.line("%sfor (I x%d = from%[2]d; x%[2]d <= to%[2]d; x%[2]d++) {", indent, k)
		indent += "\t"
	}
	w.line("%sif (i1[%s] == own)", indent, s.place("more", "x"))
	w.line("%s\tv += %s;", indent, converted(s.Compute, s.Types[1], "i0["+s.place("out", "x")+"]"))
	for range dims {
		indent = indent[1:]
		w.line("%s}", indent)
	}
	w.line("\to0[%s] = %s;", s.place("in", "u"), narrowed(s.Types[0], s.Compute, "v"))
}

// poolScattered writes the same sums in another way. A block has a band of the first dimension of space. Its one thread
// goes through the windows that have elements of it, and adds each gradient at its index, if that is in the band.
func (w *writer) poolScattered(s Spec) {
	dims, indent := int(s.Dims), "\t"
	w.line("\tI rest = (I)BLOCK, up, band, c, size = (g.in[0] - 1) / bands + 1, low, high, line = 1;")
	w.split("\t", "band", "bands")
	w.split("\t", "c", "g.channels")
	for k := 1; k < dims; k++ {
		w.line("\tline *= g.in[%d];", k)
	}
	w.line("\tlow = band * size;")
	w.line("\thigh = g.in[0] - low < size ? g.in[0] : low + size;")
	w.line("\tif (low >= high)")
	w.line("\t\treturn;")
	for _, x := range []string{"in", "out", "more"} {
		w.line("\tI %s = rest * g.%[1]s_batch + c * g.%[1]s_channel;", x)
	}
	step := fmt.Sprintf(" * g.in_steps[%d]", dims-1)
	if s.Extra[0]&imageUnitIn != 0 {
		step = ""
	}
	w.line("\tI first = low * line, elements = (high - low) * line;")
	w.line("\tfor (I k = 0; k < elements; k++)")
	w.line("\t\to0[in + (first + k)%s] = 0;", step)
	w.windowsOf(s, indent, 0, "low", "(high - 1)")
	for k := range dims {
		if k == 0 {
			w.line("%sfor (I x%d = from%[2]d; x%[2]d <= to%[2]d; x%[2]d++) {", indent, k)
		} else {
			w.line("%sfor (I x%d = 0; x%[2]d < g.out[%[2]d]; x%[2]d++) {", indent, k)
		}
		indent += "\t"
	}
	w.line("%si64 k = i1[%s] - first;", indent, s.place("more", "x"))
	w.line("%sif ((u64)k < (u64)elements)", indent)
	w.line("%s\to0[in + (first + (I)k)%s] += i0[%s];", indent, step, s.place("out", "x"))
	for range dims {
		indent = indent[1:]
		w.line("%s}", indent)
	}
}

// flatIndex is the number of coordinates x0, x1 and x2 in the input's image.
func flatIndex(x string, dims int) string {
	e := "(i64)" + x + "0"
	for k := 1; k < dims; k++ {
		e = fmt.Sprintf("(%s) * g.in[%d] + %s%d", e, k, x, k)
	}
	return e
}
