LOCAL T parts[TILE * (TILE + 1)], deltas[TILE];
PLACE_OF_BLOCK(row0, heads)
BEGIN(q, 2, head)
BEGIN(k, 3, (head / group))
BEGIN(v, 4, (head / group))
BEGIN(g, 5, head)
BEGIN(out, 6, head)
BEGIN(lse, 7, head)
BEGIN(to0, 0, head)
#ifdef MASKED
BEGIN(mask, 8, head)
#endif
// the sum of a row's weights times their gradients is that of its results times theirs
for (int j = 0; j < SCORES; j++) {
	int r = THREAD / TILE + j * (THREADS_OF_BLOCK / TILE), first = THREAD % TILE;
	I row = row0 + r;
	T part = 0;
	if (row < rows)
		for (I c = first; c < vsize; c += TILE)
			part += IN3(i3[g + row * l.s[5][2] + c * l.s[5][3]]) * IN4(i4[out + row * l.s[6][2] + c * l.s[6][3]]);
	parts[r * (TILE + 1) + first] = part;
}
BARRIER();
if (THREAD < TILE) {
	T whole = 0;
	for (int k = 0; k < TILE; k++)
		whole += parts[THREAD * (TILE + 1) + k];
	deltas[THREAD] = whole;
	if (row0 + THREAD < rows)
		o1[unit * rows + row0 + THREAD] = whole;
}
#ifndef NO_FIRST
WEIGHTS(weights)
ZEROS(o, CHUNKS)
I end = END_OF_KEYS;
for (I key0 = 0; key0 < end; key0 += TILE) {
	PRODUCTS(x, CHUNKS, 0, q, 1, k, size)
	PRODUCTS(dy, VALUE_CHUNKS, 3, g, 2, v, vsize)
#define DELTA deltas[r]
#include "attention_score.h"
#include "attention_gradient.h"
	SET_WEIGHT(weights, WEIGHT(r, c), slope)
}
WEIGHTED(o, weights, CHUNKS, 1, k, key0, keys, size)
}
STORE(CHUNKS, 0, row0, rows, size, o[i][j])
#endif
