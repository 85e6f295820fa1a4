// Complex numbers T of parts R. At infinity, NaN and zeros results are those of C's annex G, and of PyTorch's CPU.
DEVICE T c_make(R re, R im) { T z; z.re = re; z.im = im; return z; }
DEVICE int c_isnan(T a) { return isnan(a.re) || isnan(a.im); }
DEVICE int c_true(T a) { return a.re != 0 || a.im != 0; }
DEVICE T c_neg(T a) { return c_make(-a.re, -a.im); }
// Of a number of the call: a real one stays one.
DEVICE T c_minus(T a) { return c_make(-a.re, 0 - a.im); }
DEVICE T c_conj(T a) { return c_make(a.re, -a.im); }
DEVICE T c_add(T a, T b) { return c_make(a.re + b.re, a.im + b.im); }
DEVICE T c_sub(T a, T b) { return c_make(a.re - b.re, a.im - b.im); }
DEVICE T c_mul(T a, T b) { return c_make(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re); }
DEVICE T c_scale(T a, R b) { return c_make(a.re * b, a.im * b); }
DEVICE T c_div(T a, T b) {
	R r, d;
	if (fabs(b.re) >= fabs(b.im)) {
		if (b.re == 0 && b.im == 0)
			return c_make(a.re / fabs(b.re), a.im / fabs(b.re));
		r = b.im / b.re;
		d = 1 / (b.re + b.im * r);
		return c_make((a.re + a.im * r) * d, (a.im - a.re * r) * d);
	}
	r = b.re / b.im;
	d = 1 / (b.re * r + b.im);
	return c_make((a.re * r + a.im) * d, (a.im * r - a.re) * d);
}
DEVICE R c_abs(T a) { return hypot(a.re, a.im); }
DEVICE R c_arg(T a) { return atan2(a.im, a.re); }
DEVICE T c_sgn(T a) { R r = c_abs(a); return r == 0 ? c_make(0, 0) : c_make(a.re / r, a.im / r); }
DEVICE T c_polar(R r, R phi) { return c_make(r * cos(phi), r * sin(phi)); }
DEVICE int c_finite(R x) { return !(isnan(x) || isinf(x)); }
// e to the power of re is a product of two equal factors, which doesn't overflow where the result doesn't.
DEVICE T c_exp(T a) {
	R h = exp(a.re / 2);
	if (a.im == 0)
		return c_make(exp(a.re), a.im);
	if (isinf(a.re) && !c_finite(a.im))
		return a.re < 0 ? c_make(0, copysign((R)0, a.im)) : c_make(a.re, (R)NAN);
	return c_make(h * cos(a.im) * h, h * sin(a.im) * h);
}
// A factor with which neither the squares of a's parts overflow nor they themselves are denormal, and its logarithm.
DEVICE R c_level(T a, R *log_2) {
	R m = fabs(a.re) > fabs(a.im) ? fabs(a.re) : fabs(a.im);
	*log_2 = m > (R)0x1p120f ? -2 : m < (R)0x1p-60f ? 64 : 0;
	return m > (R)0x1p120f ? (R)0.25 : m < (R)0x1p-60f ? (R)0x1p64f : (R)1;
}
DEVICE R c_log_abs(T a) {
	R log_2, level = c_level(a, &log_2);
	return log(c_abs(c_scale(a, level))) - log_2 * (R)0.69314718055994530942;
}
DEVICE T c_log(T a) { return c_make(c_log_abs(a), c_arg(a)); }
DEVICE T c_sqrt(T a) {
	R r, s, t, back;
	if (isinf(a.im))
		return c_make(fabs(a.im), a.im);
	if (isinf(a.re)) {
		r = isnan(a.im) ? a.im : (R)0;
		return a.re > 0 ? c_make(a.re, copysign(r, a.im)) : c_make(r, copysign(a.re, a.im));
	}
	r = c_level(a, &back);
	back = back == 0 ? (R)1 : back < 0 ? (R)2 : (R)0x1p-32f;
	a = c_scale(a, r);
	r = c_abs(a);
	if (r == 0)
		return c_make(0, a.im);
	s = sqrt((r + fabs(a.re)) / 2);
	t = fabs(a.im) / (2 * s) * back;
	s *= back;
	return a.re >= 0 ? c_make(s, copysign(t, a.im)) : c_make(t, copysign(s, a.im));
}
DEVICE T c_pow(T a, T b) {
	return b.re == 0 && b.im == 0 ? c_make(1, 0) : c_exp(c_mul(b, c_log(a)));
}
DEVICE T c_times_i(T a) { return c_make(-a.im, a.re); }
// Beyond 20 the hyperbolic sine and cosine are the same.
DEVICE T c_sinh(T a) {
	R h;
	if (a.im == 0)
		return c_make(sinh(a.re), a.im);
	if (!c_finite(a.im))
		return c_make(a.re == 0 || isinf(a.re) ? a.re : (R)NAN, (R)NAN); // C leaves the sign open
	if (fabs(a.re) > 20) {
		h = exp(fabs(a.re) / 2);
		return c_make(copysign(h / 2, a.re) * cos(a.im) * h, h / 2 * sin(a.im) * h);
	}
	return c_make(sinh(a.re) * cos(a.im), cosh(a.re) * sin(a.im));
}
DEVICE T c_cosh(T a) {
	R h;
	if (a.im == 0)
		return c_make(cosh(a.re), isnan(a.re) ? a.im : copysign((R)1, a.re) * a.im);
	if (!c_finite(a.im))
		return c_make(isinf(a.re) ? fabs(a.re) : (R)NAN, a.re == 0 ? a.re : (R)NAN);
	if (fabs(a.re) > 20) {
		h = exp(fabs(a.re) / 2);
		return c_make(h / 2 * cos(a.im) * h, copysign(h / 2, a.re) * sin(a.im) * h);
	}
	return c_make(cosh(a.re) * cos(a.im), sinh(a.re) * sin(a.im));
}
DEVICE T c_tanh(T a) {
	R d, t;
	if (a.im == 0)
		return c_make(tanh(a.re), a.im);
	if (!c_finite(a.im))
		return isinf(a.re) ? c_make(copysign((R)1, a.re), copysign((R)0, a.im)) :
			c_make(a.re == 0 ? a.re : (R)NAN, (R)NAN);
	if (fabs(a.re) > 20)
		return c_make(copysign((R)1, a.re), 4 * sin(a.im) * cos(a.im) * exp(-2 * fabs(a.re)));
	t = sinh(a.re);
	d = t * t + cos(a.im) * cos(a.im);
	return c_make(t * cosh(a.re) / d, sin(a.im) * cos(a.im) / d);
}
DEVICE T c_over_i(T a) { return c_make(a.im, -a.re); }
DEVICE T c_sin(T a) { return c_over_i(c_sinh(c_times_i(a))); }
DEVICE T c_cos(T a) { return c_cosh(c_times_i(a)); }
DEVICE T c_tan(T a) { return c_over_i(c_tanh(c_times_i(a))); }
// By Kahan, "Branch cuts for complex elementary functions" (1987). Numbers beyond 2^30 have the same inverse functions as
// the logarithms of twice their absolute value.
DEVICE int c_large(T a) { return fabs(a.re) > (R)0x1p30f || fabs(a.im) > (R)0x1p30f; }
DEVICE T c_asinh(T a) {
	T p, q;
	if (a.im == 0 && isnan(a.re))
		return a;
	if (c_large(a))
		return c_make(copysign(c_log_abs(a) + (R)0.69314718055994530942, a.re),
			copysign(atan2(fabs(a.im), fabs(a.re)), a.im));
	p = c_sqrt(c_make(1 - a.im, a.re));
	q = c_sqrt(c_make(1 + a.im, -a.re));
	return c_make(asinh(q.re * p.im - q.im * p.re), atan2(a.im, p.re * q.re - p.im * q.im));
}
DEVICE T c_asin(T a) { return c_over_i(c_asinh(c_times_i(a))); }
DEVICE T c_acos(T a) {
	T p, q;
	if (a.re == 0 && isnan(a.im))
		return c_make((R)3.14159265358979323846 / 2, a.im);
	if (c_large(a))
		return c_make(atan2(fabs(a.im), a.re), copysign(c_log_abs(a) + (R)0.69314718055994530942, -a.im));
	p = c_sqrt(c_make(1 - a.re, -a.im));
	q = c_sqrt(c_make(1 + a.re, a.im));
	return c_make(2 * atan2(p.re, q.re), asinh(q.re * p.im - q.im * p.re));
}
DEVICE T c_acosh(T a) {
	T z = c_acos(a);
	return c_make(fabs(z.im), copysign(z.re, a.im));
}
DEVICE T c_atanh(T a) {
	R x = fabs(a.re), y = fabs(a.im), m = x > y ? x : y, re;
	if (isnan(a.re) || isnan(a.im))
		return c_make(isinf(a.re) || a.re == 0 ? copysign((R)0, a.re) : isinf(a.im) ? (R)0 : (R)NAN,
			isinf(a.im) ? copysign((R)3.14159265358979323846 / 2, a.im) : (R)NAN);
	if (m > (R)0x1p30f) {
		re = isinf(m) ? (R)0 : x / m / (m * (x / m * (x / m) + y / m * (y / m)));
		return c_make(copysign(re, a.re), copysign((R)3.14159265358979323846 / 2, a.im));
	}
	if (x == 1 && y < (R)0x1p-40f)
		re = ((R)0.69314718055994530942 - log(y)) / 2;
	else
		re = log1p(4 * x / ((1 - x) * (1 - x) + y * y)) / 4;
	return c_make(copysign(re, a.re), atan2(2 * a.im, (1 - x) * (1 + x) - y * y) / 2);
}
DEVICE T c_atan(T a) { return c_over_i(c_atanh(c_times_i(a))); }
DEVICE T c_log1p(T a) {
	R x = a.re * (2 + a.re) + a.im * a.im;
	if (c_isnan(a))
		return c_make((R)NAN, (R)NAN);
	if (x == 0 || !(fabs(x) < (R)0.5))
		return c_make(x != 0 ? c_log_abs(c_make(1 + a.re, a.im)) : a.im == 0 && fabs(a.re) < 1 ? a.re : (R)0, atan2(a.im, 1 + a.re));
	return c_make(log1p(x) / 2, atan2(a.im, 1 + a.re));
}
DEVICE T c_expm1(T a) {
	R s = sin(a.im / 2), e = expm1(a.re);
	return c_make(e * cos(a.im) - 2 * s * s, (e + 1) * sin(a.im));
}
DEVICE T c_sigmoid(T a) { return c_div(c_make(1, 0), c_add(c_make(1, 0), c_exp(c_neg(a)))); }
