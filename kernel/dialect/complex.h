// Complex numbers T of parts R.
DEVICE T c_make(R re, R im) { T z; z.re = re; z.im = im; return z; }
DEVICE int c_isnan(T a) { return isnan(a.re) || isnan(a.im); }
DEVICE int c_true(T a) { return a.re != 0 || a.im != 0; }
DEVICE T c_neg(T a) { return c_make(-a.re, -a.im); }
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
		d = b.re + b.im * r;
		return c_make((a.re + a.im * r) / d, (a.im - a.re * r) / d);
	}
	r = b.re / b.im;
	d = b.re * r + b.im;
	return c_make((a.re * r + a.im) / d, (a.im * r - a.re) / d);
}
DEVICE R c_abs(T a) { return hypot(a.re, a.im); }
DEVICE R c_arg(T a) { return atan2(a.im, a.re); }
DEVICE T c_sgn(T a) { R r = c_abs(a); return r == 0 ? c_make(0, 0) : c_make(a.re / r, a.im / r); }
DEVICE T c_polar(R r, R phi) { return c_make(r * cos(phi), r * sin(phi)); }
DEVICE T c_exp(T a) { return a.im == 0 ? c_make(exp(a.re), a.im) : c_polar(exp(a.re), a.im); }
DEVICE T c_log(T a) { return c_make(log(c_abs(a)), c_arg(a)); }
DEVICE T c_sqrt(T a) {
	R r = c_abs(a), s;
	if (r == 0)
		return c_make(0, a.im);
	if (a.re >= 0) {
		s = sqrt((r + a.re) / 2);
		return c_make(s, a.im / (2 * s));
	}
	s = sqrt((r - a.re) / 2);
	return c_make(fabs(a.im) / (2 * s), copysign(s, a.im));
}
DEVICE T c_pow(T a, T b) {
	if (b.re == 0 && b.im == 0)
		return c_make(1, 0);
	if (!c_true(a))
		return b.re > 0 ? c_make(0, 0) : c_make((R)NAN, (R)NAN);
	return c_exp(c_mul(b, c_log(a)));
}
DEVICE T c_times_i(T a) { return c_make(-a.im, a.re); }
DEVICE T c_sinh(T a) { return c_make(sinh(a.re) * cos(a.im), cosh(a.re) * sin(a.im)); }
DEVICE T c_cosh(T a) { return c_make(cosh(a.re) * cos(a.im), sinh(a.re) * sin(a.im)); }
DEVICE T c_tanh(T a) {
	R d, t;
	if (fabs(a.re) > 20)
		return c_make(copysign((R)1, a.re), 4 * sin(a.im) * cos(a.im) * exp(-2 * fabs(a.re)));
	t = sinh(a.re);
	d = t * t + cos(a.im) * cos(a.im);
	return c_make(t * cosh(a.re) / d, sin(a.im) * cos(a.im) / d);
}
DEVICE T c_sin(T a) { return c_make(sin(a.re) * cosh(a.im), cos(a.re) * sinh(a.im)); }
DEVICE T c_cos(T a) { return c_make(cos(a.re) * cosh(a.im), -(sin(a.re) * sinh(a.im))); }
DEVICE T c_tan(T a) { T z = c_tanh(c_times_i(a)); return c_make(z.im, -z.re); }
// By Kahan, "Branch cuts for complex elementary functions" (1987).
DEVICE T c_asinh(T a) {
	T p = c_sqrt(c_make(1 - a.im, a.re)), q = c_sqrt(c_make(1 + a.im, -a.re));
	return c_make(asinh(q.re * p.im - q.im * p.re), atan2(a.im, p.re * q.re - p.im * q.im));
}
DEVICE T c_asin(T a) {
	T p = c_sqrt(c_make(1 - a.re, -a.im)), q = c_sqrt(c_make(1 + a.re, a.im));
	return c_make(atan2(a.re, p.re * q.re - p.im * q.im), asinh(p.re * q.im - p.im * q.re));
}
DEVICE T c_acos(T a) {
	T p = c_sqrt(c_make(1 - a.re, -a.im)), q = c_sqrt(c_make(1 + a.re, a.im));
	return c_make(2 * atan2(p.re, q.re), asinh(q.re * p.im - q.im * p.re));
}
DEVICE T c_acosh(T a) {
	T p = c_sqrt(c_make(a.re - 1, a.im)), q = c_sqrt(c_make(a.re + 1, a.im));
	return c_make(asinh(p.re * q.re + p.im * q.im), 2 * atan2(p.im, q.re));
}
DEVICE T c_atanh(T a) {
	R y = a.im * a.im, up = 1 + a.re, down = 1 - a.re;
	return c_make(log1p(4 * a.re / (down * down + y)) / 4, atan2(2 * a.im, down * up - y) / 2);
}
DEVICE T c_atan(T a) { T z = c_atanh(c_times_i(a)); return c_make(z.im, -z.re); }
DEVICE T c_log1p(T a) {
	R x = a.re * (2 + a.re) + a.im * a.im;
	return c_make(fabs(x) < (R)0.5 ? log1p(x) / 2 : log(hypot(1 + a.re, a.im)), atan2(a.im, 1 + a.re));
}
DEVICE T c_expm1(T a) {
	R s = sin(a.im / 2), e = expm1(a.re);
	return c_make(e * cos(a.im) - 2 * s * s, (e + 1) * sin(a.im));
}
DEVICE T c_sigmoid(T a) { return c_div(c_make(1, 0), c_add(c_make(1, 0), c_exp(c_neg(a)))); }
