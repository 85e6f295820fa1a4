// Additions to an element in memory while other threads add to it, too: the hardware's where there is one.
#define ADD_BY_SWAPS(name, type, word, swap, bits, value) \
	DEVICE void name(GLOBAL type *p, type x) { \
		volatile GLOBAL word *at = (volatile GLOBAL word *)p; \
		word old = *at, seen; \
		for (;;) { \
			seen = swap(at, old, bits(value(old) + x)); \
			if (seen == old) \
				return; \
			old = seen; \
		} \
	}
#ifdef ADD_F32
DEVICE void atomic_add_f32(GLOBAL f32 *p, f32 x) { ADD_F32(p, x); }
#else
ADD_BY_SWAPS(atomic_add_f32, f32, u32, swap_u32, f32_bits, bits_f32)
#endif
ADD_BY_SWAPS(atomic_add_i32, i32, u32, swap_u32, (u32), (i32))
#ifdef USES_ATOMIC64
ADD_BY_SWAPS(atomic_add_i64, i64, u64, swap_u64, (u64), (i64))
#if defined(USES_F64) && defined(ADD_F64)
DEVICE void atomic_add_f64(GLOBAL f64 *p, f64 x) { ADD_F64(p, x); }
#elif defined(USES_F64)
ADD_BY_SWAPS(atomic_add_f64, f64, u64, swap_u64, f64_bits, bits_f64)
#endif
#endif
// One of 16 bits is a half of a word.
#define ADD_TO_HALF(name, from, to) \
	DEVICE void name(GLOBAL u16 *p, f32 x) { \
		u32 shift = (u32)((size_t)p & 2) * 8; \
		volatile GLOBAL u32 *at = (volatile GLOBAL u32 *)((size_t)p & ~(size_t)3); \
		u32 old = *at, seen; \
		for (;;) { \
			u32 sum = to(from((u16)(old >> shift)) + x); \
			seen = swap_u32(at, old, (old & ~((u32)0xffff << shift)) | sum << shift); \
			if (seen == old) \
				return; \
			old = seen; \
		} \
	}
ADD_TO_HALF(atomic_add_f16, from_f16, to_f16)
ADD_TO_HALF(atomic_add_bf16, from_bf16, to_bf16)
