// Additions to an element in memory while other threads add to it, too.
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
ADD_BY_SWAPS(atomic_add_f32, f32, u32, swap_u32, f32_bits, bits_f32)
ADD_BY_SWAPS(atomic_add_i32, i32, u32, swap_u32, (u32), (i32))
#ifdef USES_ATOMIC64
ADD_BY_SWAPS(atomic_add_i64, i64, u64, swap_u64, (u64), (i64))
#ifdef USES_F64
ADD_BY_SWAPS(atomic_add_f64, f64, u64, swap_u64, f64_bits, bits_f64)
#endif
#endif
