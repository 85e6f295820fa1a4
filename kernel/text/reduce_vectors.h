// Columns of so many vectors. Accumulators of some rows at a time are joined, so that long sums are as precise as
// short ones.
#define TOTAL(k) A total##k = r_init();
#define ROWS_SUM(k) A a##k = r_init();
#define ADD_ELEMENT(k) a##k = r_step(a##k, IN0(i0[at + k * LANES + THREAD]), i GIVEN);
#define ADD_ROWS(k) total##k = r_join(total##k, a##k);
#ifdef SCRATCH_OF_COLUMNS
#define STORE_TOTAL(k) scratch[(row * inner + column + k * LANES + THREAD) * parts + part] = total##k;
#else
#define STORE_TOTAL(k) RESULTS(total##k, (k)*LANES)
#endif
EACH_VECTOR(TOTAL)
for (I start = from; start < to; start += ROWS_OF_SUM) {
	I stop = to - start < ROWS_OF_SUM ? to : start + ROWS_OF_SUM;
	EACH_VECTOR(ROWS_SUM)
	for (I i = start; i < stop; i++) {
		I at;
		OFFSET_OF_INPUT(i)
		at = FIRST + in + column;
		EACH_VECTOR(ADD_ELEMENT)
	}
	EACH_VECTOR(ADD_ROWS)
}
EACH_VECTOR(STORE_TOTAL)
