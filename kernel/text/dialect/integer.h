// Functions of integers T. A division that the processor would refuse has a result: by 0 it's 0.
#define T_LOWEST ((T)-1 < 0 ? (T)((u64)1 << (8 * sizeof(T) - 1)) : (T)0)
#define T_HIGHEST ((T)~T_LOWEST)
DEVICE T t_max(T a, T b) { return a > b ? a : b; }
DEVICE T t_min(T a, T b) { return a < b ? a : b; }
DEVICE T t_div(T a, T b) {
	if (b == 0)
		return 0;
	if ((T)-1 < 0 && b == (T)-1)
		return (T)(0 - (u64)a);
	return a / b;
}
DEVICE T t_fmod(T a, T b) { return b == 0 || ((T)-1 < 0 && b == (T)-1) ? 0 : a % b; }
DEVICE T t_floor_div(T a, T b) {
	T q = t_div(a, b), r = t_fmod(a, b);
	return r != 0 && (r < 0) != (b < 0) ? q - 1 : q;
}
DEVICE T t_remainder(T a, T b) {
	T r = t_fmod(a, b);
	return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
DEVICE T t_pow(T a, T b) {
	T r = 1;
	if (b < 0)
		return a == 1 ? 1 : (T)-1 < 0 && a == (T)-1 ? (b % 2 == 0 ? 1 : (T)-1) : 0;
	for (; b > 0; b /= 2) {
		if (b % 2 != 0)
			r *= a;
		a *= a;
	}
	return r;
}
DEVICE T t_gcd(T a, T b) {
	if (a < 0)
		a = -a;
	if (b < 0)
		b = -b;
	while (a != 0) {
		T c = a;
		a = t_fmod(b, a);
		b = c;
	}
	return b;
}
DEVICE T t_lcm(T a, T b) {
	T g = t_gcd(a, b), r = g == 0 ? 0 : t_div(a, g) * b;
	return r < 0 ? -r : r;
}
// The bits of T, beyond which a shift has no result in C.
DEVICE T t_shl(T a, T b) { return b < 0 || (u64)b >= 8 * sizeof(T) ? 0 : (T)((u64)a << b); }
DEVICE T t_shr(T a, T b) {
	if (b < 0 || (u64)b >= 8 * sizeof(T))
		return a < 0 ? (T)-1 : 0;
	return a >> b;
}
