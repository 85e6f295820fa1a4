// Reductions: see ReduceFamily. A result is of n elements. They are those of a thread, of a group of
// threads, of a block, or of several blocks, whose accumulators in scratch another kernel joins.
#if defined(REDUCE_JOIN)
#define STEP(a) a = r_join(a, scratch[result * parts + i]);
#elif defined(NEIGHBOURS)
#define STEP(a) a = r_step(a, IN0(i0[FIRST + i]), i GIVEN);
#elif defined(STRETCHES)
#define STEP(a) a = r_step(a, IN0(i0[FIRST + in + i]), row * size + i GIVEN);
#else
#define STEP(a) \
	OFFSET_OF_INPUT(i) \
	a = r_step(a, IN0(i0[FIRST + in]), i GIVEN);
#endif

KERNEL void ENTRY(POINTERS, I results, I n SCRATCH NUMBERS LAYOUT REDUCED) {
#if defined(REDUCE_COLUMNS) && defined(VECTOR)
#include "reduce_columns.h"
#elif defined(REDUCE_COLUMNS)
#include "reduce_tiles.h"
#elif defined(REDUCE_BATCH)
#include "reduce_batch.h"
#else
	I from = 0, to = n;
#ifndef REDUCE_THREADS
	LOCAL A part[THREADS_OF_BLOCK];
#endif
#if defined(REDUCE_THREADS)
#define SHARERS 1
#define SHARER 0
	I result = (I)(BLOCK * THREADS + THREAD);
	if (result >= results)
		return;
#elif defined(REDUCE_GROUPS)
#if THREADS_OF_BLOCK < GROUP
#error a group of threads has no room in a block
#endif
#define SHARERS GROUP
#define SHARER (THREAD % GROUP)
	I result = (I)((BLOCK * THREADS + THREAD) / GROUP), there = result < results;
	if (!there)
		result = to = 0;
#elif defined(REDUCE_PARTS)
	I result = (I)(BLOCK / parts), chunk = (n - 1) / parts + 1;
	from = (I)(BLOCK % parts) * chunk;
	to = n - from < chunk ? n : from + chunk;
#else
	I result = (I)BLOCK;
#endif
#ifndef SHARERS
#define SHARERS THREADS
#define SHARER THREAD
#endif
#ifdef REDUCE_JOIN
	to = parts;
#endif
	OFFSETS(result)
#if defined(VECTOR) && !defined(REDUCE_THREADS)
#include "reduce_lanes.h"
#else
	A a = r_init();
#if defined(LOADS) && !defined(REDUCE_JOIN)
	// Most elements are loaded 16 bytes at a time: those from `first` to before `last`.
	GLOBAL const I0 *elements = i0 + FIRST;
	I first = from + (I)((0 - (u64)(elements + from) / sizeof(I0)) % LOADS), last;
	if (first > to)
		first = to;
	last = to - (to - first) % LOADS;
	for (I i = from + SHARER; i < first; i += SHARERS) {
		STEP(a)
	}
	for (I at = first + SHARER * LOADS; at < last; at += SHARERS * LOADS) {
		union {
			u128 all;
			I0 each[LOADS];
		} loaded;
		loaded.all = *(GLOBAL const u128 *)(elements + at);
		UNROLL
		for (int k = 0; k < LOADS; k++)
			a = r_step(a, IN0(loaded.each[k]), at + k GIVEN);
	}
	from = last;
#endif
	for (I i = from + SHARER; i < to; i += SHARERS) {
		STEP(a)
	}
#endif
#ifndef REDUCE_THREADS
#include "join_block.h"
#endif
#ifdef REDUCE_GROUPS
	if (!there)
		return;
#endif
#ifdef REDUCE_PARTS
	scratch[BLOCK] = a;
#else
	RESULTS(a, 0)
#endif
#endif
}
