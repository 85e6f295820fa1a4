package main

import (
	"math"
	"math/rand/v2"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/digits"
	"github.com/chorus-comms/chorus/tensor"
)

// network is a perceptron: layers with tanh between them, and a softmax over the classes.
type network struct {
	layers           []*layer
	params, grads    []float32 // of all layers, one after the other; layers have views of them
	paramsT, gradsT  *tensor.Tensor
	pixels, logitsGr []float32 // reused
}

// layer keeps what a batch leaves in it for the way back.
type layer struct {
	in, out        int
	last           bool
	weight, bias   []float32 // weights by output
	dWeight, dBias []float32
	x, y, dx       []float32 // of the images of a batch, one after the other
}

// newNetwork allocates in memory that peers on this host can map: there an all-reduce reads and writes the gradients
// where they are.
func newNetwork(c *comm.Comm, widths ...int) (n *network, err error) {
	n = &network{}
	size := 0
	for i, out := range widths[1:] {
		n.layers = append(n.layers, &layer{in: widths[i], out: out, last: i == len(widths)-2})
		size += (widths[i] + 1) * out
	}
	if n.paramsT, n.params, err = zeros(c, size); err != nil {
		return nil, err
	}
	if n.gradsT, n.grads, err = zeros(c, size); err != nil {
		return nil, err
	}
	params, grads := n.params, n.grads
	cut := func(from *[]float32, count int) []float32 {
		part := (*from)[:count:count]
		*from = (*from)[count:]
		return part
	}
	for _, l := range n.layers {
		l.weight, l.bias = cut(&params, l.in*l.out), cut(&params, l.out)
		l.dWeight, l.dBias = cut(&grads, l.in*l.out), cut(&grads, l.out)
	}
	return n, nil
}

func zeros(c *comm.Comm, count int) (*tensor.Tensor, []float32, error) {
	t, err := c.Zeros(dtype.Float32, count)
	if err != nil {
		return nil, nil, err
	}
	s, err := tensor.Slice[float32](t)
	return t, s, err
}

// bucket is gradients that are sent together: those of some neighboring layers.
type bucket struct {
	first int // its first layer, whose gradients come last
	grads *tensor.Tensor
}

// buckets divides the gradients into parts of at least so many bytes, in the order in which they come: the last layer's
// first.
func (n *network) buckets(bytes int) ([]bucket, error) {
	var all []bucket
	end := len(n.grads)
	begin := end
	for i := len(n.layers) - 1; i >= 0; i-- {
		l := n.layers[i]
		begin -= len(l.weight) + len(l.bias)
		if 4*(end-begin) < bytes && i > 0 {
			continue
		}
		part, err := n.gradsT.Narrow(0, begin, end-begin) // a view, not a copy
		if err != nil {
			return nil, err
		}
		all = append(all, bucket{i, part})
		end = begin
	}
	return all, nil
}

// initialize draws the weights so that each layer keeps the variance of its input.
func (n *network) initialize(r *rand.Rand) {
	for _, l := range n.layers {
		for i := range l.weight {
			l.weight[i] = float32(r.NormFloat64() / math.Sqrt(float64(l.in)))
		}
	}
}

// forward returns the logits of images.
func (n *network) forward(set *digits.Set, images []int) []float32 {
	x := sized(&n.pixels, len(images)*digits.Pixels)
	for i, image := range images {
		for j, p := range set.Image(image) {
			x[i*digits.Pixels+j] = float32(p) / digits.Black
		}
	}
	for _, l := range n.layers {
		x = l.forward(x)
	}
	return x
}

// lossGradient returns the gradient of the cross entropy by the logits, times weight.
func (n *network) lossGradient(logits []float32, set *digits.Set, images []int, weight float32) []float32 {
	d := sized(&n.logitsGr, len(logits))
	for i, image := range images {
		row, out := logits[i*digits.Classes:][:digits.Classes], d[i*digits.Classes:][:digits.Classes]
		top, sum := row[0], float32(0)
		for _, v := range row {
			top = max(top, v)
		}
		for k, v := range row {
			out[k] = float32(math.Exp(float64(v - top)))
			sum += out[k]
		}
		for k := range out {
			out[k] *= weight / sum
		}
		out[set.Label(image)] -= weight
	}
	return d
}

// classes returns the most probable class of each image.
func (n *network) classes(logits []float32, images int) []int {
	all := make([]int, images)
	for i := range all {
		row := logits[i*digits.Classes:][:digits.Classes]
		for k, v := range row {
			if v > row[all[i]] {
				all[i] = k
			}
		}
	}
	return all
}

func (l *layer) forward(x []float32) []float32 {
	l.x = x
	images := len(x) / l.in
	y := sized(&l.y, images*l.out)
	for i := range images {
		in := x[i*l.in:][:l.in]
		for j := range l.out {
			sum := l.bias[j]
			for k, w := range l.weight[j*l.in:][:l.in] {
				sum += w * in[k]
			}
			if !l.last {
				sum = float32(math.Tanh(float64(sum)))
			}
			y[i*l.out+j] = sum
		}
	}
	return y
}

// backward takes the gradient by the layer's output, sets those of its parameters, and returns that by its input.
func (l *layer) backward(dy []float32) []float32 {
	images := len(dy) / l.out
	dx := sized(&l.dx, images*l.in)
	clear(dx)
	clear(l.dWeight)
	clear(l.dBias)
	for i := range images {
		in, dIn := l.x[i*l.in:][:l.in], dx[i*l.in:][:l.in]
		for j := range l.out {
			d := dy[i*l.out+j]
			if !l.last {
				y := l.y[i*l.out+j]
				d *= 1 - y*y // the derivative of tanh
			}
			l.dBias[j] += d
			w, dw := l.weight[j*l.in:][:l.in], l.dWeight[j*l.in:][:l.in]
			for k := range in {
				dw[k] += d * in[k]
				dIn[k] += d * w[k]
			}
		}
	}
	return dx
}

// sized returns a slice of that length which takes the memory that is there, if it's enough.
func sized(s *[]float32, length int) []float32 {
	if cap(*s) < length {
		*s = make([]float32, length)
	}
	*s = (*s)[:length]
	return *s
}
