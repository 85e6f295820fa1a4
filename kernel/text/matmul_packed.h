typedef VECTOR V;
ONE_THREAD
KERNEL void ENTRY(POINTERS, SIZES, NUMBER alpha, NUMBER beta LAYOUT) {
	// A block's place, and its sums of products. Its rows are those from row0, its columns those from column0.
	LOCAL V left[LEFT_VECTORS], right[RIGHT_VECTORS], sums[SUM_VECTORS];
	I batch = (I)BLOCK_Z;
	I rows = ((m - 1) / (I)BLOCKS + ROWS) / ROWS * ROWS, row0 = (I)BLOCK * rows;
	I columns = ((n - 1) / (I)BLOCKS_Y + WIDTH) / WIDTH * WIDTH, column0 = (I)BLOCK_Y * columns;
	if (row0 >= m || column0 >= n)
		return;
	rows = m - row0 < rows ? m - row0 : rows;
	columns = n - column0 < columns ? n - column0 : columns;
	OFFSETS(batch)
#if DIMS == 0
	at0 = at1 = at2 = at3 = 0;
#endif
	I k0 = 0;
	do { // also without depth, when the sums are 0
		I ks = depth - k0 < DEPTH ? depth - k0 : DEPTH;
		// A complex number's parts are neighbours on the left, and in two vectors on the right.
#ifdef COMPLEX
#define ELEMENT(x) \
	T v = x; \
	t[(k * LINES + r) * 2] = v.re; \
	t[(k * LINES + r) * 2 + 1] = v.im;
#else
#define ELEMENT(x) t[k * LINES + r] = x;
#endif
#define COUNT rows
#define LINES ROWS
#define STEP am
#define DEEP ak
#define TO left
#define FROM i0
#define FROM_TYPE I0
#define START at1 + row0 *am + k0 *ak
#define SIDE SIDE_OF_LEFT
#define LOADED LEFT
#ifdef COPY_LEFT
#define COPY COPY_LEFT
#endif
#include "matmul_panel.h"
#ifdef COMPLEX
#define ELEMENT(x) \
	T v = x; \
	t[k * (2 * LINES) + r] = v.re; \
	t[k * (2 * LINES) + r + LINES] = v.im;
#else
#define ELEMENT(x) t[k * LINES + r] = x;
#endif
#define COUNT columns
#define LINES WIDTH
#define STEP bn
#define DEEP bk
#define TO right
#define FROM i1
#define FROM_TYPE I1
#define START at2 + k0 *bk + column0 *bn
#define SIDE SIDE_OF_RIGHT
#define LOADED RIGHT
#ifdef COPY_RIGHT
#define COPY COPY_RIGHT
#endif
#include "matmul_panel.h"
		for (I j = 0; j < columns; j += WIDTH)
			for (I i = 0; i < rows; i += ROWS) {
				LOCAL V *s = sums + (j / WIDTH * MOST_ROWS + i) * 2;
				LOCAL const R *x = (LOCAL const R *)left + i * (DEPTH * PARTS);
				LOCAL const V *y = right + j / WIDTH * (2 * DEPTH);
#define LOAD(k) V s##k = k0 > 0 ? s[k] : (V)0;
				EACH_SUM(LOAD)
				AS_IT_IS
				for (I k = 0; k < ks; k++, x += ROWS * PARTS, y += 2) {
					V y0 = y[0], y1 = y[1];
#ifdef COMPLEX
#define MULTIPLY(r, first, second) \
	s##first += (V)x[first] * y0; \
	s##first -= (V)x[second] * y1; \
	s##second += (V)x[first] * y1; \
	s##second += (V)x[second] * y0;
#else
#define MULTIPLY(r, first, second) \
	s##first += (V)x[r] * y0; \
	s##second += (V)x[r] * y1;
#endif
					EACH_ROW(MULTIPLY)
				}
#define STORE(k) s[k] = s##k;
				EACH_SUM(STORE)
			}
		k0 += DEPTH;
	} while (k0 < depth);
	for (I i = 0; i < rows; i++)
		for (I j = 0; j < columns; j += WIDTH) {
			LOCAL const R *s = (LOCAL const R *)(sums + (j / WIDTH * MOST_ROWS + i) * 2);
			int most = columns - j < WIDTH ? (int)(columns - j) : WIDTH;
			I row = row0 + i;
			for (int q = 0; q < most; q++) {
				I column = column0 + j + q;
#ifdef COMPLEX
				T sum = c_make(s[q], s[q + WIDTH]);
#else
				T sum = s[q];
#endif
#define SUM sum
#include "matmul_result.h"
			}
		}
}
