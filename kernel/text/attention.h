// Attention: see AttentionFamily. A block has TILE rows and TILE keys at a time. Of heads it has CHUNK elements in local
// memory at once, so that what it needs doesn't depend on their size. A thread has SCORES products of a tile, at the rows
// and columns that ROW_OF_SCORE(j) and COLUMN_OF_SCORE(j) say, and RESULTS results of each chunk likewise.
#include "generator.h"
#ifdef UNIT // of tiles with the numbers in memory, each row with what is summed up inside
#include "attention_unit.h"
#else
#define ROW_OF_SCORE(j) (THREAD / TILE + (j) * (THREADS_OF_BLOCK / TILE))
#define COLUMN_OF_SCORE(j) (THREAD % TILE)
#define ROW_OF_RESULT(j) (THREAD / CHUNK + (j) * (THREADS_OF_BLOCK / CHUNK))
#define COLUMN_OF_RESULT(j) (THREAD % CHUNK)

// An element of an input as T, 0 beyond the limits. Its rows begin at a place.
// clang-format off
#define ELEMENT(input, place, row, limit, column, columns) \
	row < limit && column < columns \
		? IN##input(i##input[place + (row) * l.s[2 + input][2] + (column) * l.s[2 + input][3]]) \
		: (T)0
// clang-format on

// Reads a chunk of a tile's rows to a local array, a row or an element first.
// clang-format off
#define BY_ROW r * (CHUNK + 1) + c
#define BY_COLUMN c * (TILE + 1) + r
// clang-format on
#define LOAD(to, at, input, place, first, limit, column, columns) \
	for (int e = THREAD; e < TILE * CHUNK; e += THREADS) { \
		int r = e / CHUNK, c = e % CHUNK; \
		to[at] = ELEMENT(input, place, first + r, limit, column + c, columns); \
	}

#define RIGHT_OF_PRODUCTS BY_COLUMN
#define MULTIPLY_ROWS(x) \
	for (int k = 0; k < CHUNK; k++) { \
		T y = right[k * (TILE + 1) + COLUMN_OF_SCORE(0)]; \
		for (int j = 0; j < SCORES; j++) \
			x[j] += left[ROW_OF_SCORE(j) * (CHUNK + 1) + k] * y; \
	}

// An array of weights, of rows by keys, or of keys by rows.
#define WEIGHTS(name) LOCAL T name[TILE * (TILE + 1)];
#define WEIGHT(row, key) (row) * (TILE + 1) + (key)
#define SET_WEIGHT(name, at, value) name[at] = value;
#define RIGHT_OF_WEIGHTS BY_ROW
#define MULTIPLY_WEIGHTS(x, weights) \
	for (int k = 0; k < TILE; k++) { \
		T y = right[k * (CHUNK + 1) + COLUMN_OF_RESULT(0)]; \
		for (int j = 0; j < RESULTS; j++) \
			x[j] += weights[WEIGHT(ROW_OF_RESULT(j), k)] * y; \
	}
#endif

// Declares the products x[j] of a thread, of rows of two inputs, chunk by chunk.
#define PRODUCTS(x, chunks, of, from, by, with, columns) \
	T x[SCORES]; \
	for (int j = 0; j < SCORES; j++) \
		x[j] = 0; \
	for (int d = 0; d < chunks * CHUNK; d += CHUNK) { \
		BARRIER(); \
		LOAD(left, BY_ROW, of, from, row0, rows, d, columns) \
		LOAD(right, RIGHT_OF_PRODUCTS, by, with, key0, keys, d, columns) \
		BARRIER(); \
		MULTIPLY_ROWS(x) \
	}

// Adds rows of an input, weighted by an array, to sums x[i][j] of chunks i.
// clang-format off
#define WEIGHTED(x, weights, chunks, input, place, first, limit, columns) \
	UNROLL \
	for (int i = 0; i < chunks; i++) { \
		BARRIER(); \
		LOAD(right, RIGHT_OF_WEIGHTS, input, place, first, limit, i * CHUNK, columns) \
		BARRIER(); \
		MULTIPLY_WEIGHTS(x[i], weights) \
	}
// clang-format on
#define ZEROS(x, chunks) \
	T x[chunks][RESULTS]; \
	for (int i = 0; i < chunks; i++) \
		for (int j = 0; j < RESULTS; j++) \
			x[i][j] = 0;
#define STORE(chunks, result, first, limit, columns, value) \
	UNROLL \
	for (int i = 0; i < chunks; i++) \
		for (int j = 0; j < RESULTS; j++) { \
			I row = first + ROW_OF_RESULT(j), column = i * CHUNK + COLUMN_OF_RESULT(j); \
			if (row < limit && column < columns) \
				o##result[to##result + row * l.s[result][2] + column * l.s[result][3]] = OUT##result(value); \
		}

// Where a batch's and a head's rows begin in an operand.
#define BEGIN(name, operand, head) I name = batch * l.s[operand][0] + head * l.s[operand][1];

// A block's batch, head and first row.
#define PLACE_OF_BLOCK(first, heads) \
	I unit = (I)(BLOCK / tiles), batch = unit / heads, head = unit % heads, first = (I)(BLOCK % tiles) * TILE;

#ifdef CAUSAL
#define END_OF_KEYS keys - row0 < TILE ? keys : row0 + TILE
#define FIRST_ROW key0
#else
#define END_OF_KEYS keys
#define FIRST_ROW 0
#endif
#ifdef FORWARD
#define MASK(row, key) i3[mask + row * l.s[5][2] + key * l.s[5][3]]
#define MASK_NUMBER(x) IN3(x)
#else
#define MASK(row, key) i6[mask + row * l.s[8][2] + key * l.s[8][3]]
#define MASK_NUMBER(x) IN6(x)
#endif

#define SIZES I heads, I group, I rows, I keys, I size, I vsize, I tiles, T scale
#ifdef DROPOUT
DEVICE int is_kept(u64 i, f32 keep, u64 seed, u64 block, u64 generators) {
	u64 k = i / generators;
	numbers4 v = philox(seed, i % generators, block, k / 4);
	return (f32)v.v[k % 4] * 0x1p-32f + 0x1p-33f < keep;
}
KERNEL void ENTRY(POINTERS, SIZES, f32 keep, T inverse, GENERATOR, u64 generators, layout l) {
#else
KERNEL void ENTRY(POINTERS, SIZES, layout l) {
#endif
#ifdef UNIT
	ALIGNED(16) LOCAL u16 left[TILE * UNIT_STEP], right[TILE * UNIT_STEP];
#else
	LOCAL T left[TILE * (CHUNK + 1)], right[RIGHT_SIZE];
#endif
#ifdef DROPOUT
	LOAD_GENERATOR()
#endif
#if defined(FORWARD)
#include "attention_forward.h"
#elif defined(QUERY)
#include "attention_query.h"
#else
#include "attention_keys.h"
#endif
}
