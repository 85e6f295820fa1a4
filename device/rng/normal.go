package rng

import "math"

// normal16 turns 16 uniforms into 16 normals: the j-th and the (j+8)-th make a Box-Muller pair (NormalFill16 in
// ATen/native/cpu/DistributionTemplates.h).
func (b Build) normal16(d *[16]float32, mean, std float32) {
	if b == AVX2 {
		for j := range 8 {
			radius := sqrt32(-2 * logCephes(1-d[j]))
			sin, cos := sincosCephes(float32(d[j+8] * (2 * math.Pi)))
			d[j] = fma32(float32(radius*cos), std, mean)
			d[j+8] = fma32(float32(radius*sin), std, mean)
		}
		return
	}
	for j := range 8 {
		radius := sqrt32(-2 * logf(1-d[j]))
		sin, cos := sincosf(float32(float64(d[j+8]) * (2 * math.Pi)))
		d[j] = fma32(float32(radius*cos), std, mean)
		d[j+8] = fma32(float32(radius*sin), std, mean)
	}
}

// sqrt32 is the correctly rounded square root.
func sqrt32(x float32) float32 { return float32(math.Sqrt(float64(x))) }

func normal16f64(d *[16]float64, mean, std float64) {
	for j := range 8 {
		radius := math.Sqrt(-2 * math.Log(1-d[j]))
		sin, cos := math.Sincos(2 * math.Pi * d[j+8])
		d[j] = math.FMA(float64(radius*cos), std, mean)
		d[j+8] = math.FMA(float64(radius*sin), std, mean)
	}
}

// fillNormal32 fills 16 or more elements: every block of 16 from its own uniforms, then, if a shorter block remains,
// the last 16 elements once more, from new ones.
func (g *CPU) fillNormal32(dst []float32, mean, std float32) {
	n := len(dst)
	g.engine.fill24(dst)
	for i := 0; i+16 <= n; i += 16 {
		g.build.normal16((*[16]float32)(dst[i:]), mean, std)
	}
	if n%16 != 0 {
		last := (*[16]float32)(dst[n-16:])
		g.engine.fill24(last[:])
		g.build.normal16(last, mean, std)
	}
}

func (g *CPU) fillNormal64(dst []float64, mean, std float64) {
	n := len(dst)
	for i := range dst {
		dst[i] = g.engine.uniform53()
	}
	for i := 0; i+16 <= n; i += 16 {
		normal16f64((*[16]float64)(dst[i:]), mean, std)
	}
	if n%16 != 0 {
		last := (*[16]float64)(dst[n-16:])
		for i := range last {
			last[i] = g.engine.uniform53()
		}
		normal16f64(last, mean, std)
	}
}

// fillNormalNarrow is fillNormal32 for a type of which each block is computed in float32 and then rounded.
func fillNormalNarrow[T any](g *CPU, dst []T, mean, std float32, round func(float32) T) {
	var block [16]float32
	write := func(out []T) {
		g.engine.fill24(block[:])
		g.build.normal16(&block, mean, std)
		for i, x := range block {
			out[i] = round(x)
		}
	}
	n := len(dst)
	for i := 0; i+16 <= n; i += 16 {
		write(dst[i : i+16])
	}
	if n%16 != 0 {
		write(dst[n-16:])
	}
}

// normal draws one number: the second of the last pair if it is still there (at::normal_distribution<double>).
func (g *CPU) normal(mean, std float64) float64 {
	x := g.cached
	if g.hasCached {
		g.hasCached = false
	} else {
		u1 := g.engine.uniform53()
		u2 := g.engine.uniform53()
		r := math.Sqrt(-2 * math.Log1p(-u2))
		sin, cos := math.Sincos(2 * math.Pi * u1)
		g.cached, g.hasCached = float64(r*sin), true
		x = float64(r * cos)
	}
	return g.build.mulAdd(x, std, mean)
}

// mulAdd is a*b+c in the way of the build.
func (b Build) mulAdd(a, x, c float64) float64 {
	if b == Baseline {
		return float64(a*x) + c
	}
	return math.FMA(a, x, c)
}

func (b Build) mulAdd32(a, x, c float32) float32 {
	if b == Baseline {
		return float32(a*x) + c
	}
	return fma32(a, x, c)
}
