// Distances of rows: see DistanceFamily. NORM is one of the forms there.
#ifdef BACKWARD
KERNEL void ENTRY(POINTERS, I count, I n, I step0, I step1, I step2, I step3, T p LAYOUT) {
#else
KERNEL void ENTRY(POINTERS, I count, I n, I step0, I step1, T p LAYOUT) {
#endif
	I i = (I)(BLOCK * THREADS + THREAD);
	if (i >= count)
		return;
	OFFSETS(i)
	T r = 0;
	for (I j = 0; j < n; j++) {
		T d = IN0(i0[at1 + j * step0]) - IN1(i1[at2 + j * step1]), size = fabs(d);
#ifdef BACKWARD
		T g = IN2(i2[at3 + j * step2]), far = IN3(i3[at4 + j * step3]);
		T sign = (T)((d > 0) - (d < 0));
#if NORM == NORM_P
		if (far != 0 && d != 0)
			r += sign * pow(size, p - 1) * g / pow(far, p - 1);
#elif NORM == NORM_1
		r += sign * g;
#elif NORM == NORM_2
		if (far != 0)
			r += g * d / far;
#elif NORM == NORM_INF
		if (size == far)
			r += sign * g;
#endif
	}
#else
#if NORM == NORM_P
		r += pow(size, p);
#elif NORM == NORM_0
		r += isnan(d) ? d : (T)(d != 0);
#elif NORM == NORM_1
		r += size;
#elif NORM == NORM_2
		r += d * d;
#else
		r = isnan(size) || size > r ? size : r;
#endif
	}
#if NORM == NORM_P
	r = pow(r, 1 / p);
#elif NORM == NORM_2
	r = sqrt(r);
#endif
#endif
	o0[at0] = OUT0(r);
}
