package rng

import "math"

// fma32 returns a*b+c rounded once. The product of two float32 is exact in float64. Rounding the sum twice, to float64
// and to float32, goes wrong only if the first lands on the middle between two float32, where the lost rest decides.
func fma32(a, b, c float32) float32 {
	p := float64(a) * float64(b)
	s := p + float64(c)
	if math.Float64bits(s)&(1<<29-1) == 1<<28 {
		return fma32Tie(p, float64(c), s)
	}
	return float32(s)
}

func fma32Tie(p, c, s float64) float32 {
	// Two-sum (Knuth): s + rest is p + c exactly. The conversions keep the compiler from fusing or reordering anything.
	cc := float64(s - p)
	rest := float64(float64(p-float64(s-cc)) + float64(c-cc))
	switch bits := math.Float64bits(s); {
	case rest == 0:
	case (rest > 0) == (s > 0):
		s = math.Float64frombits(bits + 1)
	default:
		s = math.Float64frombits(bits - 1)
	}
	return float32(s)
}

// logf is the C library's logarithm (glibc 2.27 and later, x86 and ARM) for positive normal numbers; its last bit is
// not always the correctly rounded one, and PyTorch's numbers show it. The method: log(2^k z) = log1p(z/c-1) + log(c) +
// k log 2, where z is near the center c of one of 16 intervals; coefficients are those of Arm's optimized routines,
// math/logf_data.c.
func logf(x float32) float32 {
	const origin = 0x3f330000
	ix := math.Float32bits(x)
	t := ix - origin
	k := int32(t) >> 23
	center := &logCenters[t>>19&15]
	z := float64(math.Float32frombits(ix - t&0xff800000))
	r := math.FMA(z, center.inverse, -1)
	y0 := math.FMA(float64(k), 0x1.62e42fefa39efp-1, center.log)
	r2 := float64(r * r)
	y := math.FMA(0x1.5575b0be00b6ap-2, r, -0x1.ffffef20a4123p-2)
	y = math.FMA(-0x1.00ea348b88334p-2, r2, y)
	return float32(math.FMA(y, r2, float64(y0+r)))
}

var logCenters = [16]struct{ inverse, log float64 }{
	{0x1.661ec79f8f3bep+0, -0x1.57bf7808caadep-2},
	{0x1.571ed4aaf883dp+0, -0x1.2bef0a7c06ddbp-2},
	{0x1.49539f0f010bp+0, -0x1.01eae7f513a67p-2},
	{0x1.3c995b0b80385p+0, -0x1.b31d8a68224e9p-3},
	{0x1.30d190c8864a5p+0, -0x1.6574f0ac07758p-3},
	{0x1.25e227b0b8eap+0, -0x1.1aa2bc79c81p-3},
	{0x1.1bb4a4a1a343fp+0, -0x1.a4e76ce8c0e5ep-4},
	{0x1.12358f08ae5bap+0, -0x1.1973c5a611cccp-4},
	{0x1.0953f419900a7p+0, -0x1.252f438e10c1ep-5},
	{0x1p+0, 0x0p+0},
	{0x1.e608cfd9a47acp-1, 0x1.aa5aa5df25984p-5},
	{0x1.ca4b31f026aap-1, 0x1.c5e53aa362eb4p-4},
	{0x1.b2036576afce6p-1, 0x1.526e57720db08p-3},
	{0x1.9c2d163a1aa2dp-1, 0x1.bc2860d22477p-3},
	{0x1.886e6037841edp-1, 0x1.1058bc8a07ee1p-2},
	{0x1.767dcf5534862p-1, 0x1.4043057b6ee09p-2},
}

// sincosf is the C library's sine and cosine (as logf: sincosf_data.c) for 0 <= x < 120: one step of reduction to
// [-pi/4, pi/4] in float64, then one polynomial for each. Quadrants swap them and change signs.
func sincosf(x float32) (sin, cos float32) {
	r := float64(x)
	n := 0
	if x >= math.Pi/4 {
		n = (int(r*0x1.45f306dc9c883p+23) + 0x800000) >> 24
		r = math.FMA(-float64(n), math.Pi/2, r)
	}
	r2 := float64(r * r)
	s, c := float32(r), float32(1)
	if math.Abs(r) >= 0x1p-12 || n != 0 {
		r3 := float64(r2 * r)
		s1 := math.FMA(r2, -0x1.994eb3774cf24p-13, 0x1.1107605230bc4p-7)
		s = float32(math.FMA(float64(r3*r2), s1, math.FMA(r3, -0x1.555545995a603p-3, r)))
		r4 := float64(r2 * r2)
		c1 := math.FMA(r2, -0x1.ffffffd0c621cp-2, 1)
		c2 := math.FMA(r2, 0x1.99343027bf8c3p-16, -0x1.6c087e89a359dp-10)
		c = float32(math.FMA(float64(r4*r2), c2, math.FMA(r4, 0x1.55553e1068f19p-5, c1)))
	}
	switch n & 3 {
	case 0:
		return s, c
	case 1:
		return c, -s
	case 2:
		return -s, -c
	default:
		return -c, s
	}
}

// logCephes is the logarithm of PyTorch's avx_mathfun.h (after Cephes' logf, Moshier 1989), for positive normal
// numbers, with the products and sums fused that its compiler fuses.
func logCephes(x float32) float32 {
	bits := math.Float32bits(x)
	e := float32(int32(bits>>23)-127) + 1
	x = math.Float32frombits(bits&^0x7f800000 | 0x3f000000) // in [0.5, 1)
	if x < 0.707106781186547524 {
		e--
		x = float32(x-1) + x
	} else {
		x--
	}
	z := float32(x * x)
	y := fma32(7.0376836292e-2, x, -1.1514610310e-1)
	y = fma32(y, x, 1.1676998740e-1)
	y = fma32(y, x, -1.2420140846e-1)
	y = fma32(y, x, 1.4249322787e-1)
	y = fma32(y, x, -1.6668057665e-1)
	y = fma32(y, x, 2.0000714765e-1)
	y = fma32(y, x, -2.4999993993e-1)
	y = fma32(y, x, 3.3333331174e-1)
	y = float32(y * x)
	y = fma32(y, z, float32(e*-2.12194440e-4))
	y = fma32(z, -0.5, y)
	return fma32(e, 0.693359375, float32(x+y))
}

// sincosCephes is the sine and cosine of PyTorch's avx_mathfun.h, for x >= 0, fused like logCephes.
func sincosCephes(x float32) (sin, cos float32) {
	j := (int32(float32(x*1.27323954473516)) + 1) &^ 1 // the octant, rounded up to even
	n := float32(j)
	x = fma32(n, -0.78515625, x)
	x = fma32(n, -2.4187564849853515625e-4, x)
	x = fma32(n, -3.77489497744594108e-8, x)
	z := float32(x * x)
	c := fma32(2.443315711809948e-5, z, -1.388731625493765e-3)
	c = fma32(c, z, 4.166664568298827e-2)
	c = float32(c * z)
	c = fma32(c, z, float32(z*-0.5))
	c++
	s := fma32(-1.9515295891e-4, z, 8.3321608736e-3)
	s = fma32(s, z, -1.6666654611e-1)
	s = float32(s * z)
	s = fma32(s, x, x)
	switch j >> 1 & 3 {
	case 0:
		return s, c
	case 1:
		return c, -s
	case 2:
		return -s, -c
	default:
		return -c, s
	}
}
