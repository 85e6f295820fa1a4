// A processor's block reduces neighbouring columns, of which it reads whole lines of memory.
I inner = l.sizes[0], tiles = (inner - 1) / (8 * LANES) + 1, unit = (I)BLOCK, from = 0, to = n;
#ifdef SCRATCH_OF_COLUMNS
I part = unit % parts, chunk = (n - 1) / parts + 1;
unit /= parts;
from = part * chunk;
to = n - from < chunk ? n : from + chunk;
#endif
I row = unit / tiles, column = unit % tiles * (8 * LANES);
OFFSETS_OF_ROW(row)
#define EACH_VECTOR(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7)
if (inner - column >= 8 * LANES) {
#include "reduce_vectors.h"
	return;
}
#undef EACH_VECTOR
#define EACH_VECTOR(f) f(0)
for (; inner - column >= LANES; column += LANES) {
#include "reduce_vectors.h"
}
if (THREAD < inner - column) {
#include "reduce_vectors.h"
}
