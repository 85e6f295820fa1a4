// Philox 4x32-10, as cuRAND uses it: block number `block` + `more` of a subsequence.
typedef struct { u32 v[4]; } numbers4;
DEVICE numbers4 philox(u64 key, u64 subsequence, u64 block, u64 more) {
	u64 n = block + more;
	u32 c0, c1, c2, c3, k0 = (u32)key, k1 = (u32)(key >> 32);
	numbers4 r;
	if (n < block)
		subsequence++;
	c0 = (u32)n;
	c1 = (u32)(n >> 32);
	c2 = (u32)subsequence;
	c3 = (u32)(subsequence >> 32);
	for (int k = 0; k < 10; k++) {
		u32 high0 = mul_high(c0, 0xd2511f53u), low0 = c0 * 0xd2511f53u;
		u32 high1 = mul_high(c2, 0xcd9e8d57u), low1 = c2 * 0xcd9e8d57u;
		c0 = high1 ^ c1 ^ k0;
		c1 = low1;
		c2 = high0 ^ c3 ^ k1;
		c3 = low0;
		k0 += 0x9e3779b9u;
		k1 += 0xbb67ae85u;
	}
	r.v[0] = c0;
	r.v[1] = c1;
	r.v[2] = c2;
	r.v[3] = c3;
	return r;
}
