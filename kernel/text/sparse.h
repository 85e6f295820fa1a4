// Products of a sparse matrix with compressed rows and a dense one: see SparseFamily.
KERNEL void ENTRY(GLOBAL O0 *o, GLOBAL const I0 *starts, GLOBAL const I0 *places, GLOBAL const O0 *values,
    GLOBAL const O0 *b, GLOBAL const O0 *c, I rows, I columns, I depth, I elements, I os0, I os1, I bs0, I bs1, I cs0,
    I cs1, I ss, I ps, I vs, NUMBER alpha, NUMBER beta) {
	I g = (I)(BLOCK * THREADS + THREAD), row = g / columns, column = g % columns;
	if (row >= rows)
		return;
	i64 from = starts[row * ss], to = starts[(row + 1) * ss];
	if (from < 0 || to > elements)
		from = to = 0;
	T sum = ZERO;
	for (I j = (I)from; j < (I)to; j++) {
		i64 place = places[j * ps];
		if (place < 0 || place >= depth)
			continue;
		T x = VALUE(values[j * vs]), y = VALUE(b[(I)place * bs0 + column * bs1]);
		MULTIPLY_ADD(sum, x, y);
	}
#ifdef COMPLEX
	sum = c_mul(COMPUTED(alpha), sum);
#ifdef PLUS
	sum = c_add(sum, c_mul(COMPUTED(beta), VALUE(c[row * cs0 + column * cs1])));
#endif
#else
	sum = (T)(COMPUTED(alpha) * sum);
#ifdef PLUS
	sum = (T)(sum + COMPUTED(beta) * VALUE(c[row * cs0 + column * cs1]));
#endif
#endif
	o[row * os0 + column * os1] = OUT0(sum);
}
