WEIGHTS(weights)
WEIGHTS(slopes)
PLACE_OF_BLOCK(key0, (heads / group))
I shared = head;
BEGIN(k, 3, shared)
BEGIN(v, 4, shared)
BEGIN(to0, 0, shared)
BEGIN(to1, 1, shared)
#ifndef NO_FIRST
ZEROS(o, CHUNKS)
#endif
#ifndef NO_SECOND
ZEROS(u, VALUE_CHUNKS)
#endif
for (head = shared * group; head < (shared + 1) * group; head++) {
	BEGIN(q, 2, head)
	BEGIN(g, 5, head)
	BEGIN(lse, 7, head)
	GLOBAL const T *delta = i4 + (batch * heads + head) * rows;
#ifdef MASKED
	BEGIN(mask, 8, head)
#endif
	for (I row0 = FIRST_ROW; row0 < rows; row0 += TILE) {
		PRODUCTS(x, CHUNKS, 0, q, 1, k, size)
		PRODUCTS(dy, VALUE_CHUNKS, 3, g, 2, v, vsize)
#define DELTA delta[row]
#include "attention_score.h"
#include "attention_gradient.h"
#ifdef DROPOUT
		SET_WEIGHT(weights, WEIGHT(c, r), kept ? e * inverse : (T)0)
#else
		SET_WEIGHT(weights, WEIGHT(c, r), e)
#endif
		SET_WEIGHT(slopes, WEIGHT(c, r), slope)
	}
#ifndef NO_SECOND
	WEIGHTED(u, weights, VALUE_CHUNKS, 3, g, row0, rows, vsize)
#endif
#ifndef NO_FIRST
	WEIGHTED(o, slopes, CHUNKS, 0, q, row0, rows, size)
#endif
}
}
#ifndef NO_FIRST
STORE(CHUNKS, 0, key0, keys, size, o[i][j])
#endif
#ifndef NO_SECOND
STORE(VALUE_CHUNKS, 1, key0, keys, vsize, u[i][j])
#endif
