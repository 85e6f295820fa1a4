package kernel

import (
	"fmt"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// Im2colFamily copies the windows of images to columns, and adds them up again.
const Im2colFamily text.Family = 23

func init() { text.Register(Im2colFamily, "columns", im2colSource) }

// Im2col adds im2col: the elements of windows of images. out has the sizes [batch, channels, window..., places...].
// It's 0 where a window stands over the border.
func (p *Plan) Im2col(out, in Operand, c *Pool) error {
	return p.columns("im2col", &out, &in, c)
}

// Col2im adds col2im: images that have in each element the sum of all elements of windows that stand for it.
func (p *Plan) Col2im(out, columns Operand, c *Pool) error {
	return p.columns("col2im", &columns, &out, c)
}

func (p *Plan) columns(op string, columns, image *Operand, c *Pool) error {
	d := len(image.Sizes) - 2
	if d < 1 || d > text.MaxSpatial || len(columns.Sizes) != 2+2*d || len(columns.Strides) != 2+2*d || c.Adaptive ||
		len(c.Kernel) != d || columns.Type != image.Type || image.Type == dtype.Bool {
		return fmt.Errorf("kernel: %s of images %v and columns %v, windows %v", op, image.Sizes, columns.Sizes, c.Kernel)
	}
	if err := columns.check("the columns"); err != nil {
		return err
	}
	// the columns are images of the places, and a third operand has the strides of the window's dimensions
	sizes, strides := &p.images[0], &p.images[1]
	copy(sizes[:2], columns.Sizes)
	copy(strides[:2], columns.Strides)
	copy(sizes[2:], columns.Sizes[2+d:])
	copy(strides[2:], columns.Strides[2+d:])
	places := *columns
	places.Sizes, places.Strides = sizes[:2+d], strides[:2+d]
	var m images
	if err := m.set(op, image, &places, nil); err != nil {
		return err
	}
	m.wide = m.wide || wide(columns.reach(), columns.Count())
	stride := c.Stride
	for k := range d {
		w := &m.windows[k]
		w.kernel = c.Kernel[k]
		if err := w.set(k, d, stride, c.Padding, c.Dilation); err != nil {
			return err
		}
		room := m.in[k] + 2*w.padding - (w.kernel-1)*w.dilation - 1
		if room < 0 || m.out[k] != room/w.stride+1 || columns.Sizes[2+k] != w.kernel {
			return fmt.Errorf("kernel: %s of images %v and columns %v: windows of %d, stride %d, padding %d, dilation %d", op,
				image.Sizes, columns.Sizes, w.kernel, w.stride, w.padding, w.dilation)
		}
		m.moreSteps[k] = columns.Strides[2+k]
	}
	s := text.Spec{Family: Im2colFamily, Op: op, Compute: text.Opmath(image.Type), Outs: 1, Ins: 1}
	if op == "col2im" {
		m.add(p, s, true, image, columns)
	} else {
		m.add(p, s, false, columns, image)
	}
	return nil
}

func im2colSource(s text.Spec) (text.Source, error) {
	back := s.Op == "col2im"
	if s.Compute == dtype.Bool || !back && s.Op != "im2col" {
		return text.Source{}, fmt.Errorf("kernel: there is no %s of %v", s.Op, s.Compute)
	}
	var w writer
	w.Begin(s)
	w.imageDefines(s)
	w.DefineIf(back, "BACKWARD")
	w.Function(s.Op)
	w.imageElements(s, back, func() { w.Include("im2col") })
	return w.Done()
}
