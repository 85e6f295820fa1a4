// Products of matrices: see MatmulFamily.
#define SIZES I m, I n, I depth, I om, I on, I am, I ak, I bk, I bn, I cm, I cn

#ifdef LANES // a processor's: see panels
#include "matmul_packed.h"
#else
#ifdef SCALED
KERNEL void ENTRY(POINTERS, I as, I bs, SIZES LAYOUT) {
#else
KERNEL void ENTRY(POINTERS, SIZES, NUMBER alpha, NUMBER beta LAYOUT) {
#endif
#include "tile_memory.h"
	I batch = (I)BLOCK_Z, row0 = (I)BLOCK_Y * (TILE_EACH * TILE_THREADS),
	  column0 = (I)BLOCK * (TILE_EACH * TILE_THREADS);
	OFFSETS(batch)
#if DIMS == 0
	at0 = at1 = at2 = at3 = 0;
#endif
	for (I k0 = 0; k0 < depth; k0 += TILE_DEPTH) {
		for (int e = 0; e < TILE_EACH; e++) {
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
#include "tile_products.h"
		BARRIER();
	}
	for (int r = 0; r < TILE_EACH; r++)
		for (int q = 0; q < TILE_EACH; q++) {
			I row = row0 + ty + 16 * r, column = column0 + tx + 16 * q;
			if (row >= m || column >= n)
				continue;
#define SUM sum[r][q]
#include "matmul_result.h"
		}
}
#endif
