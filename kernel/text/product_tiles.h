// A tile has numbers that are computed with, or for a matrix unit those in memory.
#ifdef UNIT
#define TILE_NUMBER u16
#define TILE_ZERO 0
#define TILE_OF_A(x) x
#define TILE_OF_B(x) x
#else
#define TILE_NUMBER T
#define TILE_ZERO ZERO
#define TILE_OF_A(x) IN0(x)
#define TILE_OF_B(x) IN1(x)
#endif
KERNEL void ENTRY(POINTERS, product g) {
#include "tile_memory.h"
	LOCAL I column_b[TILE_SIDE], column_o[TILE_SIDE], depth_a[TILE_DEPTH], depth_b[TILE_DEPTH];
#if DIMS > 0
	LOCAL I column_x[DIMS][TILE_SIDE], depth_x[DIMS][TILE_DEPTH];
#endif
	I block = (I)BLOCK, row0 = (I)BLOCK_Y * TILE_SIDE, column0, part, phase, group;
	column0 = block % g.tiles * TILE_SIDE;
	block /= g.tiles;
	part = block % g.parts;
	block /= g.parts;
	phase = block % g.phases;
	group = block / g.phases;
	I a = group * g.a_group, b = group * g.b_group, o = group * g.o_group + part * g.o_part;
#ifdef DIVIDED
	// Columns that leave the same remainder r, from the first one on, and elements of a from the first one on.
#define PHASE(d) \
	{ \
		I size = g.divisor[d], r = phase % size, k = 0, first = (r - g.column_start[d]) % size; \
		phase /= size; \
		if (first < 0) \
			first += size; \
		while (k < g.depth[d] && (r + k * g.depth_step[d]) % size != 0) \
			k++; \
		g.columns[d] = first < g.columns[d] ? (g.columns[d] - 1 - first) / size + 1 : 0; \
		g.column_start[d] = (first + g.column_start[d] + k * g.depth_step[d]) / size; \
		g.depth[d] = k < g.depth[d] ? (g.depth[d] - 1 - k) / g.skip[d] + 1 : 0; \
		g.depth_step[d] = g.depth_step[d] * g.skip[d] / size; \
		a += k * g.a_steps[d]; \
		g.a_steps[d] *= g.skip[d]; \
		o += first * g.o_steps[d]; \
		g.o_steps[d] *= size; \
	}
	EACH_DIM_BACK(PHASE)
#endif
	I columns = g.outer, depth = g.deep;
#define COUNT(k) \
	columns *= g.columns[k]; \
	depth *= g.depth[k];
	EACH_DIM(COUNT)
	if (column0 >= columns)
		return;
	if (ty < TILE_SIDE / TILE_THREADS) {
		int e = ty * TILE_THREADS + tx;
		I rest = column0 + e, up, u, x;
		column_b[e] = b;
		column_o[e] = o;
#define COLUMN(k) \
	SPLIT(u, g.columns[k]) \
	column_x[k][e] = x = u * g.column_step[k] + g.column_start[k]; \
	column_b[e] += x * g.b_steps[k]; \
	column_o[e] += u * g.o_steps[k];
		EACH_DIM_BACK(COLUMN)
		column_b[e] += rest * g.b_outer;
		column_o[e] += rest * g.o_outer;
	}
	I from = part * g.chunk, to = depth - from < g.chunk ? depth : from + g.chunk;
	for (I k0 = from; k0 < to; k0 += TILE_DEPTH) {
		if (ty == 0) {
			I rest = k0 + tx, up;
			I q = 0;
			EACH_DIM(DIGIT)
			DEPTH_DIGITS
			I x, in_a = a + q * g.a_deep, in_b = q * g.b_deep;
#define DEPTH(k) \
	x = t##k * g.depth_step[k] + g.depth_start[k]; \
	depth_x[k][tx] = x; \
	in_a += t##k * g.a_steps[k]; \
	in_b += x * g.b_steps[k];
			EACH_DIM(DEPTH)
			depth_a[tx] = in_a;
			depth_b[tx] = in_b;
		}
		BARRIER();
		for (int e = 0; e < TILE_SIDE / TILE_THREADS; e++) {
			int k, r;
			TILE_NUMBER v;
#ifdef NEAR_A
			k = tx;
			r = ty + TILE_THREADS * e;
#else
			k = ty;
			r = tx + TILE_THREADS * e;
#endif
			v = TILE_ZERO;
			if (row0 + r < g.rows && k0 + k < to)
				v = TILE_OF_A(i0[depth_a[k] + (row0 + r) * g.a_row]);
			LEFT_AT(k, r) = v;
#ifdef NEAR_B
			k = tx;
			r = ty + TILE_THREADS * e;
#else
			k = ty;
			r = tx + TILE_THREADS * e;
#endif
			v = TILE_ZERO;
#define INSIDE_TILE(d) &&(U)(column_x[d][r] + depth_x[d][k]) < (U)g.limits[d]
			if (column0 + r < columns && k0 + k < to EACH_DIM(INSIDE_TILE))
				v = TILE_OF_B(i1[column_b[r] + depth_b[k]]);
			RIGHT_AT(k, r) = v;
		}
#include "tile_products.h"
	}
	BARRIER(); // the columns, where the loop has no rounds
	UNROLL
	for (int r = 0; r < TILE_PARTS; r++) {
		UNROLL
		for (int q = 0; q < TILE_PARTS; q++) {
			UNROLL
			for (int j = 0; j < TILE_SUMS; j++) {
				int c = COLUMN_OF_SUM(q, j);
				I row = row0 + ROW_OF_SUM(r, j);
				T v = sum[r][q][j];
				if (row >= g.rows || column0 + c >= columns)
					continue;
				RESULT(column_o[c] + row * g.o_row)
			}
		}
	}
}
