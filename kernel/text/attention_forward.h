LOCAL T high[TILE], shrink[TILE];
PLACE_OF_BLOCK(row0, heads)
BEGIN(q, 2, head)
BEGIN(k, 3, (head / group))
BEGIN(v, 4, (head / group))
BEGIN(to0, 0, head)
BEGIN(to1, 1, head)
#ifdef MASKED
BEGIN(mask, 5, head)
#endif
T sum[RESULTS];
for (int j = 0; j < RESULTS; j++)
	sum[j] = 0;
ZEROS(o, VALUE_CHUNKS)
if (THREAD < TILE)
	high[THREAD] = -(T)INFINITY;
I end = END_OF_KEYS;
for (I key0 = 0; key0 < end; key0 += TILE) {
	PRODUCTS(x, CHUNKS, 0, q, 1, k, size)
#include "attention_score.h"
	weights[place] = y;
	x[j] = kept;
}
BARRIER();
if (THREAD < TILE) {
	T old = high[THREAD], m = old;
	for (int k = 0; k < TILE; k++)
		m = t_max(m, weights[THREAD * (TILE + 1) + k]);
	shrink[THREAD] = m == -(T)INFINITY ? 1 : exp(old - m);
	high[THREAD] = m;
}
BARRIER();
for (int j = 0; j < SCORES; j++) {
	int r = ty + j * SCORE_STEP, place = r * (TILE + 1) + tx;
	T e = high[r] == -(T)INFINITY ? 0 : exp(weights[place] - high[r]);
	weights[place] = x[j] != 0 ? e : -e; // negative: counts in the sum alone
}
BARRIER();
for (int j = 0; j < RESULTS; j++) {
	int r = cy + j * RESULT_STEP;
	T s = sum[j] * shrink[r];
	for (int k = 0; k < TILE; k++)
		s += fabs(weights[r * (TILE + 1) + k]);
	sum[j] = s;
	for (int i = 0; i < VALUE_CHUNKS; i++)
		o[j][i] *= shrink[r];
}
#ifdef DROPOUT
WEIGHTED(o, (weights[OF_ROW] < 0 ? (T)0 : weights[OF_ROW]), VALUE_CHUNKS, 2, v, key0, keys, vsize)
#else
WEIGHTED(o, weights[OF_ROW], VALUE_CHUNKS, 2, v, key0, keys, vsize)
#endif
}
BARRIER(); // high, if there was no key
#ifdef DROPOUT
STORE(VALUE_CHUNKS, 0, row0, rows, vsize, (sum[j] == 0 ? 0 : o[j][i] * inverse / sum[j]))
#else
STORE(VALUE_CHUNKS, 0, row0, rows, vsize, (sum[j] == 0 ? 0 : o[j][i] / sum[j]))
#endif
#ifndef NO_SECOND
for (int j = 0; j < RESULTS; j++) {
	int r = cy + j * RESULT_STEP;
	if (cx == 0 && row0 + r < rows)
		o1[to1 + (row0 + r) * l.s[1][2]] = OUT1((sum[j] == 0 ? 0 : high[r] + log(sum[j])));
}
#endif
