// Functions of a real floating-point type T that not every target has.
#define T_LOWEST (-(T)INFINITY)
#define T_HIGHEST ((T)INFINITY)
#define PI ((T)3.14159265358979323846)

// exp of f32 for vectors, in fewer operations than a library's, which also keep the last digit right elsewhere. With
// fused operations it's within 0.87 of the last digit for all x. A kernel whose threads are a vector's lanes defines
// EXP_OF_LANES.
#ifdef EXP_OF_LANES
DEVICE f32 t_exp(f32 x) {
	f32 whole, r;
	u32 bits, first;
	x = x > 89 ? 89 : x; // infinite
	x = x < -104 ? -104 : x; // 0
	whole = x * 1.44269504f + 12582912; // 1.5 * 2^23: the sum's last bits are the product, rounded to an integer
	bits = f32_bits(whole);
	whole -= 12582912;
	x -= whole * 0.693145752f;
	x -= whole * 1.42860677e-6f;
	r = 1.37805939e-3f;
	r = r * x + 8.37312452e-3f;
	r = r * x + 4.16695364e-2f;
	r = r * x + 1.66664720e-1f;
	r = r * x + 4.99999851e-1f;
	r = r * x + 1;
	r = r * x + 1;
	first = (u32)((i32)bits >> 1); // r times 2^whole, in two steps: the result may be denormal
	return r * bits_f32((first << 23) + 0x3f800000u) * bits_f32(((bits - first) << 23) + 0x3f800000u); // a NaN stays
}
#undef exp
#define exp(x) t_exp(x)
#endif
DEVICE T t_max(T a, T b) { return isnan(a) || a > b ? a : b; }
DEVICE T t_min(T a, T b) { return isnan(a) || a < b ? a : b; }
DEVICE T t_sigmoid(T x) { return 1 / (1 + exp(-x)); }
DEVICE T t_sigmoid_of_minus(T x) {
	T z = exp(-fabs(x));
	return (x < 0 ? (T)1 : z) / (1 + z);
}
DEVICE T t_softplus(T x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }
// tanh of softplus, which is 1 to the last digit where that is large.
DEVICE T t_tanh_softplus(T x) {
	T e = exp(-fabs(x)), square = e * e;
	return (x > 0 ? 1 + 2 * e : square + 2 * e) / (x > 0 ? 1 + 2 * e + 2 * square : square + 2 * e + 2);
}
DEVICE T t_logsigmoid(T x) { return (x < 0 ? x : (T)0) - log1p(exp(-fabs(x))); }
DEVICE T t_logaddexp(T a, T b) {
	if (isinf(a) && a == b)
		return a;
	return t_max(a, b) + log1p(exp(-fabs(a - b)));
}
DEVICE T t_logaddexp2(T a, T b) {
	if (isinf(a) && a == b)
		return a;
	return t_max(a, b) + log1p(exp2(-fabs(a - b))) * (T)1.44269504088896340736;
}
DEVICE T t_floor_div(T a, T b) {
	if (b == 0)
		return a / b;
	T mod = fmod(a, b), div = (a - mod) / b;
	if (mod != 0 && (b < 0) != (mod < 0))
		div -= 1;
	if (div == 0)
		return copysign((T)0, a / b);
	T down = floor(div);
	return div - down > (T)0.5 ? down + 1 : down;
}
DEVICE T t_remainder(T a, T b) {
	T mod = fmod(a, b);
	return mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod;
}
// By the branches of Giles, "Approximating the erfinv function" (2010), with two steps of Newton.
DEVICE T t_erfinv(T y) {
	T w, x;
	if (!(fabs(y) < 1))
		return fabs(y) == 1 ? copysign((T)INFINITY, y) : (T)NAN;
	w = -log1p(-y * y);
	if (w < 5) {
		w -= (T)2.5;
		x = (T)2.81022636e-08;
		x = (T)3.43273939e-07 + x * w;
		x = (T)-3.5233877e-06 + x * w;
		x = (T)-4.39150654e-06 + x * w;
		x = (T)0.00021858087 + x * w;
		x = (T)-0.00125372503 + x * w;
		x = (T)-0.00417768164 + x * w;
		x = (T)0.246640727 + x * w;
		x = (T)1.50140941 + x * w;
	} else {
		w = sqrt(w) - 3;
		x = (T)-0.000200214257;
		x = (T)0.000100950558 + x * w;
		x = (T)0.00134934322 + x * w;
		x = (T)-0.00367342844 + x * w;
		x = (T)0.00573950773 + x * w;
		x = (T)-0.0076224613 + x * w;
		x = (T)0.00943887047 + x * w;
		x = (T)1.00167406 + x * w;
		x = (T)2.83297682 + x * w;
	}
	x *= y;
	for (int k = 0; k < 2; k++) {
		T error = fabs(y) < (T)0.5 ? erf(x) - y : (1 - fabs(y) - erfc(fabs(x))) * copysign((T)1, y);
		x -= error / ((T)1.12837916709551257390 * exp(-x * x));
	}
	return x;
}
DEVICE T t_digamma(T x) {
	T result = 0, y;
	if (x == 0)
		return copysign((T)INFINITY, -x);
	if (x < 0) {
		if (x == floor(x))
			return (T)NAN;
		y = x - trunc(x);
		result = -PI / tan(PI * y);
		x = 1 - x;
	}
	while (x < 10) {
		result -= 1 / x;
		x += 1;
	}
	y = 1 / (x * x);
	result += log(x) - (T)0.5 / x;
	return result - y * ((T)(1.0 / 12) - y * ((T)(1.0 / 120) - y * ((T)(1.0 / 252) - y * ((T)(1.0 / 240) -
		y * ((T)(1.0 / 132) - y * (T)(691.0 / 32760))))));
}
DEVICE T t_trigamma(T x) {
	T sign = 1, result = 0, y;
	if (x < (T)0.5) {
		sign = -1;
		y = sin(PI * x);
		result = -(PI * PI) / (y * y);
		x = 1 - x;
	}
	for (int k = 0; k < 10; k++) {
		result += 1 / (x * x);
		x += 1;
	}
	y = 1 / (x * x);
	result += (1 + 1 / (2 * x) + y * ((T)(1.0 / 6) - y * ((T)(1.0 / 30) - y * (T)(1.0 / 42)))) / x;
	return sign * result;
}
// The series where it converges fast, and else the asymptotic one.
DEVICE T t_i0e(T x) {
	T term = 1, sum = 1;
	x = fabs(x);
	if (x < 20) {
		for (int k = 1; k < 80 && term > sum * (T)1e-17; k++) {
			term *= (x / (2 * k)) * (x / (2 * k));
			sum += term;
		}
		return sum * exp(-x);
	}
	for (int k = 1; k < 20; k++) {
		term *= (T)((2 * k - 1) * (2 * k - 1)) / (8 * k * x);
		sum += term;
	}
	return sum * (T)0.39894228040143267794 / sqrt(x);
}
DEVICE T t_i1e(T x) {
	T y = fabs(x), term = y / 2, sum = y / 2;
	if (y < 20) {
		for (int k = 1; k < 80 && term > sum * (T)1e-17; k++) {
			term *= (y / (2 * k)) * (y / (2 * k + 2));
			sum += term;
		}
		sum *= exp(-y);
		return x < 0 ? -sum : sum;
	}
	term = sum = 1;
	for (int k = 1; k < 20; k++) {
		term *= (T)((2 * k - 1) * (2 * k - 1) - 4) / (8 * k * y);
		sum += term;
	}
	sum *= (T)0.39894228040143267794 / sqrt(y);
	return x < 0 ? -sum : sum;
}
// The normal distribution's integral up to x. The polynomial is that of -log2 of the integral up to -|x|, and has all the
// digits of f32. It grows for all x, so that the integral is 0 where f32 has nothing smaller.
DEVICE T t_normal(T x) {
	T t = fabs(x), q;
	if (sizeof(T) > 4)
		return (T)0.5 * (1 + erf(x * (T)0.70710678118654752440));
	q = (T)2.834912720572902e-06;
	q = q * t - (T)3.9377689972752705e-05;
	q = q * t + (T)0.00018618024478200823;
	q = q * t + (T)0.00013693637447431684;
	q = q * t - (T)0.00706342002376914;
	q = q * t + (T)0.052496179938316345;
	q = q * t + (T)0.4592081904411316;
	q = q * t + (T)1.1511051654815674;
	q = exp2(-(q * t + 1));
	return x < 0 ? q : 1 - q;
}
DEVICE T t_gelu_tanh_backward(T grad, T x) {
	T k = (T)1.59576912160573071159, s = t_sigmoid(k * (x + (T)0.044715 * x * x * x));
	return grad * (s + x * s * (1 - s) * k * (1 + (T)0.134145 * x * x));
}
