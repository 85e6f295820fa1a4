// Attention's tiles for a matrix unit.
#define UNIT_STEP (CHUNK + 8)
#define ROW_OF_SCORE(j) unit_row(THREAD, j)
#define COLUMN_OF_SCORE(j) unit_column(THREAD, j)
#define ROW_OF_RESULT(j) unit_row(THREAD, j)
#define COLUMN_OF_RESULT(j) unit_column(THREAD, j)

// Four neighbours in a row of an input, 0 beyond the limits.
typedef struct ALIGNED(8) {
	u16 e[4];
} four;
DEVICE four four_of(const u16 *rows, I step, I next, I row, I limit, I column, I columns) {
	four x = {{0, 0, 0, 0}};
	if (row >= limit)
		return x;
	rows += row * step;
	if (next == 1 && column + 4 <= columns && (u64)(rows + column) % 8 == 0)
		return *(const four *)(rows + column);
	UNROLL
	for (int e = 0; e < 4; e++)
		if (column + e < columns)
			x.e[e] = rows[(column + e) * next];
	return x;
}
// Reads a chunk of a tile's rows to a local array, a row or an element first.
// clang-format off
#define BY_ROW r * UNIT_STEP + c + e
#define BY_COLUMN (c + e) * UNIT_STEP + r
// clang-format on
#define LOAD(to, at, input, place, first, limit, column, columns) \
	{ \
		int r = THREAD / (CHUNK / 4), c = THREAD % (CHUNK / 4) * 4; \
		four x = \
		    four_of(i##input + place, l.s[2 + input][2], l.s[2 + input][3], first + r, limit, column + c, columns); \
		UNROLL \
		for (int e = 0; e < 4; e++) \
			to[at] = x.e[e]; \
	}
#define MULTIPLY(x, of) \
	UNROLL \
	for (int k = 0; k < CHUNK; k += 16) \
		UNIT_MULTIPLY(x, unit_left_at(THREAD, of + k, UNIT_STEP), unit_right_at(THREAD, right + k, UNIT_STEP));

#define RIGHT_OF_PRODUCTS BY_ROW
#define MULTIPLY_ROWS(x) MULTIPLY(x, left)

// An array of weights, of rows by keys, or of keys by rows.
#define WEIGHTS(name) ALIGNED(16) LOCAL u16 name[TILE * UNIT_STEP];
#define WEIGHT(row, key) (row) * UNIT_STEP + (key)
#define SET_WEIGHT(name, at, value) name[at] = PACKED((value));
#define RIGHT_OF_WEIGHTS BY_COLUMN
#define MULTIPLY_WEIGHTS(x, weights) MULTIPLY(x, weights)
