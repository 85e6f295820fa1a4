// Sorting: see SortFamily. T are the bits of elements, and K are keys.
typedef T K;
DEVICE K key_of(T x) { return KEY; }
#define TENSORS GLOBAL T *o0, GLOBAL i64 *o1, GLOBAL const T *i0, I rows, I n, I step0, I step1, I step2 LAYOUT

#if defined(SORT_LINES) || defined(SORT_PIECES)
#ifdef SORT_LINES
KERNEL void ENTRY(TENSORS, i32 span, i32 flip, I from, I keep) {
	I pieces = 1;
#else
KERNEL void ENTRY(TENSORS, i32 span, i32 flip, I pieces, I pitch, GLOBAL K *keys, GLOBAL I *places) {
#endif
	LOCAL K key[PIECE];
	LOCAL u16 from_[PIECE];
	I each = PIECE / span;
	for (int e = THREAD; e < PIECE; e += THREADS) {
		int j = e & (span - 1);
		I item = (I)BLOCK * each + e / span, row = item / pieces, piece = item % pieces;
		I i = piece * PIECE + j;
		K k = (K) ~(K)0;
		if (row < rows && i < n) {
			OFFSETS(row)
			k = (K)(key_of(i0[at2 + i * step2]) ^ (K)flip);
		}
		key[e] = k;
		from_[e] = (u16)j;
	}
	BARRIER();
#define PLACE u16
#include "sort_network.h"
	for (int e = THREAD; e < PIECE; e += THREADS) {
		int j = e & (span - 1);
		I item = (I)BLOCK * each + e / span, row = item / pieces, piece = item % pieces;
		I i = piece * PIECE + j;
#ifdef SORT_PIECES
		if (row < rows && i < n && j < pitch) {
			keys[item * pitch + j] = key[e];
			places[item * pitch + j] = i - j + from_[e];
		}
#else
		if (row < rows && j >= from && j < keep) {
			OFFSETS(row)
			I place = from_[e], to = j - from;
			if (o0)
				o0[at0 + to * step0] = i0[at2 + place * step2];
			if (o1)
				o1[at1 + to * step1] = place;
		}
#endif
	}
}

#elif defined(SORT_FIRST)
// Gathers elements of a piece in local memory and drops all but the first ones when that is full. Elements behind the
// last of these aren't gathered from then on.
KERNEL void ENTRY(TENSORS, i32 span, i32 flip, I pieces, I pitch, GLOBAL K *keys, GLOBAL I *places) {
	LOCAL K key[PIECE];
	LOCAL I from_[PIECE];
	LOCAL u32 count;
	I row = (I)BLOCK / pieces, piece = (I)BLOCK % pieces, first = piece * LARGE;
	I end = n - first < LARGE ? n : first + LARGE, base = first;
	K last = (K) ~(K)0;
	int some = 0; // have been dropped
	OFFSETS(row)
	if (THREAD == 0)
		count = 0;
	BARRIER();
	while (base < end) {
		u32 now;
		do {
			I i = base + THREAD;
			if (i < end) {
				K k = (K)(key_of(i0[at2 + i * step2]) ^ (K)flip);
				if (!some || k < last) {
					u32 to = ADD_LOCAL(&count, 1u);
					key[to] = k;
					from_[to] = i;
				}
			}
			base += THREADS;
			BARRIER();
			now = count;
			BARRIER();
		} while (base < end && now + THREADS <= PIECE);
		for (int e = THREAD; e < PIECE; e += THREADS)
			if (e >= now) {
				key[e] = (K) ~(K)0;
				from_[e] = n + e;
			}
		BARRIER();
#define PLACE I
#include "sort_network.h"
		if (THREAD == 0 && now > pitch)
			count = (u32)pitch;
		some = some || now >= pitch;
		last = key[pitch - 1];
		BARRIER();
	}
	for (I e = THREAD; e < pitch && e < end - first; e += THREADS) {
		keys[(I)BLOCK * pitch + e] = key[e];
		places[(I)BLOCK * pitch + e] = from_[e];
	}
}

#elif defined(SORT_MERGE)
// Merges two runs: a thread finds where its part begins in both by bisection.
KERNEL void ENTRY(GLOBAL K *keys, GLOBAL I *places, GLOBAL const K *k0, GLOBAL const I *p0, I rows, I n, I run, I runs,
    I pitch, I next, I units) {
	I g = (I)(BLOCK * THREADS + THREAD), pairs = (runs + 1) / 2;
	I unit = g % units, pair = g / units % pairs, row = g / units / pairs;
	if (row >= rows)
		return;
	I left = 2 * pair * run, n0, n1 = 0, d = unit * UNIT;
	n0 = n - left < pitch ? n - left : pitch;
	if (2 * pair + 1 < runs)
		n1 = n - left - run < pitch ? n - left - run : pitch;
	I end = d + UNIT, a, b, high;
	if (end > n0 + n1)
		end = n0 + n1;
	if (end > next)
		end = next;
	if (d >= end)
		return;
	I at = (row * runs + 2 * pair) * pitch;
	GLOBAL const K *x = k0 + at, *y = x + pitch;
	GLOBAL const I *p = p0 + at, *q = p + pitch;
	a = d > n1 ? d - n1 : 0;
	high = d < n0 ? d : n0;
	while (a < high) {
		I mid = a + (high - a) / 2;
		if (x[mid] <= y[d - 1 - mid])
			a = mid + 1;
		else
			high = mid;
	}
	b = d - a;
	I to = (row * pairs + pair) * next;
	for (; d < end; d++) {
		int first = b >= n1 || (a < n0 && x[a] <= y[b]);
		keys[to + d] = first ? x[a] : y[b];
		places[to + d] = first ? p[a] : q[b];
		a += first;
		b += !first;
	}
}

#else
KERNEL void ENTRY(TENSORS, I from, I results, I pitch, GLOBAL const K *keys, GLOBAL const I *places) {
#if defined(SORT_WRITE)
	I g = (I)(BLOCK * THREADS + THREAD), row = g / results, j = g % results, at = from + j;
	if (row >= rows)
		return;
#elif defined(SORT_MODE)
	// The longest run of equal keys. As in PyTorch no NaN equals another.
	LOCAL I length[THREADS_OF_BLOCK], last[THREADS_OF_BLOCK];
	I row = (I)BLOCK, j = 0, at, most = 0, best = 0;
	GLOBAL const K *k = keys + row * pitch;
	for (I i = THREAD; i < n; i += THREADS) {
		if (i > 0 && k[i - 1] == k[i] && !(IS_NAN(k[i])))
			continue;
		I low = i + 1, high = IS_NAN(k[i]) ? i + 1 : n;
		while (low < high) {
			I mid = low + (high - low) / 2;
			if (k[mid] == k[i])
				low = mid + 1;
			else
				high = mid;
		}
		if (low - i > most) {
			most = low - i;
			best = low - 1;
		}
	}
	length[THREAD] = most;
	last[THREAD] = best;
	BARRIER();
	if (THREAD != 0)
		return;
	for (int i = 1; i < THREADS; i++)
		if (length[i] > most || (length[i] == most && last[i] < best)) {
			most = length[i];
			best = last[i];
		}
	at = best;
#else
	I row = (I)(BLOCK * THREADS + THREAD), j = 0, at, low = 0, high = n;
	if (row >= rows)
		return;
#ifdef FLOATING
	while (low < high) { // to the first NaN
		I mid = low + (high - low) / 2;
		if (IS_NAN(keys[row * pitch + mid]))
			high = mid;
		else
			low = mid + 1;
	}
#else
	low = n;
#endif
#ifdef SORT_MEDIAN
	at = low < n ? low : (n - 1) / 2;
#else
	at = low == 0 ? 0 : (low - 1) / 2;
#endif
#endif
	OFFSETS(row)
	I place = places[row * pitch + at];
	if (o0)
		o0[at0 + j * step0] = i0[at2 + place * step2];
	if (o1)
		o1[at1 + j * step1] = place;
}
#endif
