package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// Operand is a tensor of a call, or a number.
type Operand struct {
	Ptr     device.Ptr // of the first element
	Type    dtype.DType
	Sizes   []int
	Strides []int // from one element to the next in each dimension, in elements; 0 and negative ones are allowed

	Value *Number // instead of memory: a number, for all elements
}

// Number is a scalar of a call. The first field that its type has counts.
type Number struct {
	Float, Imag float64
	Int         int64
	IsInt       bool
}

// Float is a floating-point number.
func Float(f float64) *Number { return &Number{Float: f} }

// Int is an integer.
func Int(i int64) *Number { return &Number{Int: i, IsInt: true} }

// Complex is a complex number.
func Complex(z complex128) *Number { return &Number{Float: real(z), Imag: imag(z)} }

func (v *Number) complex() complex128 {
	if v.IsInt {
		return complex(float64(v.Int), 0)
	}
	return complex(v.Float, v.Imag)
}

// add adds the number to a call's arguments, as C type number.
func (v *Number) add(a *device.Args, compute dtype.DType) {
	f := v.Float
	if v.IsInt {
		f = float64(v.Int)
	}
	i := v.Int
	if !v.IsInt {
		i = int64(v.Float)
	}
	switch text.Opmath(compute) {
	case dtype.Float32:
		a.Float32(float32(f))
	case dtype.Float64:
		a.Float64(f)
	case dtype.Complex64:
		var b [8]byte
		binary.NativeEndian.PutUint32(b[:], math.Float32bits(float32(f)))
		binary.NativeEndian.PutUint32(b[4:], math.Float32bits(float32(v.Imag)))
		a.Bytes(b[:], 4)
	case dtype.Complex128:
		var b [16]byte
		binary.NativeEndian.PutUint64(b[:], math.Float64bits(f))
		binary.NativeEndian.PutUint64(b[8:], math.Float64bits(v.Imag))
		a.Bytes(b[:], 8)
	default:
		a.Int64(i)
	}
}

// Count is how many elements the operand has.
func (o *Operand) Count() int {
	n := 1
	for _, s := range o.Sizes {
		n *= s
	}
	return n
}

// Dense makes the strides of a tensor of these sizes whose elements lie one after the other.
func Dense(sizes ...int) []int {
	strides := make([]int, len(sizes))
	n := 1
	for k := len(sizes) - 1; k >= 0; k-- {
		strides[k] = n
		n *= max(sizes[k], 1)
	}
	return strides
}

func (o *Operand) check(what string) error {
	switch {
	case !text.Supported(o.Type):
		return fmt.Errorf("kernel: %s is of %v", what, o.Type)
	case o.Value != nil:
		return nil
	}
	return o.shaped(what)
}

// shaped checks the sizes and strides.
func (o *Operand) shaped(what string) error {
	switch {
	case len(o.Sizes) != len(o.Strides):
		return fmt.Errorf("kernel: %s has %d sizes and %d strides", what, len(o.Sizes), len(o.Strides))
	case slices.ContainsFunc(o.Sizes, func(n int) bool { return n < 0 }):
		return fmt.Errorf("kernel: %s has sizes %v", what, o.Sizes)
	}
	return nil
}

// space is where the elements of several operands lie, by common dimensions: the innermost first.
type space struct {
	ops     int
	dims    int
	count   int
	sizes   [maxRank]int
	strides [text.MaxOperands][maxRank]int
}

// maxRank is how many dimensions a tensor has at most before dimensions are joined.
const maxRank = 64

// init takes the sizes, from the outermost to the innermost.
func (p *space) init(sizes []int) error {
	if len(sizes) > maxRank {
		return fmt.Errorf("kernel: %d dimensions, of at most %d", len(sizes), maxRank)
	}
	p.ops, p.dims, p.count = 0, len(sizes), 1
	for k, n := range sizes {
		p.sizes[len(sizes)-1-k] = n
		p.count *= n
	}
	return nil
}

// add adds an operand, which is broadcast to the sizes.
func (p *space) add(o *Operand) error {
	if len(o.Sizes) > p.dims {
		return fmt.Errorf("kernel: an operand of sizes %v is broadcast to %d dimensions", o.Sizes, p.dims)
	}
	to := &p.strides[p.ops]
	for k := range p.dims {
		from := len(o.Sizes) - 1 - k
		switch {
		case from < 0 || o.Sizes[from] == 1:
			to[k] = 0
		case o.Sizes[from] != p.sizes[k]:
			return fmt.Errorf("kernel: an operand of sizes %v isn't broadcast: dimension %d has %d elements, not %d", o.Sizes,
				from, o.Sizes[from], p.sizes[k])
		default:
			to[k] = o.Strides[from]
		}
	}
	p.ops++
	return nil
}

// join sorts the dimensions by the strides, of the first operand before the others', and makes one of those that lie
// one after the other for all operands.
func (p *space) join() {
	n := 0
	for k := range p.dims { // without those of one element
		if p.sizes[k] != 1 {
			p.move(n, k)
			n++
		}
	}
	p.dims = n
	for i := 1; i < n; i++ { // stable
		for k := i; k > 0 && p.before(k, k-1); k-- {
			p.swap(k, k-1)
		}
	}
	p.merge()
}

// merge makes one of neighbouring dimensions that lie one after the other for all operands.
func (p *space) merge() {
	if p.dims == 0 {
		return
	}
	n := 0
	for k := 1; k < p.dims; k++ {
		if p.follows(k, n) {
			p.sizes[n] *= p.sizes[k]
			continue
		}
		n++
		p.move(n, k)
	}
	p.dims = n + 1
}

func (p *space) move(to, from int) {
	p.sizes[to] = p.sizes[from]
	for o := range p.ops {
		p.strides[o][to] = p.strides[o][from]
	}
}

func (p *space) swap(a, b int) {
	p.sizes[a], p.sizes[b] = p.sizes[b], p.sizes[a]
	for o := range p.ops {
		s := &p.strides[o]
		s[a], s[b] = s[b], s[a]
	}
}

func (p *space) before(a, b int) bool {
	for o := range p.ops {
		x, y := p.strides[o][a], p.strides[o][b]
		x, y = max(x, -x), max(y, -y)
		if x == 0 || y == 0 || x == y {
			continue
		}
		return x < y
	}
	return false
}

func (p *space) follows(outer, inner int) bool {
	for o := range p.ops {
		if p.strides[o][outer] != p.strides[o][inner]*p.sizes[inner] {
			return false
		}
	}
	return true
}

// dense reports whether all operands, numbers left out, have their elements one after the other.
func (p *space) dense(values uint32) bool {
	if p.dims == 0 {
		return true
	}
	if p.dims > 1 {
		return false
	}
	for o := range p.ops {
		if values>>o&1 == 0 && p.strides[o][0] != 1 {
			return false
		}
	}
	return true
}

// layout adds the sizes and the strides of operands as a struct: I sizes[dims], strides[operands][dims].
func (p *space) layout(a *device.Args, wide bool) {
	var buf [(text.MaxOperands + 1) * text.MaxDims * 8]byte
	b, size := buf[:0], 4
	if wide {
		size = 8
	}
	word := func(v int) {
		if wide {
			b = binary.NativeEndian.AppendUint64(b, uint64(v))
		} else {
			b = binary.NativeEndian.AppendUint32(b, uint32(v))
		}
	}
	for k := range p.dims {
		word(p.sizes[k])
	}
	for o := range p.ops {
		for k := range p.dims {
			word(p.strides[o][k])
		}
	}
	a.Bytes(b, size)
}

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
