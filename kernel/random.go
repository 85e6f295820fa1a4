package kernel

import (
	_ "embed"
	"fmt"
	"math"

	"github.com/chorus-comms/chorus/device/rng"
	"github.com/chorus-comms/chorus/dtype"
)

// RandomFamily fills a tensor with random numbers.
const RandomFamily Family = 6

func init() { register(RandomFamily, "random", randomSource) }

//go:embed dialect/philox.h
var philoxHeader string

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
	"geometric": {numbers: 1, f32: "ceil(log(u) / s0)"}, // log1p(-p)
	"integers":  {numbers: 2, integer: true, f32: "(i64)(x % (u64)s0) + s1"},
}

// Random is a part of a generator's sequence, as PyTorch's CUDA kernels use it.
type Random struct {
	Seed, Offset uint64
	GPU          rng.GPU // whose launches are imitated
}

// Uniform adds filling with numbers from [from, to).
func (p *Plan) Uniform(dst Operand, r Random, from, to float64) error {
	return p.random("uniform", dst, r, is64(dst.Type), Float(rounded(dst.Type, from)), Float(rounded(dst.Type, to)),
		Float(rounded(dst.Type, rounded(dst.Type, to)-rounded(dst.Type, from))))
}

// Normal adds filling with normal numbers.
func (p *Plan) Normal(dst Operand, r Random, mean, std float64) error {
	return p.random("normal", dst, r, is64(dst.Type), Float(mean), Float(std))
}

// LogNormal adds filling with exponentials of normal numbers.
func (p *Plan) LogNormal(dst Operand, r Random, mean, std float64) error {
	return p.random("log_normal", dst, r, is64(dst.Type), Float(mean), Float(std))
}

// Exponential adds filling with exponentially distributed numbers.
func (p *Plan) Exponential(dst Operand, r Random, rate float64) error {
	scale := -1 / rate
	if !is64(dst.Type) {
		scale = float64(-1 / float32(rate))
	}
	return p.random("exponential", dst, r, is64(dst.Type), Float(scale))
}

// Cauchy adds filling with Cauchy distributed numbers.
func (p *Plan) Cauchy(dst Operand, r Random, median, sigma float64) error {
	return p.random("cauchy", dst, r, is64(dst.Type), Float(median), Float(sigma))
}

// Bernoulli adds filling with ones, of a probability, and zeros.
func (p *Plan) Bernoulli(dst Operand, r Random, probability float64) error {
	return p.random("bernoulli", dst, r, is64(dst.Type), Float(probability))
}

// Geometric adds filling with how many trials it takes to succeed.
func (p *Plan) Geometric(dst Operand, r Random, probability float64) error {
	scale := math.Log1p(-probability)
	if !is64(dst.Type) {
		scale = math.Log1p(-float64(float32(probability)))
	}
	return p.random("geometric", dst, r, is64(dst.Type), Float(scale))
}

// Integers adds filling with integers from [from, to).
func (p *Plan) Integers(dst Operand, r Random, from, to int64) error {
	span := uint64(to) - uint64(from)
	return p.random("integers", dst, r, span >= 1<<28, Int(int64(span)), Int(from))
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
	s := Spec{Family: RandomFamily, Op: op, Compute: dtype.Float32, Block: threads, Outs: 1}
	s.Types[0] = dst.Type
	switch {
	case distributions[op].integer:
		s.Compute = dtype.Int64
	case wide:
		s.Compute = dtype.Float64
	}
	if err := dst.check("the tensor"); err != nil {
		return err
	}
	discrete := op == "bernoulli" || op == "geometric" || op == "integers"
	if dst.Value != nil || dst.Type.IsComplex() || !discrete && !dst.Type.IsFloating() {
		return fmt.Errorf("kernel: %s of %v isn't defined", op, dst.Type)
	}
	if err := p.space.init(dst.Sizes); err != nil {
		return err
	}
	if err := p.space.add(&dst); err != nil || p.space.count == 0 {
		return err
	}
	p.space.join()
	n := p.space.count
	if p.space.dims > MaxDims || n*dst.Type.Size() > math.MaxInt32 {
		return fmt.Errorf("kernel: %s for %d elements in %d dimensions that don't join", op, n, p.space.dims)
	}
	if !p.space.dense(0) {
		s.Dims = uint8(p.space.dims)
	}
	s.Wide = p.space.wide()
	each := 4
	if wide {
		each, s.Form = 2, 1
	}
	t := r.GPU.Threads(n)
	c := p.call(s, (n+t*each-1)/(t*each)*t)
	c.Args.Pointer(dst.Ptr)
	c.index(n)
	c.index(t)
	c.Args.Uint64(r.Seed)
	c.Args.Uint64(r.Offset / 4)
	for _, v := range numbers {
		v.add(&c.Args, s.Compute)
	}
	if s.Dims > 0 {
		p.space.layout(&c.Args, s.Wide)
	}
	return nil
}

func randomSource(s Spec) (Source, error) {
	d, ok := distributions[s.Op]
	if !ok {
		return Source{}, fmt.Errorf("kernel: there is no distribution %q", s.Op)
	}
	each, wide := 4, s.Form == 1
	if wide {
		each = 2
	}
	var w writer
	w.begin(s)
	w.WriteString(philoxHeader)
	w.layoutType("layout", int(s.Dims), 1)
	w.pointers(s)
	w.param("I n, I threads, u64 seed, u64 block")
	for k := range d.numbers {
		w.param("T s%d", k)
	}
	if s.Dims > 0 {
		w.param("layout l")
	}
	w.function("random_" + s.Op)
	w.line("\tI number = (I)(BLOCK * THREADS + THREAD), t = number %% threads, k = number / threads, first = t + k * %d * threads;",
		each)
	w.line("\tif (first >= n)")
	w.line("\t\treturn;")
	w.line("\tnumbers4 v = philox(seed, (u64)t, block, (u64)k);")
	switch {
	case d.integer:
	case d.gauss && wide:
		w.line("\tT r = sqrt(-2 * log((T)((u64)v.v[0] ^ (u64)v.v[1] << 21) * (T)0x1p-53 + (T)0x1p-54));")
		w.line("\tT phi = PI * fma((T)((u64)v.v[2] ^ (u64)v.v[3] << 21), (T)0x1p-52, (T)0x1p-53);")
		w.line("\tT gauss[2];")
		w.line("\tgauss[0] = r * sin(phi);")
		w.line("\tgauss[1] = r * cos(phi);")
	case d.gauss:
		w.line("\tT gauss[4];")
		w.line("\tfor (int j = 0; j < 4; j += 2) {")
		w.line("\t\tT u = (T)v.v[j] * 0x1p-32f + 0x1p-33f, turn = 6.283185307179586f * 0x1p-32f;")
		w.line("\t\tT phi = fma((T)v.v[j + 1], turn, turn / 2), r = sqrt(-2 * log(u));")
		w.line("\t\tgauss[j] = r * sin(phi);")
		w.line("\t\tgauss[j + 1] = r * cos(phi);")
		w.line("\t}")
	}
	w.line("\tfor (int j = 0; j < %d && first + j * threads < n; j++) {", each)
	switch {
	case d.integer && wide:
		w.line("\t\tu64 x = (u64)v.v[2 * j] << 32 | v.v[2 * j + 1];")
	case d.integer:
		w.line("\t\tu64 x = v.v[j];")
	case d.gauss:
		w.line("\t\tT g = gauss[j];")
	case wide:
		w.line("\t\tT u = (T)((u64)v.v[2 * j] ^ (u64)v.v[2 * j + 1] << 21) * (T)0x1p-53 + (T)0x1p-54;")
	default:
		w.line("\t\tT u = (T)v.v[j] * 0x1p-32f + 0x1p-33f;")
	}
	w.places("(first + j * threads)", "l", int(s.Dims), 1)
	expression := d.f32
	if wide && d.f64 != "" {
		expression = d.f64
	}
	w.line("\t\t%s y = %s;", stored(s.Types[0]), narrowed(s.Types[0], s.Compute, "(T)("+expression+")"))
	if s.Op == "uniform" {
		w.line("\t\tif (%s == s1)", converted(s.Compute, s.Types[0], "y"))
		w.line("\t\t\ty = %s;", narrowed(s.Types[0], s.Compute, "s0"))
	}
	w.line("\t\to0[at0] = y;")
	w.line("\t}")
	return w.done()
}
