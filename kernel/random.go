package kernel

import (
	"fmt"
	"math"
	"strings"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/rng"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/text"
)

// RandomFamily fills a tensor with random numbers.
const RandomFamily text.Family = 6

func init() { text.Register(RandomFamily, "random", randomSource) }

// distribution is a function of a uniform number u in (0, 1], of a normal one g, or of bits x, of a generator, and of
// the call's numbers.
type distribution struct {
	numbers int
	gauss   bool
	integer bool // of x; its numbers are integers of 64 bits
	f32     string
	f64     string // if it's another
}

const (
	eps32, eps64 = "1.1920928955078125e-07f", "2.220446049250313e-16"
	smallest     = "u >= 1 - %[1]s / 2 ? s0 * (-%[1]s / 2) : s0 * log(u)"
)

var distributions = map[string]distribution{
	"uniform":     {numbers: 3, f32: "fma(u, s2, s0)"}, // from, to, distance; what's rounded to the end becomes from
	"normal":      {numbers: 2, gauss: true, f32: "fma(g, s1, s0)"},
	"log_normal":  {numbers: 2, gauss: true, f32: "exp(fma(g, s1, s0))"},
	"exponential": {numbers: 1, f32: fmt.Sprintf(smallest, eps32), f64: fmt.Sprintf(smallest, eps64)}, // -1 / rate
	"cauchy": {numbers: 2, f32: "fma(s1, tan(PI * (t_max(" + eps32 + ", t_min(u, 1 - " + eps32 + ")) - (T)0.5)), s0)",
		f64: "fma(s1, tan(PI * (u - (T)0.5)), s0)"},
	"bernoulli": {numbers: 1, f32: "u < s0"},
	"geometric": {numbers: 1, f32: "ceil(log(u) / s0)"},                               // log1p(-p)
	"integers":  {numbers: 2, integer: true, f32: "(i64)(s0 ? x % (u64)s0 : x) + s1"}, // of so many; 0: of all
}

// bernoulliEach is Bernoulli with probabilities in memory. A block of Philox has the numbers of 4 elements that lie one
// after the other.
const bernoulliEach = "bernoulli_each"

// The other operations that aren't distributions.
const dropout, shuffle = "dropout", "shuffle"

// Random is a part of a generator's sequence, as PyTorch's CUDA kernels use it.
type Random struct {
	Seed, Offset uint64
	GPU          rng.GPU // whose launches are imitated

	// State is the address of two words of the device, a seed and an offset that Offset is added to, for kernels of a
	// graph: they are read when a kernel runs. Seed isn't used then. 0: there are none.
	State device.Ptr
}

// Forms of kernels with random numbers: bits of Spec.Form.
const (
	randomWide  = 1 << iota // of 64 bits each
	randomState             // the seed is in memory
)

// random adds the arguments of a kernel for its part of a sequence: seed, and offset in blocks of Philox.
func addRandom(c *loader.Call, r *Random) {
	c.Args.Uint64(r.Seed)
	c.Args.Uint64(r.Offset / 4)
	if r.State != 0 {
		c.Args.Pointer(r.State)
	}
}

// Uniform adds filling with numbers from [from, to).
func (p *Plan) Uniform(dst Operand, r Random, from, to float64) error {
	return p.random("uniform", dst, r, text.Is64(dst.Type), Float(rounded(dst.Type, from)), Float(rounded(dst.Type, to)),
		Float(rounded(dst.Type, rounded(dst.Type, to)-rounded(dst.Type, from))))
}

// Normal adds filling with normal numbers.
func (p *Plan) Normal(dst Operand, r Random, mean, std float64) error {
	return p.random("normal", dst, r, text.Is64(dst.Type), Float(mean), Float(std))
}

// LogNormal adds filling with exponentials of normal numbers.
func (p *Plan) LogNormal(dst Operand, r Random, mean, std float64) error {
	return p.random("log_normal", dst, r, text.Is64(dst.Type), Float(mean), Float(std))
}

// Exponential adds filling with exponentially distributed numbers.
func (p *Plan) Exponential(dst Operand, r Random, rate float64) error {
	scale := -1 / rate
	if !text.Is64(dst.Type) {
		scale = float64(-1 / float32(rate))
	}
	return p.random("exponential", dst, r, text.Is64(dst.Type), Float(scale))
}

// Cauchy adds filling with Cauchy distributed numbers.
func (p *Plan) Cauchy(dst Operand, r Random, median, sigma float64) error {
	return p.random("cauchy", dst, r, text.Is64(dst.Type), Float(median), Float(sigma))
}

// Bernoulli adds filling with ones, of a probability, and zeros.
func (p *Plan) Bernoulli(dst Operand, r Random, probability float64) error {
	return p.random("bernoulli", dst, r, text.Is64(dst.Type), Float(probability))
}

// Geometric adds filling with how many trials it takes to succeed.
func (p *Plan) Geometric(dst Operand, r Random, probability float64) error {
	scale := math.Log1p(-probability)
	if !text.Is64(dst.Type) {
		scale = math.Log1p(-float64(float32(probability)))
	}
	return p.random("geometric", dst, r, text.Is64(dst.Type), Float(scale))
}

// Integers adds filling with integers from first to last, which is one of them.
func (p *Plan) Integers(dst Operand, r Random, first, last int64) error {
	span := uint64(last) - uint64(first) + 1
	if span == 0 { // all of 64 bits
		first = 0
	}
	return p.random("integers", dst, r, span-1 >= 1<<28-1, Int(int64(span)), Int(first))
}

// Whole adds filling with integers from 0 to the largest one of the type, or to 2 to the number of its digits.
func (p *Plan) Whole(dst Operand, r Random) error {
	last, wide := rng.Largest(dst.Type)
	if last == 0 {
		return fmt.Errorf("kernel: integers of %v aren't defined", dst.Type)
	}
	return p.random("integers", dst, r, wide, Int(int64(uint64(last)+1)), Int(0))
}

// BernoulliEach adds filling with ones and zeros, each one with its own probability.
func (p *Plan) BernoulliEach(dst, probability Operand, r Random) error {
	s := text.Spec{Family: RandomFamily, Op: bernoulliEach, Compute: dtype.Float32, Block: threads, Outs: 1, Ins: 1}
	if text.Is64(dst.Type) {
		s.Compute = dtype.Float64
	}
	s.Types[0], s.Types[1] = dst.Type, probability.Type
	if err := probability.check("the probabilities"); err != nil {
		return err
	}
	if probability.Value != nil || !probability.Type.IsFloating() {
		return fmt.Errorf("kernel: probabilities of %v", probability.Type)
	}
	n, err := p.randomSpace(&s, &dst, &probability)
	if err != nil || n == 0 {
		return err
	}
	c := p.call(s, (n+3)/4)
	c.Args.Pointer(dst.Ptr)
	c.Args.Pointer(probability.Ptr)
	c.Index(n)
	addRandom(c, &r)
	if r.State != 0 {
		c.Spec.Form |= randomState
	}
	if s.Dims > 0 {
		p.space.layout(&c.Args, s.Wide)
	}
	return nil
}

// rounded is a number as one of a type.
func rounded(t dtype.DType, f float64) float64 {
	switch t {
	case dtype.Float16:
		return float64(dtype.F16FromFloat64(f).Float32())
	case dtype.BFloat16:
		return float64(dtype.BF16FromFloat64(f).Float32())
	case dtype.Float64:
		return f
	}
	return float64(float32(f))
}

// random adds a run. A thread makes a block of Philox, of 4 numbers, or of 2 of 64 bits.
func (p *Plan) random(op string, dst Operand, r Random, wide bool, numbers ...*Number) error {
	s := text.Spec{Family: RandomFamily, Op: op, Compute: dtype.Float32, Block: threads, Outs: 1}
	s.Types[0] = dst.Type
	switch {
	case distributions[op].integer:
		s.Compute = dtype.Int64
	case wide:
		s.Compute = dtype.Float64
	}
	n, err := p.randomSpace(&s, &dst)
	if err != nil || n == 0 {
		return err
	}
	each := 4
	if wide {
		each, s.Form = 2, randomWide
	}
	if r.State != 0 {
		s.Form |= randomState
	}
	size := dst.Type.Size()
	if !p.space.fits31(size) { // PyTorch draws for the whole, and once more for each part
		r.Offset += r.GPU.LaunchIncrement(n, wide)
	}
	p.space.parts31(size, 0, func(n, first int) {
		t := r.GPU.Threads(n)
		c := p.call(s, (n+t*each-1)/(t*each)*t)
		c.Args.Pointer(dst.Ptr.Add(first * size))
		c.Index(n)
		c.Index(t)
		addRandom(c, &r)
		for _, v := range numbers {
			v.add(&c.Args, s.Compute)
		}
		if s.Dims > 0 {
			p.space.layout(&c.Args, s.Wide)
		}
		r.Offset += r.GPU.LaunchIncrement(n, wide)
	})
	return nil
}

// fits31 reports whether the places of the first operand, in bytes, have 31 bits.
func (p *space) fits31(size int) bool {
	n, last := 1, 0
	for k := range p.dims {
		n *= p.sizes[k]
		last = further(last, p.sizes[k]-1, p.strides[0][k])
	}
	return n <= math.MaxInt32 && last <= (math.MaxInt32-1)/size
}

// parts31 calls f for each part of the space that [space.fits31] holds for, with how many elements it has and the place
// of its first one; the space has the part's sizes meanwhile. The dimension that reaches furthest is halved first, as
// TensorIterator's SplitUntil32Bit does.
func (p *space) parts31(size, first int, f func(n, first int)) {
	if p.fits31(size) {
		n := 1
		for _, x := range p.sizes[:p.dims] {
			n *= x
		}
		f(n, first)
		return
	}
	at, furthest := 0, -1
	for k := p.dims - 1; k >= 0; k-- {
		if reach := further(0, p.sizes[k]-1, p.strides[0][k]); reach > furthest {
			at, furthest = k, reach
		}
	}
	whole := p.sizes[at]
	p.sizes[at] = whole / 2
	p.parts31(size, first, f)
	p.sizes[at] = whole - whole/2
	p.parts31(size, first+whole/2*p.strides[0][at], f)
	p.sizes[at] = whole
}

// Dropout adds out = in * mask / keep, in place of whose last factor there is 0 if keep is 0, and a mask that is true
// where [Plan.Bernoulli] of keep gives 1. All have the same sizes.
func (p *Plan) Dropout(out, mask, in Operand, r Random, keep float64) error {
	s := text.Spec{Family: RandomFamily, Op: dropout, Compute: text.Opmath(in.Type), Block: threads, Outs: 2, Ins: 1}
	for k, o := range [...]*Operand{&out, &mask, &in} {
		s.Types[k] = o.Type
		if err := o.check("an operand of dropout"); err != nil {
			return err
		}
	}
	if mask.Type != dtype.Bool || mask.Value != nil || in.Value != nil || in.Type != out.Type ||
		!sameSizes(&out, &mask) || !sameSizes(&out, &in) {
		return fmt.Errorf("kernel: dropout of %v %v to %v %v with a mask of %v %v", in.Type, in.Sizes, out.Type, out.Sizes,
			mask.Type, mask.Sizes)
	}
	n, err := p.randomSpace(&s, &out, &mask, &in)
	if err != nil || n == 0 {
		return err
	}
	if r.State != 0 {
		s.Form |= randomState
	}
	t := r.GPU.Threads(n)
	c := p.call(s, (n+t*4-1)/(t*4)*t)
	for _, o := range [...]*Operand{&out, &mask, &in} {
		c.Args.Pointer(o.Ptr)
	}
	c.Index(n)
	c.Index(t)
	addRandom(c, &r)
	c.Args.Float32(float32(keep))
	scale := Number{}
	if keep > 0 {
		scale.Float = 1 / keep
	}
	scale.add(&c.Args, s.Compute)
	if s.Dims > 0 {
		p.space.layout(&c.Args, s.Wide)
	}
	return nil
}

// Shuffle adds what makes a permutation of sorted random keys: elements whose keys are equal, and so one after the
// other, change places at random. Both have one dimension without gaps; the kernel draws up to n words.
func (p *Plan) Shuffle(data, keys Operand, r Random) error {
	s := text.Spec{Family: RandomFamily, Op: shuffle, Compute: dtype.Int64, Block: threads, Outs: 1, Ins: 1}
	s.Types[0], s.Types[1] = data.Type, keys.Type
	for _, o := range [...]*Operand{&data, &keys} {
		if err := o.check("an operand of shuffle"); err != nil {
			return err
		}
		if o.Value != nil || len(o.Sizes) != 1 || o.Sizes[0] > 1 && o.Strides[0] != 1 || o.Sizes[0] != data.Sizes[0] {
			return fmt.Errorf("kernel: shuffle of sizes %v and %v", data.Sizes, keys.Sizes)
		}
	}
	if !(keys.Type == dtype.Int32 || keys.Type == dtype.Int64) || data.Type != dtype.Int64 {
		return fmt.Errorf("kernel: shuffle of %v by keys of %v", data.Type, keys.Type)
	}
	n := data.Sizes[0]
	if n < 2 {
		return nil
	}
	s.Wide = wide(n)
	if r.State != 0 {
		s.Form |= randomState
	}
	c := p.call(s, n)
	c.Args.Pointer(data.Ptr)
	c.Args.Pointer(keys.Ptr)
	c.Index(n)
	addRandom(c, &r)
	return nil
}

// randomSpace joins the dimensions of the tensor to fill, and of inputs, and completes the spec. It returns how many
// elements there are.
func (p *Plan) randomSpace(s *text.Spec, dst *Operand, ins ...*Operand) (int, error) {
	if err := dst.check("the tensor"); err != nil {
		return 0, err
	}
	discrete := s.Op == bernoulliEach || s.Op == "bernoulli" || s.Op == "geometric" || s.Op == "integers"
	if dst.Value != nil || dst.Type.IsComplex() || !discrete && !dst.Type.IsFloating() {
		return 0, fmt.Errorf("kernel: %s of %v isn't defined", s.Op, dst.Type)
	}
	if err := p.space.init(dst.Sizes); err != nil {
		return 0, err
	}
	if err := p.space.add(dst); err != nil {
		return 0, err
	}
	for _, o := range ins {
		if err := p.space.add(o); err != nil {
			return 0, err
		}
	}
	n := p.space.count
	if n == 0 {
		return 0, nil
	}
	p.space.join()
	if p.space.dims > text.MaxDims {
		return 0, fmt.Errorf("kernel: %s for %d elements in %d dimensions that don't join", s.Op, n, p.space.dims)
	}
	if !p.space.dense(0) {
		s.Dims = uint8(p.space.dims)
	}
	s.Wide = wide(n, dst.reach())
	for _, o := range ins {
		s.Wide = s.Wide || wide(o.reach())
	}
	return n, nil
}

func randomSource(s text.Spec) (text.Source, error) {
	d, ok := distributions[s.Op]
	if !ok && s.Op != dropout && s.Op != shuffle && s.Op != bernoulliEach {
		return text.Source{}, fmt.Errorf("kernel: there is no distribution %q", s.Op)
	}
	var w writer
	w.Begin(s)
	w.Dialect("philox")
	w.Defines(s, int(s.Outs+s.Ins))
	w.Generator(s.Form&randomState != 0)
	wide := s.Form&randomWide != 0
	w.DefineIf(wide, "WIDE")
	w.Define("EACH", map[bool]int{true: 2, false: 4}[wide])
	switch s.Op {
	case dropout, shuffle:
		w.Define(strings.ToUpper(s.Op), "")
		return w.File("random", s.Op)
	case bernoulliEach:
		w.Define("BERNOULLI_EACH", "")
		return w.File("random", "random_"+s.Op)
	}
	numbers := ""
	for k := range d.numbers {
		numbers += fmt.Sprintf(", T s%d", k)
	}
	w.Define("NUMBERS", numbers)
	expression := d.f32
	if wide && d.f64 != "" {
		expression = d.f64
	}
	w.Define("DISTRIBUTION", expression)
	w.Define("STORED(x)", text.Converted(s.Compute, s.Types[0], "x"))
	w.DefineIf(d.gauss, "GAUSS")
	w.DefineIf(d.integer, "INTEGER")
	w.DefineIf(s.Op == "uniform", "UNIFORM_NUMBERS")
	return w.File("random", "random_"+s.Op)
}
