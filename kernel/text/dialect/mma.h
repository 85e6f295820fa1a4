// Products of tiles by tensor cores. A block of 256 threads, eight warps, multiplies 32 rows by 32 columns. Each thread has
// four sums, of the 16 by 8 of its warp. Thread t's sum j is at unit_row(t, j) and unit_column(t, j).
// Tiles are in local memory, a row or column after the other, each with its depth inside, and a step from one to the next.
typedef struct { u32 v[4]; } unit_left;
typedef struct { u32 v[2]; } unit_right;
DEVICE int unit_row(int t, int j) { return t / 128 * 16 + t % 32 / 4 + j / 2 * 8; }
DEVICE int unit_column(int t, int j) { return t / 32 % 4 * 8 + t % 4 * 2 + j % 2; }
DEVICE u32 unit_pair(const u16 *at) { return *(const u32 *)at; }
// A thread's part of a depth of 16.
DEVICE unit_left unit_left_at(int t, const u16 *tile, int step) {
	const u16 *at = tile + (t / 128 * 16 + t % 32 / 4) * step + t % 4 * 2;
	unit_left x;
	x.v[0] = unit_pair(at);
	x.v[1] = unit_pair(at + 8 * step);
	x.v[2] = unit_pair(at + 8);
	x.v[3] = unit_pair(at + 8 * step + 8);
	return x;
}
DEVICE unit_right unit_right_at(int t, const u16 *tile, int step) {
	const u16 *at = tile + (t / 32 % 4 * 8 + t % 32 / 4) * step + t % 4 * 2;
	unit_right x;
	x.v[0] = unit_pair(at);
	x.v[1] = unit_pair(at + 8);
	return x;
}
DEVICE void unit_multiply_f16(f32 *sum, unit_left a, unit_right b) {
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
	             "{%0, %1, %2, %3};"
	             : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
	             : "r"(a.v[0]), "r"(a.v[1]), "r"(a.v[2]), "r"(a.v[3]), "r"(b.v[0]), "r"(b.v[1]));
}
DEVICE void unit_multiply_bf16(f32 *sum, unit_left a, unit_right b) {
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
	             "{%0, %1, %2, %3};"
	             : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
	             : "r"(a.v[0]), "r"(a.v[1]), "r"(a.v[2]), "r"(a.v[3]), "r"(b.v[0]), "r"(b.v[1]));
}
