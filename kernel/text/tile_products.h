// Adds the products of what's in local memory to the sums. Between barriers, the block has written it, and writes it
// again.
BARRIER();
for (int k = 0; k < TILE_DEPTH; k++) {
	T x[TILE_EACH], y[TILE_EACH];
	for (int r = 0; r < TILE_EACH; r++) {
		x[r] = left[k][ty + TILE_THREADS * r];
		y[r] = right[k][tx + TILE_THREADS * r];
	}
	for (int r = 0; r < TILE_EACH; r++)
		for (int q = 0; q < TILE_EACH; q++)
			MULTIPLY_ADD(sum[r][q], x[r], y[q]);
}
