// Loops over the elements x0, x1 and x2 of the window of element u0, u1 and u2 of the result. CLOSE ends one.
#ifdef ADAPTIVE
#define WINDOW(k) \
	I to##k = ((u##k + 1) * g.in[k] - 1) / g.out[k] + 1; \
	for (I x##k = u##k * g.in[k] / g.out[k]; x##k < to##k; x##k++) {
#else
#define WINDOW(k) \
	for (I t##k = 0; t##k < g.window[k]; t##k++) { \
		I x##k = u##k * STRIDE_##k - g.padding[k] + t##k * g.dilation[k]; \
		if ((U)x##k >= (U)g.in[k]) \
			continue;
#endif
