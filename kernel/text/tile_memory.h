// A tile's local memory, the thread's place in the block, and its sums: TILE_SUMS in each of TILE_PARTS by TILE_PARTS parts
// of the tile. A matrix unit takes the numbers as they are in memory.
int tx = THREAD, ty = THREAD_Y;
#ifdef UNIT
ALIGNED(16) LOCAL u16 left[TILE_SIDE * TILE_STEP], right[TILE_SIDE * TILE_STEP];
int thread = ty * TILE_THREADS + tx;
#define LEFT_AT(k, r) left[(r)*TILE_STEP + (k)]
#define RIGHT_AT(k, r) right[(r)*TILE_STEP + (k)]
#define ROW_OF_SUM(r, j) (32 * (r) + unit_row(thread, j))
#define COLUMN_OF_SUM(q, j) (32 * (q) + unit_column(thread, j))
#else
LOCAL T left[TILE_DEPTH][TILE_SIDE + 1], right[TILE_DEPTH][TILE_SIDE + 1];
#define LEFT_AT(k, r) left[k][r]
#define RIGHT_AT(k, r) right[k][r]
#define ROW_OF_SUM(r, j) (ty + TILE_THREADS * (r))
#define COLUMN_OF_SUM(q, j) (tx + TILE_THREADS * (q))
#endif
T sum[TILE_PARTS][TILE_PARTS][TILE_SUMS];
UNROLL
for (int r = 0; r < TILE_PARTS; r++) {
	UNROLL
	for (int q = 0; q < TILE_PARTS; q++) {
		UNROLL
		for (int j = 0; j < TILE_SUMS; j++)
			sum[r][q][j] = ZERO;
	}
}
