#define AXIS(k) \
	axis a##k; \
	a##k.in = g.in[k]; \
	a##k.out = g.out[k]; \
	a##k.stride = g.stride[k]; \
	a##k.padding = g.padding[k]; \
	a##k.window = g.window[k]; \
	a##k.scale = scale##k;
EACH_DIM(AXIS)
