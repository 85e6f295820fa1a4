// The part of the dialect that is the same everywhere.
typedef struct { f32 re, im; } c64;
DEVICE c64 make_c64(f32 re, f32 im) { c64 z; z.re = re; z.im = im; return z; }
#ifdef USES_F64
typedef struct { f64 re, im; } c128;
DEVICE c128 make_c128(f64 re, f64 im) { c128 z; z.re = re; z.im = im; return z; }
#endif
DEVICE f32 from_bf16(u16 x) { return bits_f32((u32)x << 16); }
DEVICE u16 to_bf16(f32 x) {
	u32 b = f32_bits(x);
	if ((b & 0x7fffffffu) > 0x7f800000u)
		return 0x7fc0;
	return (u16)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
}
