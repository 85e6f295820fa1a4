// Steps of a vector's lanes for the numbers i from `at` to before `to`. Each has four accumulators, so that an element
// doesn't wait for the one before it.
#define STEP_OF(k, a) \
	{ \
		I i = at + k * THREADS_OF_BLOCK + THREAD; \
		STEP(a) \
	}
for (; to - at >= 4 * THREADS_OF_BLOCK; at += 4 * THREADS_OF_BLOCK) {
	STEP_OF(0, a)
	STEP_OF(1, a1)
	STEP_OF(2, a2)
	STEP_OF(3, a3)
}
for (; to - at >= THREADS_OF_BLOCK; at += THREADS_OF_BLOCK)
	STEP_OF(0, a)
if (THREAD < to - at)
	STEP_OF(0, a)
