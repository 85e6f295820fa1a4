// Tables of coefficients, and what is computed of them.
#ifdef __OPENCL_VERSION__
#define TABLE __constant T
#define TABLE_ARGUMENT __constant T *
#else
#define TABLE static __device__ const T
#define TABLE_ARGUMENT const T *
#endif
#define T_EPSILON (sizeof(T) == 4 ? (T)1.1920929e-7 : (T)2.220446049250313e-16)
// The n coefficients of a polynomial, that of the largest power first.
DEVICE T t_horner(TABLE_ARGUMENT c, int n, T x) {
	T y = c[0];
	for (int k = 1; k < n; k++)
		y = y * x + c[k];
	return y;
}
// The n coefficients of a Chebyshev series, the last one first, by Clenshaw's recurrence; x is twice the argument.
DEVICE T t_chebyshev_sum(TABLE_ARGUMENT c, int n, T x) {
	T a = c[0], p = 0, q = 0;
	for (int k = 1; k < n; k++) {
		p = q;
		q = a;
		a = x * q - p + c[k];
	}
	return (a - p) / 2;
}
