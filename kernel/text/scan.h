// Sums and their like of each element of a row and those before: see ScanFamily. A row is a thread's, a group of threads', a block's, or shared by blocks.
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
KERNEL void ENTRY(POINTERS, I rows, I n STEPS SCRATCH LAYOUT) {
#ifdef ROW_OF_THREAD
	I row = (I)(BLOCK * THREADS + THREAD);
	if (row >= rows)
		return;
	OFFSETS(row)
	A a = r_init();
	for (I i = 0; i < n; i++) {
		a = r_step(a, VALUE(at), i);
		WRITE(a, at)
	}
#else
	// Blocks that share a row have a chunk of it each. The first kernel leaves each chunk's accumulator in scratch, and the
	// second one there instead that of all elements before the chunk, with which the third one begins.
	LOCAL A part[THREADS_OF_BLOCK];
#ifdef SCAN_GROUPS
#if THREADS_OF_BLOCK < GROUP
#error a group of threads has no room in a block
#endif
#define SHARERS GROUP
#define SHARER (THREAD % GROUP)
	I row = (I)((BLOCK * THREADS + THREAD) / GROUP), from = 0, to = n, there = row < rows;
	if (!there)
		row = 0; // a thread without a row takes part in barriers
#elif defined(SCAN_JOIN)
	I row = (I)BLOCK, from = row * parts, to = from + parts;
#elif defined(SCAN_BLOCKS)
	I row = (I)BLOCK, from = 0, to = n;
#else
	I row = (I)(BLOCK / parts), chunk = (n - 1) / parts + 1, from = (I)(BLOCK % parts) * chunk, to;
	to = n - from < chunk ? n : from + chunk;
#endif
#ifndef SHARERS
#define SHARERS THREADS
#define SHARER THREAD
#endif
	OFFSETS(row)
#ifdef SCAN_PARTS
	A a = r_init();
	for (I i = from + THREAD; i < to; i += THREADS)
		a = r_step(a, VALUE(at), i);
#include "join_block.h"
	scratch[BLOCK] = a;
#else
	// A block, or a group, takes as many elements as it has threads at a time. Before each are those 1, 2, 4 and so on places back.
#ifdef SCAN_CHUNKS
	A before = scratch[BLOCK];
#else
	A before = r_init();
#endif
	for (I base = from; base < to; base += SHARERS) {
		I i = base + SHARER;
		A a = r_init(), left;
		if (i < to)
#ifdef SCAN_JOIN
			a = scratch[i];
#else
			a = r_step(a, VALUE(at), i);
#endif
		part[THREAD] = a;
		BARRIER();
		for (int k = 1; k < SHARERS; k *= 2) {
			left = SHARER >= k ? part[THREAD - k] : r_init();
			BARRIER();
			a = r_join(left, a);
			part[THREAD] = a;
			BARRIER();
		}
#ifdef SCAN_JOIN
		if (i < to)
			scratch[i] = THREAD > 0 ? r_join(before, part[THREAD - 1]) : before;
#endif
		left = part[THREAD - SHARER + SHARERS - 1];
		BARRIER();
		a = r_join(before, a);
		before = r_join(before, left);
#ifdef SCAN_GROUPS
		if (!there)
			continue;
#endif
#ifndef SCAN_JOIN
		if (i < to) {
			WRITE(a, at)
		}
#endif
	}
#endif
#endif
}
#endif
