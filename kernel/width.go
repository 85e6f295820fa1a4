package kernel

import "math"

// narrow is the largest number that kernels have in 32 bits. It leaves room for loops, which step beyond the last
// element, and for the distance between elements on both sides of an operand's first one.
const narrow = math.MaxInt32 / 2

// wide reports whether a kernel needs indexes of 64 bits, by all numbers that it counts to and the reach of each
// operand: the largest sum of the steps in its dimensions, however a kernel adds them up.
func wide(numbers ...int) bool {
	for _, n := range numbers {
		if n > narrow {
			return true
		}
	}
	return false
}

// reach is an upper bound of how far elements of an operand lie from its first one.
func (o *Operand) reach() int {
	n := 0
	for k, size := range o.Sizes {
		if size > 1 {
			n = further(n, size, o.Strides[k])
		}
	}
	return n
}

// further is a reach n with so many steps more.
func further(n, steps, stride int) int {
	stride = max(stride, -stride)
	if steps > 0 && stride > (math.MaxInt-n)/steps {
		return math.MaxInt
	}
	return n + steps*stride
}
