// Orthogonal polynomials of degree n, by the recurrences of DLMF 18.9. A degree that is no number counts as negative.
DEVICE i64 t_degree(T n) { return n > -1 && n < (T)9e18 ? (i64)n : -1; }
// Chebyshev polynomials of the kinds T, U, V and W (0 to 3); in (-1, 1) by the angle (DLMF 18.5).
DEVICE T t_chebyshev(T x, T degree, int kind) {
	i64 n = t_degree(degree);
	T even = n % 2 == 0 ? (T)1 : (T)-1, p = 1, q = kind == 0 ? x : x + x + (T)(kind == 2 ? -1 : kind == 3 ? 1 : 0);
	if (n < 0)
		return 0;
	if (fabs(x) == 1) {
		T sign = x > 0 ? (T)1 : even;
		if (kind == 1)
			return sign * (T)(n + 1);
		return kind == 2 && x < 0 || kind == 3 && x > 0 ? sign * (T)(2 * n + 1) : sign;
	}
	if (n > (kind == 0 ? 6 : 8) && fabs(x) < 1) {
		T t = acos(x);
		if (kind == 0)
			return cos((T)n * t);
		if (kind == 1)
			return sin((T)(n + 1) * t) / sin(t);
		if (kind == 2)
			return cos(((T)n + (T)0.5) * t) / cos(t / 2);
		return sin(((T)n + (T)0.5) * t) / sin(t / 2);
	}
	if (n == 0)
		return 1;
	for (i64 k = 2; k <= n && !isnan(q); k++) {
		T r = (x + x) * q - p;
		p = q;
		q = r;
	}
	return q;
}
// Hermite polynomials: of the physicists with step 2, of the probabilists with step 1.
DEVICE T t_hermite(T x, T degree, int step) {
	i64 n = t_degree(degree);
	T p = 1, q = step == 2 ? x + x : x, y = q;
	if (n < 0)
		return 0;
	if (n == 0)
		return 1;
	if (n > (sizeof(T) == 4 ? 128 : 512))
		return (T)NAN;
	for (i64 k = 1; k < n; k++) {
		T r = y * q - (T)(step * k) * p;
		p = q;
		q = r;
	}
	return q;
}
DEVICE T t_laguerre(T x, T degree) {
	i64 n = t_degree(degree);
	T p = 1, q = 1 - x;
	if (n < 0)
		return 0;
	if (n == 0 || x == 0)
		return 1;
	for (i64 k = 1; k < n && !isnan(q); k++) {
		T r = (((T)(k + k) + (1 - x)) * q - (T)k * p) / (T)(k + 1);
		p = q;
		q = r;
	}
	return q;
}
DEVICE T t_legendre(T x, T degree) {
	i64 n = t_degree(degree);
	T p = 1, q = x;
	if (n < 0)
		return 0;
	if (n == 0 || x == 1)
		return 1;
	if (x == -1)
		return n % 2 == 0 ? (T)1 : (T)-1;
	for (i64 k = 1; k < n && !isnan(q); k++) {
		T r = ((T)(k + k + 1) * x * q - (T)k * p) / (T)(k + 1);
		p = q;
		q = r;
	}
	return q;
}
