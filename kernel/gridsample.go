package kernel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// GridFamily reads images at places that a tensor says.
const GridFamily text.Family = 24

func init() { text.Register(GridFamily, "grid_sample", gridSource) }

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
	gridSteps, resultSteps                       [text.MaxSpatial]int
}

func (m *sampledImages) visit(r *text.Record) {
	m.imagePair.visit(r)
	r.One("grid_batch", m.gridBatch)
	r.One("grid_part", m.gridPart)
	r.One("result_batch", m.resultBatch)
	r.One("result_part", m.resultPart)
	r.Each("grid_steps", &m.gridSteps)
	r.Each("result_steps", &m.resultSteps)
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
// zero Operand. A thread adds that of a channel of an image by its input, in the order of the places. With
// [Plan.Atomics] a device that isn't a processor has a thread for each place and channel instead, which add in any
// order, unless the type has 64 bits.
func (p *Plan) GridSampleBackward(gradIn, gradGrid, grad, in, grid Operand, g *GridSampling) error {
	if gradIn.Type != dtype.Invalid {
		if gradIn.Value != nil {
			return fmt.Errorf("kernel: the gradient of grid_sample is a number")
		}
		if err := p.Fill(gradIn, Int(0)); err != nil {
			return err
		}
		op := "input"
		if p.Atomics && p.Cores == 0 && gradIn.Type.Size() < 8 { // not all devices change words of 64 bits so
			op = "scatter"
		}
		if err := p.gridSample(op, &grad, &gradIn, &grid, nil, g); err != nil {
			return err
		}
	}
	if gradGrid.Type == dtype.Invalid {
		return nil
	}
	return p.gridSample("grid", &grad, &in, &grid, &gradGrid, g)
}

func (p *Plan) gridSample(op string, out, in, grid, result *Operand, g *GridSampling) error {
	s := text.Spec{Family: GridFamily, Op: op, Compute: text.Opmath(in.Type), Block: threads, Outs: 1, Ins: 2}
	d := len(in.Sizes) - 2
	if d < 2 || d > text.MaxSpatial {
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
	bits, err := g.bits()
	if err != nil {
		return err
	}
	s.Extra[0] = bits
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
	case "scatter":
		operands = [4]*Operand{in, out, grid}
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
	r := text.Record{Dims: d, Wide: s.Wide}
	m.visit(&r)
	r.Add(&c.Args)
	return nil
}

// bits are those of a spec.
func (g *GridSampling) bits() (bits int32, err error) {
	switch g.Mode {
	case "bilinear":
	case "nearest":
		bits |= gridNearest
	default:
		return 0, fmt.Errorf("kernel: there is no grid_sample of mode %q", g.Mode)
	}
	switch g.Border {
	case "zeros":
	case "border":
		bits |= gridBorder
	case "reflection":
		bits |= gridReflection
	default:
		return 0, fmt.Errorf("kernel: there is no grid_sample with the border %q", g.Border)
	}
	if g.AlignCorners {
		bits |= gridCorners
	}
	return bits, nil
}

func gridSource(s text.Spec) (text.Source, error) {
	if !s.Compute.IsFloating() {
		return text.Source{}, fmt.Errorf("kernel: there is no grid_sample of %v", s.Compute)
	}
	var w writer
	w.Begin(s)
	w.RecordType("images", int(s.Dims), (&sampledImages{}).visit)
	w.Defines(s, 0)
	w.Include("each_dim")
	if s.Op == "scatter" {
		w.Dialect("atomics")
		w.Define("ADD_AT", "atomic_add_"+s.Types[0].Short())
	}
	for k, name := range [...]string{"NEAREST", "BORDER", "REFLECTION", "CORNERS"} {
		w.DefineIf(s.Extra[0]>>k&1 != 0, name)
	}
	w.Define(strings.ToUpper(s.Op), "")
	w.Define("NUMBER_OF(x)", text.Converted(s.Compute, s.Types[0], "x"))
	w.Define("PLACES_AT", fmt.Sprintf("i%d", s.Ins-1))
	return w.File("grid", "grid_"+s.Op)
}
