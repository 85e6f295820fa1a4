// From and to: the first and the last element of the result in whose windows elements low to high of the input are.
#ifdef ADAPTIVE
#define WINDOWS_OF(k, low, high) \
	I from##k, to##k; \
	from##k = low * g.out[k] / g.in[k]; \
	to##k = ((high + 1) * g.out[k] - 1) / g.in[k];
#else
#define WINDOWS_OF(k, low, high) \
	I from##k, to##k; \
	from##k = low + g.padding[k] - (g.window[k] - 1) * g.dilation[k]; \
	from##k = from##k <= 0 ? 0 : (from##k - 1) / STRIDE_##k + 1; \
	to##k = (high + g.padding[k]) / STRIDE_##k; \
	to##k = to##k < g.out[k] ? to##k : g.out[k] - 1;
#endif
