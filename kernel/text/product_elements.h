// A thread or a block computes an element.
KERNEL void ENTRY(POINTERS, product g) {
	I channels = g.groups * g.rows, channel, up, group, row;
	I elements = g.outer * channels;
#define ELEMENTS(k) elements *= g.columns[k];
	EACH_DIM(ELEMENTS)
#ifdef PRODUCT_THREADS
	I rest = (I)(BLOCK * THREADS + THREAD);
	if (rest >= elements)
		return;
#else
	LOCAL T part[THREADS_OF_BLOCK];
	I rest = (I)BLOCK;
#endif
#ifdef CHANNELS_LAST
	SPLIT(channel, channels)
#endif
#define COLUMN(k) \
	I u##k; \
	SPLIT(u##k, g.columns[k])
	EACH_DIM_BACK(COLUMN)
#ifndef CHANNELS_LAST
	SPLIT(channel, channels)
#endif
	group = channel / g.rows;
	row = channel - group * g.rows;
	I a = group * g.a_group + row * g.a_row, b = group * g.b_group + rest * g.b_outer;
	I o = group * g.o_group + row * g.o_row + rest * g.o_outer;
#define START(k) \
	I c##k = u##k * g.column_step[k] + g.column_start[k] + g.depth_start[k]; \
	o += u##k * g.o_steps[k];
	EACH_DIM(START)
	T v = ZERO;
#define ADD_PRODUCT MULTIPLY_ADD(v, IN0(i0[a + q * g.a_deep EACH_DIM(IN_A)]), IN1(i1[b + q * g.b_deep EACH_DIM(IN_B)]));
#ifdef PRODUCT_THREADS
#ifdef DIVIDED
#define DIVIDE(k) \
	if (x##k < 0 || x##k % g.divisor[k] != 0) \
		continue; \
	x##k /= g.divisor[k];
#else
#define DIVIDE(k)
#endif
#define OPEN(k) \
	for (I t##k = 0; t##k < g.depth[k]; t##k++) { \
		I x##k = c##k + t##k * g.depth_step[k]; \
		DIVIDE(k) \
		if ((U)x##k >= (U)g.limits[k]) \
			continue;
	for (I q = 0; q < g.deep; q++) {
		EACH_DIM(OPEN)
		ADD_PRODUCT
		EACH_DIM(CLOSE)
	}
#else
	I depth = g.deep;
#define DEPTH(k) depth *= g.depth[k];
	EACH_DIM(DEPTH)
	// The digits of a thread's first number, and of the step to its next one, are divided once, and then added.
	I q = 0;
	EACH_DIM(DIGIT)
	I step_q = 0;
	EACH_DIM(STEP_DIGIT)
	if (depth > 0) {
		rest = THREAD;
		DEPTH_DIGITS
		rest = THREADS;
		STEP_DIGITS
	}
	for (I k = THREAD; k < depth; k += THREADS) {
#define PLACE(k) I x##k = c##k + t##k * g.depth_step[k];
		EACH_DIM(PLACE)
		if (1 EACH_DIM(INSIDE))
			ADD_PRODUCT
#define CARRY(digit, size) \
	digit += step_##digit; \
	digit += up; \
	up = digit >= size; \
	digit -= up ? size : 0;
#define CARRY_DEPTH(k) CARRY(t##k, g.depth[k])
		up = 0;
#ifdef DEEP_INSIDE
		CARRY(q, g.deep)
		EACH_DIM_BACK_BUT_0(CARRY_DEPTH)
		t0 += step_t0;
		t0 += up;
#else
		EACH_DIM_BACK(CARRY_DEPTH)
		q += step_q;
		q += up;
#endif
	}
	part[THREAD] = v;
	BARRIER();
	for (int k = THREADS / 2; k > 0; k /= 2) {
		if (THREAD < k)
			ADD_TO(part[THREAD], part[THREAD + k]);
		BARRIER();
	}
	if (THREAD != 0)
		return;
	v = part[0];
#endif
	RESULT(o)
}
