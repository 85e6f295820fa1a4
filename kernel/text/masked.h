// Elements that a mask chooses: see MaskedFamily. i0 is the mask.
#ifdef COMPLEX
#define HERE(x) c_true(x)
#else
#define HERE(x) (x != 0)
#endif

#ifdef MASKED_COUNT
KERNEL void ENTRY(GLOBAL i64 *counts, GLOBAL const I0 *i0, I n LAYOUT) {
#else
KERNEL void ENTRY(GLOBAL const i64 *ends, GLOBAL const I0 *i0, GLOBAL O0 *o0, GLOBAL const I1 *i1, I n, I limit, I step,
    I column LAYOUT SIZES) {
#endif
	LOCAL I part[THREADS_OF_BLOCK];
	I first = (I)(BLOCK * THREADS + THREAD) * UNIT, found = 0;
	I last = n - first < UNIT ? n : first + UNIT;
	for (I i = first; i < last; i++) {
		OFFSETS(i)
		int here = HERE(IN0(i0[at0]));
		found += here;
	}
	part[THREAD] = found;
	BARRIER();
#ifdef MASKED_COUNT
	for (int k = THREADS / 2; k > 0; k /= 2) {
		if (THREAD < k)
			part[THREAD] += part[THREAD + k];
		BARRIER();
	}
	if (THREAD == 0)
		counts[BLOCK] = part[0];
#else
	I before = 0;
	for (int k = 1; k < THREADS; k *= 2) {
		I left = THREAD >= k ? part[THREAD - k] : 0;
		BARRIER();
		before += left;
		part[THREAD] = before + found;
		BARRIER();
	}
	I to = before + (BLOCK > 0 ? (I)ends[BLOCK - 1] : 0);
	for (I i = first; i < last; i++) {
		OFFSETS(i)
		int here = HERE(IN0(i0[at0]));
		if (!here || to >= limit)
			continue;
#if defined(NONZERO)
		I rest = i;
		INDEXES
#elif defined(MASKED_SELECT)
		o0[to * step] = i1[at1];
#else
		o0[at1] = i1[to * step];
#endif
		to++;
	}
#endif
}
