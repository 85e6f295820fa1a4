// Products of tiles by matrix cores. A block of 256 threads, four wavefronts, multiplies 32 rows by 32 columns. Each thread
// has four sums, of the 16 by 16 of its wavefront. Thread t's sum j is at unit_row(t, j) and unit_column(t, j). Tiles are in local memory, a row or column after the other, each with its depth inside, and a step from one to
// the next.
typedef f32 f32x4 __attribute__((vector_size(16)));
typedef i16 i16x4 __attribute__((vector_size(8), may_alias));
typedef i16x4 unit_left, unit_right;
DEVICE int unit_row(int t, int j) { return t / 128 * 16 + t % 64 / 16 * 4 + j; }
DEVICE int unit_column(int t, int j) { return t / 64 % 2 * 16 + t % 16; }
// A thread's part of a depth of 16.
DEVICE unit_left unit_left_at(int t, const u16 *tile, int step) {
	return *(const i16x4 *)(tile + (t / 128 * 16 + t % 16) * step + t % 64 / 16 * 4);
}
DEVICE unit_right unit_right_at(int t, const u16 *tile, int step) {
	return *(const i16x4 *)(tile + (t / 64 % 2 * 16 + t % 16) * step + t % 64 / 16 * 4);
}
#define UNIT_MULTIPLY_BY(name, instruction) \
	DEVICE void name(f32 *sum, unit_left a, unit_right b) { \
		f32x4 x = {sum[0], sum[1], sum[2], sum[3]}; \
		x = instruction(a, b, x, 0, 0, 0); \
		for (int j = 0; j < 4; j++) \
			sum[j] = x[j]; \
	}
UNIT_MULTIPLY_BY(unit_multiply_f16, __builtin_amdgcn_mfma_f32_16x16x16f16)
UNIT_MULTIPLY_BY(unit_multiply_bf16, __builtin_amdgcn_mfma_f32_16x16x16bf16_1k)
