// A processor reduces the elements of one result after the other. Then each lane joins what the lanes have of one.
LOCAL A part[MOST_ROWS * THREADS_OF_BLOCK];
I from = 0, to = n;
ROWS_OF_BLOCK(results)
for (I first = begin; first < end; first += MOST_ROWS) {
	I count = end - first < MOST_ROWS ? end - first : MOST_ROWS;
	for (I r = 0; r < count; r++) {
		I result = first + r;
		OFFSETS(result)
#include "reduce_lanes.h"
		part[r * THREADS_OF_BLOCK + THREAD] = a;
	}
	BARRIER();
	if (THREAD < count) {
		I result = first + THREAD;
		OFFSETS(result)
		A a = part[THREAD * THREADS_OF_BLOCK];
		for (int k = 1; k < THREADS_OF_BLOCK; k++)
			a = r_join(a, part[THREAD * THREADS_OF_BLOCK + k]);
		RESULTS(a, 0)
	}
	BARRIER();
}
