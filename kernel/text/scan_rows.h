// Scans of some rows from `next` on. A row is summed in pieces, so that long sums are as precise as short ones.
#define BEGIN_ROW(k) \
	I from##k[OPERANDS]; \
	{ \
		I row = next + k; \
		OFFSETS(row) \
		KEEP_OFFSETS(from##k) \
	} \
	A total##k = r_init();
#define BEGIN_SUM(k) A a##k = r_init();
#define READ(k) T x##k = VALUE(from##k);
#define ADD(k) \
	a##k = r_step(a##k, x##k, i); \
	A sum##k = r_join(total##k, a##k);
#define WRITE_SUM(k) WRITE(sum##k, from##k)
#define END_SUM(k) total##k = r_join(total##k, a##k);
EACH_ROW(BEGIN_ROW)
for (I start = 0; start < n; start += ELEMENTS_OF_SUM) {
	I stop = n - start < ELEMENTS_OF_SUM ? n : start + ELEMENTS_OF_SUM;
	EACH_ROW(BEGIN_SUM)
	for (I i = start; i < stop; i++) {
		EACH_ROW(READ) // before one is written, which may lie as far from the start of a page
		EACH_ROW(ADD)
		EACH_ROW(WRITE_SUM)
	}
	EACH_ROW(END_SUM)
}
