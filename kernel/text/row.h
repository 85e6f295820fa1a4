// Operations on rows: see RowFamily. A row is a thread's, a group of threads' or a block's, or a processor's block has several at a time.
typedef struct {
	T v, u;
} A;
#define ADD(to, one, two) to.v += one;
#define ADD_BOTH(to, one, two) \
	to.v += one; \
	to.u += two;
#define LARGEST(to, one, two) to.v = t_max(to.v, one);

KERNEL void ENTRY(POINTERS, I rows, I length STEPS NUMBERS, I share0, I share1, I share2 LAYOUT) {
#ifdef VECTOR
#include "row_batch.h"
#else
#if defined(ROW_OF_THREAD)
	I row = (I)(BLOCK * THREADS + THREAD), from = 0, step = 1;
	if (row >= rows)
		return;
#else
	LOCAL A part[THREADS_OF_BLOCK];
#ifdef ROW_OF_GROUP
#if THREADS_OF_BLOCK < GROUP
#error a group of threads has no room in a block
#endif
	I row = (I)((BLOCK * THREADS + THREAD) / GROUP), from = THREAD % GROUP, step = GROUP;
	if (row >= rows) { // a thread without a row takes part in barriers
		row = 0;
		from = length;
	}
#define SHARERS GROUP
#define SHARER (THREAD % GROUP)
#else
	I row = (I)BLOCK, from = THREAD, step = THREADS;
#define SHARERS THREADS
#define SHARER THREAD
#endif
#endif
	T n = (T)length;
	BEGIN_ROW
	A a;
#include "row_stage.h"
#ifdef JOIN_2
#include "row_second.h"
#include "row_stage.h"
#endif
	for (I i = from; i < length; i += step) {
		ELEMENT
		RESULT
	}
	if (from == 0) {
		ROW_RESULTS
	}
#endif
}
