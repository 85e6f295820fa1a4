// Sums and their like of each element of a row and those before: see ScanFamily. A row is a thread's, or a block's.
#ifdef ROWS_AT_ONCE
// A processor's block of one thread goes along four rows at a time, since each sum of a row waits for the one before.
ONE_THREAD
KERNEL void ENTRY(POINTERS, I rows, I n STEPS LAYOUT) {
	ROWS_OF_BLOCK(rows)
	for (I first = begin; first < end; first += 4) {
		I count = end - first < 4 ? end - first : 4, next = first;
		if (count == 4) {
#define EACH_ROW(f) f(0) f(1) f(2) f(3)
#include "scan_rows.h"
#undef EACH_ROW
		} else
			for (; next < first + count; next++) {
#define EACH_ROW(f) f(0)
#include "scan_rows.h"
			}
	}
}
#else
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
		a = r_step(a, VALUE(at), i);
		WRITE(a, at)
	}
#else
	// A block takes as many elements as it has threads at a time. Before each are those 1, 2, 4 and so on places back.
	A before = r_init();
	for (I base = 0; base < n; base += THREADS) {
		I i = base + THREAD;
		A a = r_init(), left;
		if (i < n)
			a = r_step(a, VALUE(at), i);
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
			WRITE(a, at)
		}
	}
#endif
}
#endif
