// The part of a generator's sequence that a kernel has.
#ifdef STATE
#define LOAD_GENERATOR() \
	seed = state[0]; \
	block += state[1] / 4;
#else
#define LOAD_GENERATOR()
#endif
