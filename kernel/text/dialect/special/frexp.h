// The parts of a number: a fraction in [1/2, 1), and a power of 2. Infinity and NaN are their own fractions.
DEVICE T t_fraction(T x) {
	int power;
	return isnan(x) || isinf(x) ? x : frexp(x, &power);
}
DEVICE T t_power(T x) {
	int power = 0;
	if (!(isnan(x) || isinf(x)))
		frexp(x, &power);
	return (T)power;
}
