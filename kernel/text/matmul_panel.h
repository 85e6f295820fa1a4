// A part of a matrix is copied to panels of so many lines, which are STEP apart, and ks elements, which are DEEP
// apart. The last panel repeats its last line.
for (I p = 0; p < COUNT; p += LINES) {
	LOCAL R *t = (LOCAL R *)TO + p * (DEPTH * PARTS);
	GLOBAL const FROM_TYPE *f = FROM + (START + p * STEP);
	I last = COUNT - p - 1, k = 0;
	if (last > LINES - 1)
		last = LINES - 1;
#ifdef COPY
	if (last == LINES - 1 && STEP == 1)
		for (; k < ks; k++) {
			COPY
		}
	else if (last == LINES - 1 && DEEP == 1)
		for (; k <= ks - SIDE; k += SIDE)
			for (int r = 0; r < LINES; r += SIDE) {
#if SIDE == 4
				VECTOR_OF(4) v0 = vload4(0, f + (r + 0) * STEP + k);
				VECTOR_OF(4) v1 = vload4(0, f + (r + 1) * STEP + k);
				VECTOR_OF(4) v2 = vload4(0, f + (r + 2) * STEP + k);
				VECTOR_OF(4) v3 = vload4(0, f + (r + 3) * STEP + k);
				vstore4((VECTOR_OF(4))(v0.s0, v1.s0, v2.s0, v3.s0), 0, t + (k + 0) * LINES + r);
				vstore4((VECTOR_OF(4))(v0.s1, v1.s1, v2.s1, v3.s1), 0, t + (k + 1) * LINES + r);
				vstore4((VECTOR_OF(4))(v0.s2, v1.s2, v2.s2, v3.s2), 0, t + (k + 2) * LINES + r);
				vstore4((VECTOR_OF(4))(v0.s3, v1.s3, v2.s3, v3.s3), 0, t + (k + 3) * LINES + r);
#else
				VECTOR_OF(2) v0 = vload2(0, f + (r + 0) * STEP + k);
				VECTOR_OF(2) v1 = vload2(0, f + (r + 1) * STEP + k);
				vstore2((VECTOR_OF(2))(v0.s0, v1.s0), 0, t + (k + 0) * LINES + r);
				vstore2((VECTOR_OF(2))(v0.s1, v1.s1), 0, t + (k + 1) * LINES + r);
#endif
			}
#else
	if (last == LINES - 1 && STEP == 1)
		for (; k < ks; k++)
			for (int r = 0; r < LINES; r++) {
				ELEMENT(LOADED(f[k * DEEP + r]))
			}
#endif
	AS_IT_IS // what is left
	for (int r = 0; r < LINES; r++) {
		GLOBAL const FROM_TYPE *g = f + (r < last ? r : last) * STEP;
		I from = k;
		AS_IT_IS
		for (I k = from; k < ks; k++) {
			ELEMENT(LOADED(g[k * DEEP]))
		}
	}
}
#undef ELEMENT
#undef COUNT
#undef LINES
#undef STEP
#undef DEEP
#undef TO
#undef FROM
#undef FROM_TYPE
#undef START
#undef COPY
#undef SIDE
#undef LOADED
