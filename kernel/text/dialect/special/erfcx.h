// exp(x^2) erfc(x): as written for small x, and by Laplace's continued fraction (DLMF 7.9.1) for others.
DEVICE T t_erfcx(T x) {
	T y = fabs(x), z = x * x, r;
	if (isnan(x))
		return x;
	if (y < 3) {
		r = exp(z) * erfc(y);
	} else if (y < 50) {
		T f = y;
		for (int k = 30; k > 0; k--)
			f = y + (T)0.5 * (T)k / f;
		r = (T)0.56418958354775628695 / f;
	} else if (y > (T)5e7) {
		r = (T)0.56418958354775628695 / y;
	} else {
		r = (T)0.56418958354775628695 * (z * (z + (T)4.5) + 2) / (y * (z * (z + 5) + (T)3.75));
	}
	return x < 0 ? 2 * exp(z) - r : r;
}
DEVICE T t_log_ndtr(T x) {
	T t = x * (T)0.70710678118654752440;
	return x < -1 ? log(t_erfcx(-t) / 2) - t * t : log1p(-erfc(t) / 2);
}
