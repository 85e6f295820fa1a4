// Images at places that a tensor says: see GridFamily.
// The place in an image of size elements of a number x from -1 to 1, and its derivative by x. lost is NaN if that place
// isn't finite, and otherwise 0. Within borders a place that is NaN becomes a number, as on PyTorch's CPU, whose loops
// over volumes aren't those over images.
#if DIMS == 2
#define UNDEFINED 0
#elif defined(SAMPLE)
#define UNDEFINED size - 1
#else
#define UNDEFINED x
#endif
DEVICE T g_clip(T x, T size, T *slope) {
	if (isnan(x)) {
		*slope = 0;
		return UNDEFINED;
	}
	if (x <= 0) {
		*slope = 0;
		return 0;
	}
	if (x >= size - 1) {
		*slope = 0;
		return size - 1;
	}
	return x;
}
DEVICE T g_reflect(T x, T low, T span, T *slope) {
	T flips, rest;
	if (span == 0) {
		*slope = 0;
		return 0;
	}
	x -= low;
	if (x < 0) {
		x = -x;
		*slope = -*slope;
	}
	flips = floor(x / span);
	rest = fmod(x, span);
	if (fmod(flips, (T)2) == 0)
		return rest + low;
	*slope = -*slope;
	return span - rest + low;
}
DEVICE T g_place(T x, T size, T *slope, T *lost) {
#ifdef CORNERS
	*slope = (size - 1) / 2;
	x = (x + 1) / 2 * (size - 1);
	*lost = x - x;
#ifdef REFLECTION
	x = g_reflect(x, 0, size - 1, slope);
#endif
#else
	*slope = size / 2;
	x = ((x + 1) * size - 1) / 2;
	*lost = x - x;
#ifdef REFLECTION
	x = g_reflect(x, (T)-0.5, size, slope);
#endif
#endif
#if defined(BORDER) || defined(REFLECTION)
	x = g_clip(x, size, slope);
#endif
	return x > (T)-1e9 && x < (T)1e9 ? x : (T)-100;
}

// The elements around the place, their weights, and the derivatives of those.
// clang-format off
#define INSIDE_K(d) && (U)k##d < (U)g.in[d]
#define INSIDE(k) && (U)j##k < (U)g.in[k]
#define AT_K(d) + k##d * g.in_steps[d]
#define AT(k) + j##k * g.in_steps[k]
#define STEP_OUT(k) + u##k * g.out_steps[k]
#define STEP_GRID(k) + u##k * g.grid_steps[k]
#define STEP_RESULT(k) + u##k * g.result_steps[k]
#define COUNT(k) * g.out[k]
// clang-format on
#define HERE out EACH_DIM(STEP_OUT)
#ifdef NEAREST
#define CORNER if (1 EACH_DIM(INSIDE_K)) {
#define END_OF_CORNER }
#define OFFSET in EACH_DIM(AT_K)
#define WEIGHT 1
#else
#define NUMBER_OF_CORNER(k) int b##k = t >> (DIMS - 1 - k) & 1;
#define ELEMENT_OF_CORNER(d) \
	I j##d = k##d + b##d; \
	T w##d = b##d ? p##d : 1 - p##d;
#define CORNER \
	for (int t = 0; t < 1 << DIMS; t++) { \
		EACH_DIM(NUMBER_OF_CORNER) \
		EACH_DIM(ELEMENT_OF_CORNER) \
		if (1 EACH_DIM(INSIDE)) {
#define END_OF_CORNER \
	} \
	}
#define OFFSET in EACH_DIM(AT)
// clang-format off
#if DIMS == 2
#define WEIGHT w0 * w1
#define OTHERS_0 w1
#define OTHERS_1 w0
#else
#define WEIGHT w0 * w1 * w2
#define OTHERS_0 w1 * w2
#define OTHERS_1 w0 * w2
#define OTHERS_2 w0 * w1
#endif
// clang-format on
#define SLOPE(k) (b##k ? 1 : -1) * OTHERS_##k
#endif
// Where there's nothing outside, the weights of an image's elements are NaN at a place that isn't finite.
#if DIMS == 2 && !defined(NEAREST) && !defined(BORDER) && !defined(REFLECTION)
#define START_0 lost1
#define START_1 lost0
#define START lost1 + lost0
#else
#define START_0 0
#define START_1 0
#define START_2 0
#define START 0 + 0 + 0
#endif

KERNEL void ENTRY(POINTERS, images g) {
#define COORDINATE(k) I u##k = 0;
	I rest = (I)(BLOCK * THREADS + THREAD), up, c = 0;
	EACH_DIM(COORDINATE)
#if defined(SAMPLE) || defined(SCATTER)
	if (rest >= g.batch * g.channels EACH_DIM(COUNT))
		return;
#elif defined(INPUT)
	if (rest >= g.batch * g.channels)
		return;
#else
	if (rest >= g.batch EACH_DIM(COUNT))
		return;
#endif
#define COLUMN(k) SPLIT(u##k, g.out[k])
#ifndef INPUT
	EACH_DIM_BACK(COLUMN)
#endif
#ifndef GRID
	SPLIT(c, g.channels)
#endif
	I in = rest * g.in_batch + c * g.in_channel, out = rest * g.out_batch + c * g.out_channel;
#ifdef INPUT
#define OPEN(k) for (u##k = 0; u##k < g.out[k]; u##k++) {
	EACH_DIM(OPEN)
#endif
	I at = rest * g.grid_batch EACH_DIM(STEP_GRID);
	// the last dimension has the place's first number
#define SAMPLED(k) \
	T slope##k, lost##k, \
	    x##k = g_place(NUMBER_OF(PLACES_AT[at + (DIMS - 1 - k) * g.grid_part]), (T)g.in[k], &slope##k, &lost##k);
	EACH_DIM(SAMPLED)
#ifdef NEAREST
#define ROUND(d) I k##d = (I)rint(x##d);
#else
#define ROUND(d) \
	I k##d = (I)floor(x##d); \
	T p##d = x##d - (T)k##d;
#endif
	EACH_DIM(ROUND)
#if defined(SAMPLE)
	T v = START;
	CORNER
	v += IN0(i0[OFFSET]) * (WEIGHT);
	END_OF_CORNER
	o0[HERE] = OUT0(v);
#elif defined(INPUT)
	T v = IN0(i0[HERE]);
	CORNER
	I to = OFFSET;
	T sum = NUMBER_OF(o0[to]) + v * (WEIGHT);
	o0[to] = OUT0(sum);
	END_OF_CORNER
	EACH_DIM(CLOSE)
#elif defined(SCATTER)
	T v = IN0(i0[HERE]);
	CORNER
	ADD_AT(&o0[OFFSET], v * (WEIGHT));
	END_OF_CORNER
#else
#define SUM(k) T sum##k = START_##k;
	EACH_DIM(SUM)
#ifndef NEAREST // whose gradient by the place is 0, beside infinite numbers too
	for (c = 0; c < g.channels; c++) {
		T v = IN0(i0[HERE]);
		CORNER
		T x = v * IN1(i1[OFFSET]);
#define ADD_SLOPE(k) sum##k += x * (SLOPE(k));
		EACH_DIM(ADD_SLOPE)
		END_OF_CORNER
		in += g.in_channel;
		out += g.out_channel;
	}
#endif
	at = rest * g.result_batch EACH_DIM(STEP_RESULT);
#define RESULT(k) o0[at + (DIMS - 1 - k) * g.result_part] = OUT0((sum##k * slope##k));
	EACH_DIM(RESULT)
#endif
}
