// A tile's local memory, the thread's place in the block, and its sums.
LOCAL T left[TILE_DEPTH][TILE_EACH * TILE_THREADS + 1], right[TILE_DEPTH][TILE_EACH * TILE_THREADS + 1];
int tx = THREAD, ty = THREAD_Y;
T sum[TILE_EACH][TILE_EACH];
for (int r = 0; r < TILE_EACH; r++)
	for (int q = 0; q < TILE_EACH; q++)
		sum[r][q] = ZERO;
