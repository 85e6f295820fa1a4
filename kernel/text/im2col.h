// An element of the columns, or of images that columns are added to.
T v = ZERO;
#ifdef BACKWARD
#define OPEN(k) \
	for (I t##k = 0; t##k < g.window[k]; t##k++) { \
		I x##k = u##k + g.padding[k] - t##k * g.dilation[k]; \
		if (x##k < 0 || x##k % STRIDE_##k != 0 || x##k / STRIDE_##k >= g.out[k]) \
			continue; \
		x##k /= STRIDE_##k;
// clang-format off
#define MORE(k) + t##k * g.more_steps[k]
// clang-format on
EACH_DIM(OPEN)
ADD_TO(v, IN0(i0[OFFSET_OUT(x) EACH_DIM(MORE)]));
EACH_DIM(CLOSE)
o0[OFFSET_IN(u)] = OUT0(v);
#else
#define OPEN(k) for (I t##k = 0; t##k < g.window[k]; t##k++) {
#define PLACE(k) I x##k = u##k * STRIDE_##k - g.padding[k] + t##k * g.dilation[k];
// clang-format off
#define INSIDE(k) && (U)x##k < (U)g.in[k]
#define MORE(k) + t##k * g.more_steps[k]
// clang-format on
EACH_DIM(OPEN)
EACH_DIM(PLACE)
v = ZERO;
if (1 EACH_DIM(INSIDE))
	v = IN0(i0[OFFSET_IN(x)]);
o0[OFFSET_OUT(u) EACH_DIM(MORE)] = OUT0(v);
EACH_DIM(CLOSE)
#endif
