package rng

import "math"

// Uniform fills dst with numbers from [from, to), as Tensor.uniform_ does.
func Uniform[T Float](g Generator, dst []T, from, to float64) error {
	if !(from <= to) || math.IsInf(to-from, 0) || !isFloat64[T]() && to-from > math.MaxFloat32 {
		return invalid("uniform from %v to %v", from, to)
	}
	switch g := g.(type) {
	case *CPU:
		cpuUniform(g, dst, from, to)
		return nil
	case *CUDA:
		return cudaUniform(g, dst, from, to)
	}
	return invalid("no generator")
}

// Normal fills dst with normal numbers, as Tensor.normal_ does. On a CPU 16 elements and more are drawn in another way
// than fewer are. A tensor that isn't contiguous is filled as if each element were a slice of its own.
func Normal[T Float](g Generator, dst []T, mean, std float64) error {
	if !(std >= 0) {
		return invalid("normal with standard deviation %v", std)
	}
	switch g := g.(type) {
	case *CPU:
		cpuNormal(g, dst, mean, std)
		return nil
	case *CUDA:
		m, s := float32(mean), float32(std)
		return cudaFill(g, dst, gauss32, gauss64,
			func(x float32) float32 { return fma32(x, s, m) },
			func(x float64) float64 { return math.FMA(x, std, mean) })
	}
	return invalid("no generator")
}

// LogNormal fills dst with the exponentials of normal numbers, as Tensor.log_normal_ does.
func LogNormal[T Float](g Generator, dst []T, mean, std float64) error {
	if !(std > 0) {
		return invalid("log-normal with standard deviation %v", std)
	}
	switch g := g.(type) {
	case *CPU:
		cpuEach(g, dst, func() float64 { return math.Exp(g.normal(mean, std)) })
		return nil
	case *CUDA:
		m, s := float32(mean), float32(std)
		return cudaFill(g, dst, gauss32, gauss64,
			func(x float32) float32 { return float32(math.Exp(float64(fma32(x, s, m)))) },
			func(x float64) float64 { return math.Exp(math.FMA(x, std, mean)) })
	}
	return invalid("no generator")
}

// Exponential fills dst with exponentially distributed numbers of the given rate, as Tensor.exponential_ does.
func Exponential[T Float](g Generator, dst []T, lambda float64) error {
	if !(lambda > 0) {
		return invalid("exponential with rate %v", lambda)
	}
	switch g := g.(type) {
	case *CPU:
		scale := -1 / lambda
		cpuEach(g, dst, func() float64 { return scale * math.Log1p(-g.engine.uniform53()) })
		return nil
	case *CUDA:
		const eps32, eps64 = 0x1p-23, 0x1p-52
		scale32, scale64 := -1/float32(lambda), -1/lambda
		return cudaFill(g, dst, uniform32, uniform64,
			func(u float32) float32 {
				if u >= 1-eps32/2 {
					return scale32 * (-eps32 / 2)
				}
				return scale32 * float32(math.Log(float64(u)))
			},
			func(u float64) float64 {
				if u >= 1-eps64/2 {
					return scale64 * (-eps64 / 2)
				}
				return scale64 * math.Log(u)
			})
	}
	return invalid("no generator")
}

// Cauchy fills dst with Cauchy distributed numbers, as Tensor.cauchy_ does.
func Cauchy[T Float](g Generator, dst []T, median, sigma float64) error {
	if !(sigma > 0) {
		return invalid("cauchy with scale %v", sigma)
	}
	switch g := g.(type) {
	case *CPU:
		cpuEach(g, dst, func() float64 {
			return g.build.mulAdd(sigma, math.Tan(math.Pi*(g.engine.uniform53()-0.5)), median)
		})
		return nil
	case *CUDA:
		const eps = 0x1p-23
		m, s := float32(median), float32(sigma)
		return cudaFill(g, dst, uniform32, uniform64,
			func(u float32) float32 {
				u = max(eps, min(u, 1-eps))
				return fma32(s, float32(math.Tan(float64(float32(math.Pi)*(u-0.5)))), m)
			},
			func(u float64) float64 { return math.FMA(sigma, math.Tan(math.Pi*(u-0.5)), median) })
	}
	return invalid("no generator")
}

func cpuUniform[T Float](g *CPU, dst []T, from, to float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch dst := any(dst).(type) {
	case []float64:
		for i := range dst {
			if dst[i] = g.build.mulAdd(g.engine.uniform53(), to-from, from); dst[i] == to {
				dst[i] = from
			}
		}
		return
	case []float32:
		g.engine.fill24(dst)
		if from != 0 || to != 1 {
			f, t := float32(from), float32(to)
			for i := range dst {
				if dst[i] = g.build.mulAdd32(dst[i], t-f, f); dst[i] == t {
					dst[i] = f
				}
			}
		}
		return
	}
	round := kindOf[T]().from32
	f, t := float32(from), float32(to)
	first, end := round(f), round(t)
	for i := range dst {
		if dst[i] = round(g.build.mulAdd32(g.engine.uniform24(), t-f, f)); dst[i] == end {
			dst[i] = first
		}
	}
}

func cpuNormal[T Float](g *CPU, dst []T, mean, std float64) {
	if len(dst) < 16 {
		cpuEach(g, dst, func() float64 { return g.normal(mean, std) })
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch dst := any(dst).(type) {
	case []float32:
		g.fillNormal32(dst, float32(mean), float32(std))
	case []float64:
		g.fillNormal64(dst, mean, std)
	default:
		fillNormalNarrow(g, dst.([]T), float32(mean), float32(std), kindOf[T]().from32)
	}
}

// cpuEach fills dst with numbers that are drawn one by one in float64.
func cpuEach[T Number](g *CPU, dst []T, next func() float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	convert := kindOf[T]().from64
	for i := range dst {
		dst[i] = convert(next())
	}
}

func cudaUniform[T Float](g *CUDA, dst []T, from, to float64) error {
	if dst, is := any(dst).([]float64); is {
		return cudaFill(g, dst, uniform32, uniform64, nil, func(u float64) float64 {
			if x := math.FMA(u, to-from, from); x != to {
				return x
			}
			return from
		})
	}
	f, t := nearest[T](from), nearest[T](to)
	span := nearest[T](float64(t - f))
	return cudaFill(g, dst, uniform32, uniform64, func(u float32) float32 {
		if x := nearest[T](float64(fma32(u, span, f))); x != t {
			return x
		}
		return f
	}, nil)
}

// cudaFill fills dst with what then makes of numbers: in float64 for float64, in float32 for all others.
func cudaFill[T Float](g *CUDA, dst []T,
	numbers32 func(block [4]uint32, need int) [4]float32, numbers64 func([4]uint32) [2]float64,
	then32 func(float32) float32, then64 func(float64) float64) error {
	if dst, is := any(dst).([]float64); is {
		return g.draw(len(dst), 8, true, func(block [4]uint32, i, step, n int) {
			for _, x := range numbers64(block) {
				if i < n {
					dst[i] = then64(x)
				}
				i += step
			}
		})
	}
	round := kindOf[T]().from32
	return g.draw(len(dst), sizeOf[T](), false, func(block [4]uint32, i, step, n int) {
		need := min(4, (n-i+step-1)/step)
		x := numbers32(block, need)
		for _, x := range x[:need] {
			dst[i] = round(then32(x))
			i += step
		}
	})
}

// uniform32 is curand_uniform4: numbers in (0, 1]. Products with a power of two are exact, so it's all the same whether
// they are fused with the sums. All are made, however few are needed.
func uniform32(b [4]uint32, _ int) (u [4]float32) {
	for i, x := range b {
		u[i] = float32(x)*0x1p-32 + 0x1p-33
	}
	return u
}

// uniform64 is curand_uniform2_double: numbers in (0, 1].
func uniform64(b [4]uint32) [2]float64 {
	return [2]float64{uniform53(b[0], b[1]), uniform53(b[2], b[3])}
}

func uniform53(x, y uint32) float64 {
	return float64(uint64(x)^uint64(y)<<21)*0x1p-53 + 0x1p-54
}

// gauss32 is curand_normal4 with exact elementary functions, rounded to float32, instead of the GPU's approximations.
// It makes as many pairs as are needed.
func gauss32(b [4]uint32, need int) (x [4]float32) {
	const turn = float32(2 * math.Pi * 0x1p-32)
	for i := 0; i < need; i += 2 {
		u := float32(b[i])*0x1p-32 + 0x1p-33
		v := fma32(float32(b[i+1]), turn, turn/2)
		s := sqrt32(-2 * float32(math.Log(float64(u))))
		sin, cos := math.Sincos(float64(v))
		x[i], x[i+1] = s*float32(sin), s*float32(cos)
	}
	return x
}

// gauss64 is curand_normal2_double.
func gauss64(b [4]uint32) [2]float64 {
	s := math.Sqrt(-2 * math.Log(uniform53(b[0], b[1])))
	v := math.FMA(float64(uint64(b[2])^uint64(b[3])<<21), 0x1p-52, 0x1p-53) // half turns
	sin, cos := math.Sincos(v * math.Pi)
	return [2]float64{s * sin, s * cos}
}
