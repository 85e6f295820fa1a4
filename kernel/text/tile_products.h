// Adds the products of what's in local memory to the sums. Between barriers, the block has written it, and writes it
// again.
BARRIER();
#ifdef UNIT
UNROLL
for (int k = 0; k < TILE_DEPTH; k += 16) {
	unit_left x[TILE_PARTS];
	unit_right y[TILE_PARTS];
	UNROLL
	for (int r = 0; r < TILE_PARTS; r++) {
		x[r] = unit_left_at(thread, &LEFT_AT(k, 32 * r), TILE_STEP);
		y[r] = unit_right_at(thread, &RIGHT_AT(k, 32 * r), TILE_STEP);
	}
	UNROLL
	for (int r = 0; r < TILE_PARTS; r++) {
		UNROLL
		for (int q = 0; q < TILE_PARTS; q++)
			UNIT_MULTIPLY(sum[r][q], x[r], y[q]);
	}
}
#else
for (int k = 0; k < TILE_DEPTH; k++) {
	T x[TILE_PARTS], y[TILE_PARTS];
	for (int r = 0; r < TILE_PARTS; r++) {
		x[r] = left[k][ty + TILE_THREADS * r];
		y[r] = right[k][tx + TILE_THREADS * r];
	}
	for (int r = 0; r < TILE_PARTS; r++)
		for (int q = 0; q < TILE_PARTS; q++)
			MULTIPLY_ADD(sum[r][q][0], x[r], y[q]);
}
#endif
