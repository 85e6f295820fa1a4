// The part of a generator's sequence that a kernel has.
#ifdef STATE
#define GENERATOR u64 seed, u64 block, GLOBAL const u64 *state
#define LOAD_GENERATOR() \
	seed = state[0]; \
	block += state[1] / 4;
#else
#define GENERATOR u64 seed, u64 block
#define LOAD_GENERATOR()
#endif
