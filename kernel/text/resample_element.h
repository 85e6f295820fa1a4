// An element of the result. VALUE_0 and so on are what is added in a dimension: sums of the next one, or elements.
#if DIMS == 1
#define VALUE_0 VALUE
#elif DIMS == 2
#define VALUE_0 v1
#define VALUE_1 VALUE
#else
#define VALUE_0 v1
#define VALUE_1 v2
#define VALUE_2 VALUE
#endif
#if defined(BACKWARD)
#define VALUE IN0(i0[OFFSET_OUT(x)])
#ifdef MOST // the same for the lanes of a vector
#define CANDIDATE_OF(k) \
	I low##k = r_low(a##k, u##k), high##k = r_high(a##k, u##k); \
	for (I t##k = 0; t##k < r_most(a##k); t##k++) { \
		I x##k = low##k + t##k; \
		if (x##k > high##k) \
			continue;
#else
#define CANDIDATE_OF(k) \
	for (I t##k = r_low(a##k, u##k); t##k <= r_high(a##k, u##k); t##k++) { \
		I x##k = r_place(a##k, u##k, t##k);
#endif
#define OPEN(k) \
	T v##k = ZERO; \
	CANDIDATE_OF(k) \
	S w##k = x##k < 0 || x##k >= a##k.out ? 0 : r_share(a##k, x##k, u##k); \
	if (w##k == 0) \
		continue;
#ifdef PLAIN
#define SHUT(k) \
	ADD_TO(v##k, VALUE_##k); \
	}
#else
#define SHUT(k) \
	v##k += w##k * VALUE_##k; \
	}
#endif
EACH_DIM(OPEN)
EACH_DIM_BACK(SHUT)
o0[OFFSET_IN(u)] = OUT0(v0);
#elif defined(PLAIN)
#define PLACE(k) I x##k = r_index(a##k, u##k, 0);
EACH_DIM(PLACE)
o0[OFFSET_OUT(u)] = i0[OFFSET_IN(x)];
#elif defined(EVEN) // the sum of a window, which then is divided
#define WEIGH(k) v *= r_weight(a##k, u##k, 0);
T v = 0;
EACH_DIM(WINDOW)
v += IN0(i0[OFFSET_IN(x)]);
EACH_DIM(CLOSE)
EACH_DIM(WEIGH)
o0[OFFSET_OUT(u)] = OUT0(v);
#elif defined(FIXED) // places and weights are computed once in each dimension
#define VALUE IN0(i0[OFFSET_IN(x)])
#define TAP(k, t) \
	I x##k##_##t = r_index(a##k, u##k, t); \
	T w##k##_##t = r_weight(a##k, u##k, t);
#if FIXED == 2
#define TAPS_OF(k) TAP(k, 0) TAP(k, 1)
#else
#define TAPS_OF(k) TAP(k, 0) TAP(k, 1) TAP(k, 2) TAP(k, 3)
#endif
EACH_DIM(TAPS_OF)
SUMS
o0[OFFSET_OUT(u)] = OUT0(v0);
#else // any number of elements
#define VALUE IN0(i0[OFFSET_IN(x)])
#define OPEN(k) \
	T v##k = 0; \
	for (I t##k = 0; t##k < r_taps(a##k, u##k); t##k++) { \
		I x##k = r_index(a##k, u##k, t##k); \
		T w##k = r_weight(a##k, u##k, t##k);
#define SHUT(k) \
	v##k += w##k * VALUE_##k; \
	} \
	v##k /= r_total(a##k, u##k);
EACH_DIM(OPEN)
EACH_DIM_BACK(SHUT)
o0[OFFSET_OUT(u)] = OUT0(v0);
#endif
