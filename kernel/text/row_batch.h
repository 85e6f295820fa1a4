// Lanes share the elements of one row after the other. Then each has a row, of which it joins what the lanes have.
LOCAL T lanes_v[BATCH * THREADS_OF_BLOCK];
#ifdef PAIRS
LOCAL T lanes_u[BATCH * THREADS_OF_BLOCK];
#endif
FINDINGS
T n = (T)length;
ROWS_OF_BLOCK(rows)
for (I first = begin; first < end; first += BATCH) {
	I count = end - first < BATCH ? end - first : BATCH;
#define STORE
#include "row_batch_stage.h"
#ifdef JOIN_2
#include "row_second.h"
#ifdef KEPT
#undef STORE
#undef VALUE
#define STORE \
	T e = VALUE_2; \
	o0[OFFSET] = e;
#define VALUE e
#endif
#include "row_batch_stage.h"
#endif
	for (I r = 0; r < count; r++) {
		I row = first + r;
		BEGIN_ROW
		ALL_KNOWN(r)
		I to = length, at = 0;
#ifdef KEPT
#define RESULT_OF_LANE \
	T e = o0[OFFSET]; \
	o0[OFFSET] = KEPT;
#else
#define RESULT_OF_LANE \
	ELEMENT \
	RESULT
#endif
		for (; to - at >= THREADS_OF_BLOCK; at += THREADS_OF_BLOCK) {
			I i = at + THREAD;
			RESULT_OF_LANE
		}
		if (THREAD < to - at) {
			I i = at + THREAD;
			RESULT_OF_LANE
		}
	}
	BARRIER();
}
