LOCAL T scores[TILE * (TILE + 1)], high[TILE], shrink[TILE], total[TILE];
WEIGHTS(weights)
PLACE_OF_BLOCK(row0, heads)
BEGIN(q, 2, head)
BEGIN(k, 3, (head / group))
BEGIN(v, 4, (head / group))
BEGIN(to0, 0, head)
BEGIN(to1, 1, head)
#ifdef MASKED
BEGIN(mask, 5, head)
#endif
ZEROS(o, VALUE_CHUNKS)
if (THREAD < TILE)
	high[THREAD] = -(T)INFINITY, total[THREAD] = 0;
I end = END_OF_KEYS;
for (I key0 = 0; key0 < end; key0 += TILE) {
	PRODUCTS(x, CHUNKS, 0, q, 1, k, size)
#include "attention_score.h"
	scores[r * (TILE + 1) + c] = y;
	x[j] = kept;
}
BARRIER();
if (THREAD < TILE) {
	T old = high[THREAD], m = old;
	for (int k = 0; k < TILE; k++)
		m = t_max(m, scores[THREAD * (TILE + 1) + k]);
	shrink[THREAD] = m == -(T)INFINITY ? 1 : exp(old - m);
	high[THREAD] = m;
}
BARRIER();
for (int j = 0; j < SCORES; j++) {
	int r = ROW_OF_SCORE(j), c = COLUMN_OF_SCORE(j), place = r * (TILE + 1) + c;
	T e = high[r] == -(T)INFINITY ? 0 : exp(scores[place] - high[r]);
	scores[place] = e;
	SET_WEIGHT(weights, WEIGHT(r, c), x[j] != 0 ? e : (T)0)
}
BARRIER();
if (THREAD < TILE) {
	T s = total[THREAD] * shrink[THREAD];
	for (int k = 0; k < TILE; k++)
		s += scores[THREAD * (TILE + 1) + k];
	total[THREAD] = s;
}
for (int i = 0; i < VALUE_CHUNKS; i++)
	for (int j = 0; j < RESULTS; j++)
		o[i][j] *= shrink[ROW_OF_RESULT(j)];
WEIGHTED(o, weights, VALUE_CHUNKS, 2, v, key0, keys, vsize)
}
BARRIER(); // total, whose last value is here, or its first one
#define TOTAL total[ROW_OF_RESULT(j)]
#ifdef DROPOUT
STORE(VALUE_CHUNKS, 0, row0, rows, vsize, (TOTAL == 0 ? 0 : o[i][j] * inverse / TOTAL))
#else
STORE(VALUE_CHUNKS, 0, row0, rows, vsize, (TOTAL == 0 ? 0 : o[i][j] / TOTAL))
#endif
#ifndef NO_SECOND
if (THREAD < TILE && row0 + THREAD < rows)
	o1[to1 + (row0 + THREAD) * l.s[1][2]] = OUT1((total[THREAD] == 0 ? 0 : high[THREAD] + log(total[THREAD])));
#endif
