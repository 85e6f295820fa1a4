// Reductions: see ReduceFamily. A result is of n elements. They are those of a thread, of a block, or of several
// blocks, whose accumulators in scratch another kernel joins.
#if defined(REDUCE_JOIN)
#define STEP(a) a = r_join(a, scratch[result * parts + i]);
#elif defined(NEIGHBOURS)
#define STEP(a) a = r_step(a, IN0(i0[FIRST + i]), i GIVEN);
#elif defined(STRETCHES)
#define STEP(a) a = r_step(a, IN0(i0[FIRST + in + i]), row * size + i GIVEN);
#else
#define STEP(a) \
	PLACE_OF_INPUT(i) \
	a = r_step(a, IN0(i0[FIRST + in]), i GIVEN);
#endif

KERNEL void ENTRY(POINTERS, I results, I n SCRATCH NUMBERS LAYOUT REDUCED) {
#if defined(REDUCE_COLUMNS)
#include "reduce_columns.h"
#elif defined(REDUCE_BATCH)
#include "reduce_batch.h"
#else
	I from = 0, to = n, step = 1;
#ifdef REDUCE_THREADS
	I result = (I)(BLOCK * THREADS + THREAD);
	if (result >= results)
		return;
#else
	LOCAL A part[THREADS_OF_BLOCK];
#ifdef REDUCE_PARTS
	I result = (I)(BLOCK / parts), chunk = (n - 1) / parts + 1;
	from = (I)(BLOCK % parts) * chunk;
	to = n - from < chunk ? n : from + chunk;
#else
	I result = (I)BLOCK;
#endif
#ifdef REDUCE_JOIN
	to = parts;
#endif
#endif
	PLACES(result)
#if defined(VECTOR) && !defined(REDUCE_THREADS)
#include "reduce_lanes.h"
#else
#ifndef REDUCE_THREADS
	from += THREAD;
	step = THREADS;
#endif
	A a = r_init();
	for (I i = from; i < to; i += step) {
		STEP(a)
	}
#endif
#ifndef REDUCE_THREADS
#include "join_block.h"
#endif
#ifdef REDUCE_PARTS
	scratch[BLOCK] = a;
#else
	RESULTS(a, 0)
#endif
#endif
}
