package kernel

import (
	"errors"
	"fmt"
	"math"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/gemm"
	"github.com/chorus-comms/chorus/kernel/text"
)

// Convolution describes a convolution of images in 1 to 3 dimensions. Images have the dimensions batch, channels, and
// then those of space.
type Convolution struct {
	Stride, Padding, Dilation []int // one for each dimension of space; nil: 1, 0 and 1
	Groups                    int   // 0: 1

	// Transposed exchanges the input with the result: it's the gradient of a convolution by its input. The size of its
	// result says the output padding.
	Transposed bool
}

// Convolution adds a convolution. weight has the sizes [channels out, channels in / groups, ...]. That of a transposed
// convolution has [channels in, channels out / groups, ...]. bias has an element for each channel of the result, or is
// the zero Operand. All have one type, and any strides.
func (p *Plan) Convolution(out, in, weight, bias Operand, c *Convolution) error {
	if bias.Type != dtype.Invalid {
		if err := bias.check("the bias"); err != nil {
			return err
		}
		if len(out.Sizes) < 2 || len(bias.Sizes) != 1 || bias.Value != nil || bias.Sizes[0] != out.Sizes[1] {
			return fmt.Errorf("kernel: a bias of sizes %v of a result of %v", bias.Sizes, out.Sizes)
		}
	}
	var f convolution
	if err := c.fit(&f, &out, &in, &weight, &bias); err != nil {
		return err
	}
	g := f.toResult()
	if c.Transposed {
		g = f.toInput()
	}
	return p.product(&g, &out, &weight, &in, &bias)
}

// ConvolutionBackward adds the gradients of the input, the weight and the bias of a convolution, given that of its
// result. Each of the three may be the zero Operand.
func (p *Plan) ConvolutionBackward(gradIn, gradWeight, gradBias, grad, in, weight Operand, c *Convolution) error {
	var f convolution
	none := Operand{}
	if gradIn.Type != dtype.Invalid {
		if err := c.fit(&f, &grad, &gradIn, &weight, &none); err != nil {
			return err
		}
		g := f.toInput()
		if c.Transposed {
			g = f.toResult()
		}
		if err := p.product(&g, &gradIn, &weight, &grad, &none); err != nil {
			return err
		}
	}
	if gradWeight.Type != dtype.Invalid {
		if err := c.fit(&f, &grad, &in, &gradWeight, &none); err != nil {
			return err
		}
		small, large := &grad, &in
		if c.Transposed {
			small, large = &in, &grad
		}
		if err := p.convolutionWeight(&f, &gradWeight, small, large); err != nil {
			return err
		}
	}
	if gradBias.Type == dtype.Invalid {
		return nil
	}
	if len(grad.Sizes) < 2 || len(gradBias.Sizes) != 1 {
		return fmt.Errorf("kernel: the gradient of a bias of sizes %v of a result of %v", gradBias.Sizes, grad.Sizes)
	}
	d := len(grad.Sizes)
	if d > 2+text.MaxSpatial || len(gradBias.Strides) != 1 {
		return fmt.Errorf("kernel: the gradient of a bias of sizes %v of a result of %v", gradBias.Sizes, grad.Sizes)
	}
	sizes, strides, dims := &p.images[0], &p.images[1], &p.images[2]
	for k := range d {
		sizes[k], strides[k] = 1, 0
	}
	sizes[1], strides[1] = gradBias.Sizes[0], gradBias.Strides[0]
	gradBias.Sizes, gradBias.Strides = sizes[:d], strides[:d]
	copy(dims[:], []int{0, 2, 3, 4})
	p.one[0] = gradBias
	return p.Reduce("sum", text.Opmath(grad.Type), p.one[:1], grad, dims[:d-1])
}

// convolution is a convolution's sizes and strides. x is the larger image, the input unless it's transposed, and y the
// smaller one. Element o of y is a sum of products: of element o*stride - padding + k*dilation of x with element k of
// the weight, for each k.
type convolution struct {
	dims                               int // of space, without those that don't matter
	xSizes, ySizes, kernel             [text.MaxSpatial]int
	xSteps, ySteps, wSteps             [text.MaxSpatial]int
	stride, padding, dilation          [text.MaxSpatial]int
	batch, groups                      int
	xChannels, yChannels               int // of a group
	xBatch, yBatch, xChannel, yChannel int // strides
	wRow, wColumn, biasStep            int
	weightSizes                        [text.MaxSpatial]int // of all dimensions
	spatial                            int
	compute                            dtype.DType
	types                              dtype.DType
	wide                               bool
}

// fit checks the operands.
func (c *Convolution) fit(f *convolution, out, in, weight, bias *Operand) error {
	names := [...]string{"the result", "the input", "the weight"}
	d := len(in.Sizes) - 2
	for k, o := range [...]*Operand{out, in, weight} {
		if err := o.check(names[k]); err != nil {
			return err
		}
		if o.Value != nil || o.Type != out.Type || o.Type == dtype.Bool || len(o.Sizes) != d+2 {
			return fmt.Errorf("kernel: a convolution of %v %v with a weight of %v %v to %v %v", in.Type, in.Sizes,
				weight.Type, weight.Sizes, out.Type, out.Sizes)
		}
	}
	if d < 1 || d > text.MaxSpatial {
		return fmt.Errorf("kernel: a convolution of %d dimensions, of 1 to %d", d, text.MaxSpatial)
	}
	if bias.Type != dtype.Invalid && bias.Type != out.Type {
		return fmt.Errorf("kernel: a convolution of %v with a bias of %v", out.Type, bias.Type)
	}
	x, y := in, out
	if c.Transposed {
		x, y = out, in
	}
	*f = convolution{batch: x.Sizes[0], groups: max(c.Groups, 1), xBatch: x.Strides[0], yBatch: y.Strides[0],
		xChannel: x.Strides[1], yChannel: y.Strides[1], wRow: weight.Strides[0], wColumn: weight.Strides[1],
		compute: text.Opmath(out.Type), types: out.Type, spatial: d}
	if bias.Type != dtype.Invalid && len(bias.Strides) > 0 {
		f.biasStep = bias.Strides[0]
	}
	f.xChannels, f.yChannels = x.Sizes[1]/f.groups, y.Sizes[1]/f.groups
	if c.Groups < 0 || y.Sizes[0] != f.batch || x.Sizes[1]%f.groups != 0 || y.Sizes[1]%f.groups != 0 ||
		weight.Sizes[0] != y.Sizes[1] || weight.Sizes[1] != f.xChannels {
		return fmt.Errorf("kernel: a convolution of %v with a weight of %v to %v in %d groups", in.Sizes, weight.Sizes,
			out.Sizes, f.groups)
	}
	margin := 0
	for k := range d {
		n := 2 + k
		w := window{1, 0, 1, weight.Sizes[n]}
		if err := w.set(k, d, c.Stride, c.Padding, c.Dilation); err != nil {
			return err
		}
		span := w.dilation*(w.kernel-1) + 1
		want := (x.Sizes[n]+2*w.padding-span)/w.stride + 1
		good := y.Sizes[n] == want && x.Sizes[n]+2*w.padding >= span
		if c.Transposed {
			extra := x.Sizes[n] - ((y.Sizes[n]-1)*w.stride - 2*w.padding + span)
			good = extra >= 0 && extra < max(w.stride, w.dilation)
		}
		if !good {
			return fmt.Errorf("kernel: a convolution of %v with a weight of %v to %v: stride %d, padding %d, dilation %d "+
				"in dimension %d", in.Sizes, weight.Sizes, out.Sizes, w.stride, w.padding, w.dilation, k)
		}
		f.weightSizes[k] = w.kernel
		far := (w.padding + span + w.stride) * 2
		margin = max(margin, far)
		f.wide = f.wide || wide(4*far*max(x.Strides[n], -x.Strides[n], y.Strides[n], -y.Strides[n]))
		f.add(x.Sizes[n], y.Sizes[n], x.Strides[n], y.Strides[n], weight.Strides[n], &w)
	}
	for _, o := range [...]*Operand{x, y, weight} {
		f.wide = f.wide || wide(o.reach(), o.Count())
	}
	columns := f.batch
	for k := range d {
		columns *= max(x.Sizes[2+k], y.Sizes[2+k])
	}
	f.wide = f.wide || wide(columns)
	return nil
}

// add adds a dimension of space, unless it has no effect. One whose elements follow those of the dimension before it is
// joined to that.
func (f *convolution) add(xSize, ySize, xStep, yStep, wStep int, w *window) {
	plain := w.kernel == 1 && w.padding == 0
	if plain && xSize == 1 && ySize == 1 {
		return
	}
	k := f.dims
	if plain && w.stride == 1 && k > 0 && f.kernel[k-1] == 1 && f.padding[k-1] == 0 && f.stride[k-1] == 1 &&
		f.xSteps[k-1] == xStep*xSize && f.ySteps[k-1] == yStep*ySize && xSize == ySize {
		k--
		f.xSizes[k] *= xSize
		f.ySizes[k] *= ySize
		f.xSteps[k], f.ySteps[k] = xStep, yStep
		return
	}
	f.xSizes[k], f.ySizes[k], f.kernel[k] = xSize, ySize, w.kernel
	f.xSteps[k], f.ySteps[k], f.wSteps[k] = xStep, yStep, wStep
	f.stride[k], f.padding[k], f.dilation[k] = w.stride, w.padding, w.dilation
	f.dims++
}

// toResult is the product that computes y of x.
func (f *convolution) toResult() product {
	g := f.product(f.yChannels, f.batch, f.xChannels)
	g.oRow, g.oOuter, g.oGroup = f.yChannel, f.yBatch, f.yChannels*f.yChannel
	g.aRow, g.aDeep, g.aGroup = f.wRow, f.wColumn, f.yChannels*f.wRow
	g.bOuter, g.bDeep, g.bGroup = f.xBatch, f.xChannel, f.xChannels*f.xChannel
	g.columns, g.oSteps = f.ySizes, f.ySteps
	g.depth, g.aSteps = f.kernel, f.wSteps
	g.limits, g.bSteps = f.xSizes, f.xSteps
	for k := range f.dims {
		g.columnStep[k], g.columnStart[k], g.depthStep[k] = f.stride[k], -f.padding[k], f.dilation[k]
	}
	return g
}

// toInput is the product that computes x of y: a sum of those elements of y in whose sums an element of x is.
func (f *convolution) toInput() product {
	g := f.product(f.xChannels, f.batch, f.yChannels)
	g.oRow, g.oOuter, g.oGroup = f.xChannel, f.xBatch, f.xChannels*f.xChannel
	g.aRow, g.aDeep, g.aGroup = f.wColumn, f.wRow, f.yChannels*f.wRow
	g.bOuter, g.bDeep, g.bGroup = f.yBatch, f.yChannel, f.yChannels*f.yChannel
	g.columns, g.oSteps = f.xSizes, f.xSteps
	g.depth, g.aSteps = f.kernel, f.wSteps
	g.limits, g.bSteps = f.ySizes, f.ySteps
	for k := range f.dims {
		g.columnStep[k], g.columnStart[k], g.depthStep[k] = 1, f.padding[k], -f.dilation[k]
		g.divisor[k] = f.stride[k]
		g.divided = g.divided || f.stride[k] > 1
	}
	return g
}

// toWeight is the product that computes the gradient of the weight of those of y, and x.
func (f *convolution) toWeight() product {
	g := f.product(f.yChannels, f.xChannels, f.batch)
	g.oRow, g.oOuter, g.oGroup = f.wRow, f.wColumn, f.yChannels*f.wRow
	g.aRow, g.aDeep, g.aGroup = f.yChannel, f.yBatch, f.yChannels*f.yChannel
	g.bOuter, g.bDeep, g.bGroup = f.xChannel, f.xBatch, f.xChannels*f.xChannel
	g.columns, g.oSteps = f.kernel, f.wSteps
	g.depth, g.aSteps = f.ySizes, f.ySteps
	g.limits, g.bSteps = f.xSizes, f.xSteps
	g.reduces = true
	for k := range f.dims {
		g.columnStep[k], g.depthStart[k], g.depthStep[k] = f.dilation[k], -f.padding[k], f.stride[k]
	}
	return g
}

func (f *convolution) product(rows, outer, deep int) product {
	return product{dims: f.dims, rows: rows, outer: outer, deep: deep, groups: f.groups, biasStep: f.biasStep,
		compute: f.compute, wide: f.wide, parts: 1, phases: 1}
}

// convolutionWeight adds the gradient of the weight. Where there are few tiles and long sums, several blocks add parts
// of the sums, which a reduction joins.
func (p *Plan) convolutionWeight(f *convolution, weight, y, x *Operand) error {
	g := f.toWeight()
	depth, side := f.batch, f.xChannels
	for k := range f.dims {
		depth *= g.depth[k]
		side *= g.columns[k]
	}
	tiles, enough, depths := gemm.Tiles(g.rows)*gemm.Tiles(side)*g.groups, enoughBlocks, depth/depthOfPart
	if p.Cores > 0 { // which divides the batch
		tiles, enough, depths, depth = (side-1)/laneColumns+1, p.Cores*partsOfCore, f.batch, f.batch
	}
	parts := min(enough/max(tiles, 1), depths)
	none := Operand{}
	if parts < 2 || g.rows <= fewRows {
		return p.product(&g, weight, y, x, &none)
	}
	g.chunk = (depth + parts - 1) / parts
	parts = (depth + g.chunk - 1) / g.chunk
	sizes, strides, one, steps := &p.images[0], &p.images[1], &p.images[2], &p.images[3]
	d := 3 + f.spatial
	sizes[0], sizes[1], sizes[2] = parts, f.groups*f.yChannels, f.xChannels
	copy(sizes[3:], f.weightSizes[:f.spatial])
	n := 1
	for k := d - 1; k >= 0; k-- {
		strides[k] = n
		n *= sizes[k]
	}
	memory, err := p.scratch(n * f.compute.Size())
	if err != nil {
		return err
	}
	sums := Operand{Ptr: memory, Type: f.compute, Sizes: sizes[:d], Strides: strides[:d]}
	g.parts, g.oPart = parts, strides[0]
	g.oRow, g.oOuter, g.oGroup = strides[1], strides[2], f.yChannels*strides[1]
	step := 1
	for k := f.dims - 1; k >= 0; k-- { // those that are left out have one element
		g.oSteps[k] = step
		step *= g.columns[k]
	}
	g.wide = g.wide || wide(n)
	if err := p.product(&g, &sums, y, x, &none); err != nil {
		return err
	}
	copy(one[:], sizes[:d])
	one[0], steps[0] = 1, 0
	copy(steps[1:], weight.Strides)
	p.one[0] = *weight
	p.one[0].Sizes, p.one[0].Strides = one[:d], steps[:d]
	return p.Reduce("sum", f.compute, p.one[:1], sums, firstDim[:])
}

var firstDim = [...]int{0}

// window is how elements of images belong together in a dimension.
type window struct{ stride, padding, dilation, kernel int }

// set takes the numbers of dimension k of d.
func (w *window) set(k, d int, stride, padding, dilation []int) error {
	if err := oneOf(&w.stride, "stride", stride, k, d, 1); err != nil {
		return err
	}
	if err := oneOf(&w.padding, "padding", padding, k, d, 0); err != nil {
		return err
	}
	if err := oneOf(&w.dilation, "dilation", dilation, k, d, 1); err != nil {
		return err
	}
	if w.kernel < 1 {
		return errors.New("kernel: a window of no elements")
	}
	return nil
}

// oneOf takes number k of a list of d, unless there is none.
func oneOf(to *int, name string, list []int, k, d, low int) error {
	if list == nil {
		return nil
	}
	if len(list) != d {
		return fmt.Errorf("kernel: %s %v in %d dimensions", name, list, d)
	}
	if *to = list[k]; *to < low || *to > math.MaxInt32 {
		return fmt.Errorf("kernel: %s %v, of which each must be %d or more", name, list, low)
	}
	return nil
}

// Limits between the forms of a product.
const (
	fewRows     = 8    // of a group: a tile would be empty for the most part
	depthOfPart = 1024 // sums shorter than two of it have no parts
	partsOfCore = 8    // of a processor
)
