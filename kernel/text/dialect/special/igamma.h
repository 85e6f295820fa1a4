// The regularized incomplete gamma functions are a power series (DLMF 8.7.1, 8.7.3) or a continued fraction (8.9.2),
// whichever converges. Their factor is
// x^a exp(-x) / Gamma(a + 1), of a large a by Stirling's series (DLMF 5.11.1), so that nothing large is subtracted.
DEVICE T t_igamma_front(T a, T x) {
	T mu = (x - a) / a, z = 1 / (a * a), e;
	if (a < 10)
		return exp(a * log(x) - x - lgamma(a + 1));
	e = fabs(mu) < (T)0.4 ? a * (log1p(mu) - mu) : a * log(x / a) + a - x;
	z = ((T)(1.0 / 12) - z * ((T)(1.0 / 360) - z * ((T)(1.0 / 1260) - z * ((T)(1.0 / 1680) - z * (T)(1.0 / 1188))))) / a;
	return exp(e - z) / sqrt(2 * PI * a);
}
DEVICE T t_igamma_series(T a, T x) {
	T term = 1, sum = 1;
	for (int k = 1; k < 32768 && term > sum * T_EPSILON / 2; k++) {
		term *= x / (a + (T)k);
		sum += term;
	}
	return t_igamma_front(a, x) * sum;
}
DEVICE T t_igammac_small(T a, T x) {
	T power = a * log(x) - lgamma(a + 1), term = 1, sum = 0;
	for (int k = 1; k < 100; k++) {
		term *= -x / (T)k;
		sum += term / (a + (T)k);
		if (fabs(term) < T_EPSILON / 2 * fabs(sum))
			break;
	}
	return -expm1(power) - exp(power) * a * sum;
}
DEVICE T t_igammac_fraction(T a, T x) {
	T b = x + 1 - a, c = (T)1e30, d = 1 / b, h = d;
	for (int k = 1; k < 32768; k++) {
		T m = -(T)k * ((T)k - a), step;
		b += 2;
		d = m * d + b;
		d = fabs(d) < (T)1e-30 ? (T)1e30 : 1 / d;
		c = b + m / c;
		c = fabs(c) < (T)1e-30 ? (T)1e-30 : c;
		step = d * c;
		h *= step;
		if (fabs(step - 1) < T_EPSILON)
			break;
	}
	return t_igamma_front(a, x) * a * h;
}
// The lower one, or the upper one.
DEVICE T t_igamma(T a, T x, int upper) {
	if (a < 0 || x < 0 || a == 0 && !(x > 0) || isinf(a) && isinf(x))
		return (T)NAN;
	if (x == 0 || isinf(a))
		return upper ? (T)1 : (T)0;
	if (a == 0 || isinf(x))
		return upper ? (T)0 : (T)1;
	if (isnan(a) || isnan(x))
		return (T)NAN;
	if (x > (T)1.1 && x > a) {
		T q = t_igammac_fraction(a, x);
		return upper ? q : 1 - q;
	}
	if (upper && x <= (T)1.1 && (x <= (T)0.5 ? (T)-0.4 / log(x) >= a : x * (T)1.1 >= a))
		return t_igammac_small(a, x);
	T p = t_igamma_series(a, x);
	return upper ? 1 - p : p;
}
