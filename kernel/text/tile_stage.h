// Reads a tile of rows with their depth to local memory, with 0 beyond the limits. Eight neighbours of the depth, or else
// of the rows, are read at once where they are aligned.
typedef struct ALIGNED(16) {
	u16 e[8];
} eight;
DEVICE void stage(u16 *to, const u16 *from, I row_step, I step, I rows, I depth, int thread) {
	int deep = step == 1, across = deep ? 1 : 8, along = deep ? 8 : 1;
	int packed = (deep ? row_step % 8 == 0 : row_step == 1 && step % 8 == 0) && (u64)from % 16 == 0;
	for (int e = thread; e < TILE_SIDE * TILE_DEPTH / 8; e += TILE_THREADS * TILE_THREADS) {
		int r = deep ? e / (TILE_DEPTH / 8) : e % (TILE_SIDE / 8) * 8;
		int k = deep ? e % (TILE_DEPTH / 8) * 8 : e / (TILE_SIDE / 8);
		eight x;
		if (packed && r + across <= rows && k + along <= depth)
			x = *(const eight *)(from + r * row_step + k * step);
		else {
			UNROLL
			for (int i = 0; i < 8; i++) {
				int row = deep ? r : r + i, at = deep ? k + i : k;
				x.e[i] = row < rows && at < depth ? from[row * row_step + at * step] : (u16)0;
			}
		}
		if (deep)
			*(eight *)(to + r * TILE_STEP + k) = x;
		else {
			UNROLL
			for (int i = 0; i < 8; i++)
				to[(r + i) * TILE_STEP + k] = x.e[i];
		}
	}
}
