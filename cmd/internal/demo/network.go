package demo

import (
	"math"
	"math/rand/v2"

	"github.com/chorus-comms/chorus/internal/digits"
)

// The network is a perceptron of two layers: pixels, hidden units with tanh, and a
// softmax over the classes. Being smooth, it lets rounding errors grow only slowly;
// with ReLU a sum that rounds to the other side of 0 would change a gradient at once.
const (
	inputs  = digits.Pixels
	hidden  = 128
	classes = digits.Classes

	// Parameters lie in one vector: the weights of a layer, by unit, then its biases.
	atBias1    = hidden * inputs
	atWeights2 = atBias1 + hidden
	atBias2    = atWeights2 + classes*hidden
	parameters = atBias2 + classes
)

// real is what a network computes with; float64 is for the test of the gradient.
type real interface{ float32 | float64 }

// network holds what one image leaves in the layers; its parameters are the caller's.
type network[F real] struct {
	in   [inputs]F
	h    [hidden]F
	prob [classes]F
}

// forward computes the probabilities of the classes.
func (n *network[F]) forward(params []F, image []byte) {
	for i, p := range image {
		n.in[i] = F(p) / digits.Black
	}
	for j := range n.h {
		w := params[j*inputs:][:inputs]
		sum := params[atBias1+j]
		for i, x := range n.in {
			sum += w[i] * x
		}
		n.h[j] = F(math.Tanh(float64(sum)))
	}
	top := F(math.Inf(-1))
	for k := range n.prob {
		w := params[atWeights2+k*hidden:][:hidden]
		sum := params[atBias2+k]
		for j, h := range n.h {
			sum += w[j] * h
		}
		n.prob[k] = sum
		top = max(top, sum)
	}
	total := F(0)
	for k, x := range n.prob {
		n.prob[k] = F(math.Exp(float64(x - top)))
		total += n.prob[k]
	}
	for k := range n.prob {
		n.prob[k] /= total
	}
}

// loss is the cross entropy after forward.
func (n *network[F]) loss(label int) F {
	return -F(math.Log(math.Max(float64(n.prob[label]), math.SmallestNonzeroFloat32)))
}

// best is the most probable class after forward.
func (n *network[F]) best() int {
	best := 0
	for k, p := range n.prob {
		if p > n.prob[best] {
			best = k
		}
	}
	return best
}

// backward adds weight times the gradient of the loss to grad, after forward with the same parameters.
func (n *network[F]) backward(params, grad []F, label int, weight F) {
	var dh [hidden]F
	for k, p := range n.prob {
		d := p * weight
		if k == label {
			d -= weight
		}
		grad[atBias2+k] += d
		w, g := params[atWeights2+k*hidden:][:hidden], grad[atWeights2+k*hidden:][:hidden]
		for j, h := range n.h {
			g[j] += d * h
			dh[j] += d * w[j]
		}
	}
	for j, d := range dh {
		d *= 1 - n.h[j]*n.h[j] // the derivative of tanh
		grad[atBias1+j] += d
		g := grad[j*inputs:][:inputs]
		for i, x := range n.in {
			g[i] += d * x
		}
	}
}

// initialize draws the weights so that every layer keeps the variance of its input (LeCun et al., Efficient BackProp,
// 1998); biases start at 0.
func initialize[F real](params []F, r *rand.Rand) {
	clear(params)
	for i := range atBias1 {
		params[i] = F(r.NormFloat64() * math.Sqrt(1.0/inputs))
	}
	for i := atWeights2; i < atBias2; i++ {
		params[i] = F(r.NormFloat64() * math.Sqrt(1.0/hidden))
	}
}
