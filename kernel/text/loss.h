// Negative log-likelihoods: see LossFamily.
#define WEIGHT(k) (weight ? IN1(weight[(k)*wstep]) : (T)1)

#ifdef BACKWARD
KERNEL void ENTRY(GLOBAL I1 *x, GLOBAL const I0 *t, GLOBAL const O0 *y, GLOBAL const I1 *weight, GLOBAL const I1 *total,
    GLOBAL i32 *bad, I n, I classes, I step, I wstep, i64 ignore, T smoothing LAYOUT) {
	// neighbouring threads write neighbouring elements, whichever dimension they are in
	I g = (I)(BLOCK * THREADS + THREAD), i = step == 1 ? g / classes : g % n, k = step == 1 ? g % classes : g / n;
	if (i >= n || k >= classes)
		return;
	OFFSETS(i)
	i64 to = t[at1];
	int counts = to != ignore && to >= 0 && to < classes;
	T r = 0;
	if (counts) {
		r = to == k ? (1 - smoothing) * WEIGHT(k) : (T)0;
		if (smoothing != 0)
			r += smoothing / (T)classes * WEIGHT(k);
		r *= -LOSS(y[at2]);
		if (total)
			r /= IN1(*total);
	}
	x[at0 + k * step] = CLASS(r);
}

#else
KERNEL void ENTRY(GLOBAL const I1 *x, GLOBAL const I0 *t, GLOBAL O0 *y, GLOBAL const I1 *weight, GLOBAL T *weights,
    GLOBAL i32 *bad, I n, I classes, I step, I wstep, i64 ignore, T smoothing LAYOUT) {
	I i = (I)(BLOCK * THREADS + THREAD);
	if (i >= n)
		return;
	OFFSETS(i)
	i64 to = t[at1];
	int counts = to != ignore && to >= 0 && to < classes;
	T r = 0;
	T u = 0;
	if (counts) {
		u = WEIGHT((I)to);
		r = -u * IN1(x[at0 + (I)to * step]);
		if (smoothing != 0) {
			T sum = 0;
			for (I k = 0; k < classes; k++)
				sum += WEIGHT(k) * IN1(x[at0 + k * step]);
			r = (1 - smoothing) * r - smoothing / (T)classes * sum;
		}
	} else if (to != ignore && bad)
		*bad = 1;
	y[at2] = OUT0(r);
	if (weights)
		weights[i] = u;
}
#endif
