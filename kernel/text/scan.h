// Sums and their like of each element of a row and those before: see ScanFamily. A row is a thread's, or a block's.
KERNEL void ENTRY(POINTERS, I rows, I n STEPS LAYOUT) {
#ifdef ROW_OF_THREAD
	I row = (I)(BLOCK * THREADS + THREAD);
	if (row >= rows)
		return;
#else
	LOCAL A part[THREADS_OF_BLOCK];
	I row = (I)BLOCK;
#endif
	PLACES(row)
#ifdef ROW_OF_THREAD
	A a = r_init();
	for (I i = 0; i < n; i++) {
		a = r_step(a, VALUE, i);
		WRITE
	}
#else
	// A block takes as many elements as it has threads at a time. Before each are those 1, 2, 4 and so on places back.
	A before = r_init();
	for (I base = 0; base < n; base += THREADS) {
		I i = base + THREAD;
		A a = r_init(), left;
		if (i < n)
			a = r_step(a, VALUE, i);
		part[THREAD] = a;
		BARRIER();
		for (int k = 1; k < THREADS; k *= 2) {
			left = THREAD >= k ? part[THREAD - k] : r_init();
			BARRIER();
			a = r_join(left, a);
			part[THREAD] = a;
			BARRIER();
		}
		left = part[THREADS - 1];
		BARRIER();
		a = r_join(before, a);
		before = r_join(before, left);
		if (i < n) {
			WRITE
		}
	}
#endif
}
