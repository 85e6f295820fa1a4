// A GPU's block reduces neighbouring columns. Each thread has every so-many-th row of one, so that neighbours read
// neighbours.
LOCAL A part[THREADS_OF_BLOCK];
I inner = l.sizes[0], tiles = (inner - 1) / COLUMNS + 1, unit = (I)BLOCK, from = 0, to = n;
#ifdef SCRATCH_OF_COLUMNS
I piece = unit % parts, chunk = (n - 1) / parts + 1;
unit /= parts;
from = piece * chunk;
to = n - from < chunk ? n : from + chunk;
#endif
I row = unit / tiles, column = unit % tiles * COLUMNS, own = column + THREAD % COLUMNS;
OFFSETS_OF_ROW(row)
A a = r_init();
for (I i = from + THREAD / COLUMNS; i < to; i += THREADS / COLUMNS) {
	I at;
	OFFSET_OF_INPUT(i)
	at = FIRST + in + own;
	if (own < inner)
		a = r_step(a, IN0(i0[at]), i GIVEN);
}
part[THREAD] = a;
BARRIER();
for (int k = THREADS / 2; k >= COLUMNS; k /= 2) {
	if (THREAD < k)
		part[THREAD] = r_join(part[THREAD], part[THREAD + k]);
	BARRIER();
}
if (THREAD >= COLUMNS || own >= inner)
	return;
a = part[THREAD];
#ifdef SCRATCH_OF_COLUMNS
scratch[(row * inner + own) * parts + piece] = a;
#else
RESULTS(a, 0)
#endif
