// Products of matrices: see MatmulFamily.
#define SIZES I m, I n, I depth, I om, I on, I am, I ak, I bk, I bn, I cm, I cn

#ifdef LANES // a processor's: see panels
#include "matmul_packed.h"
#else
#ifdef UNIT
#include "tile_stage.h"
#endif
#ifdef SCALED
KERNEL void ENTRY(POINTERS, I as, I bs, SIZES LAYOUT) {
#else
KERNEL void ENTRY(POINTERS, SIZES, NUMBER alpha, NUMBER beta LAYOUT) {
#endif
#include "tile_memory.h"
	I batch = (I)BLOCK_Z, row0 = (I)BLOCK_Y * TILE_SIDE, column0 = (I)BLOCK * TILE_SIDE;
	OFFSETS(batch)
#if DIMS == 0
	at0 = at1 = at2 = at3 = 0;
#endif
	for (I k0 = 0; k0 < depth; k0 += TILE_DEPTH) {
#ifdef UNIT
		stage(left, i0 + at1 + row0 * am + k0 * ak, am, ak, m - row0, depth - k0, thread);
		stage(right, i1 + at2 + k0 * bk + column0 * bn, bn, bk, n - column0, depth - k0, thread);
#else
		for (int e = 0; e < TILE_SIDE / TILE_THREADS; e++) {
			// neighbouring threads read neighbouring elements, whichever dimension they are in
			int near = ak == 1, k = near ? tx : ty, r = (near ? ty : tx) + TILE_THREADS * e;
			left[k][r] = ZERO;
			if (row0 + r < m && k0 + k < depth)
				left[k][r] = LEFT(i0[at1 + (row0 + r) * am + (k0 + k) * ak]);
			near = bk == 1;
			k = near ? tx : ty;
			r = (near ? ty : tx) + TILE_THREADS * e;
			right[k][r] = ZERO;
			if (column0 + r < n && k0 + k < depth)
				right[k][r] = RIGHT(i1[at2 + (k0 + k) * bk + (column0 + r) * bn]);
		}
#endif
#include "tile_products.h"
		BARRIER();
	}
	UNROLL
	for (int r = 0; r < TILE_PARTS; r++) {
		UNROLL
		for (int q = 0; q < TILE_PARTS; q++) {
			UNROLL
			for (int j = 0; j < TILE_SUMS; j++) {
				I row = row0 + ROW_OF_SUM(r, j), column = column0 + COLUMN_OF_SUM(q, j);
				if (row >= m || column >= n)
					continue;
#define SUM sum[r][q][j]
#include "matmul_result.h"
			}
		}
	}
}
#endif
