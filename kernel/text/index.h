// Elements at places that tensors of indexes say: see IndexFamily.
#ifdef JOINED
DEVICE T x_join(T a, T b) { return JOINED; }
#endif

KERNEL void ENTRY(POINTERS, GLOBAL i32 *bad, I n LAYOUT, DIMENSIONS) {
	I i = (I)(BLOCK * THREADS + THREAD);
	if (i >= n)
		return;
	OFFSETS(i)
	i64 place = 0, x;
	int good = 1;
	INDEXES
	if (!good) {
		if (bad)
			*bad = 1;
#ifdef TAKE
		o0[at0] = NOTHING;
#endif
		return;
	}
#if defined(TAKE)
	o0[at0] = i0[at1 + place];
#elif defined(PUT)
	o0[at0 + place] = VALUE;
#elif defined(PARTS) // of a number of 16 bytes, one after the other
	T b = VALUE;
	volatile GLOBAL u64 *word = (volatile GLOBAL u64 *)&o0[at0 + place];
	for (int k = 0; k < 2; k++) {
		u64 old = word[k], seen;
		for (;;) {
			seen = swap_u64(&word[k], old, f64_bits(bits_f64(old) + (k == 0 ? b.re : b.im)));
			if (seen == old)
				break;
			old = seen;
		}
	}
#elif defined(ADDITION)
	ADDITION(&o0[at0 + place], VALUE);
#else
	// The element is changed in the aligned word that it's part of, until no other thread has changed that meanwhile.
#if SIZE == 8
#define WORD u64
#define SWAP swap_u64
#else
#define WORD u32
#define SWAP swap_u32
#endif
	typedef union {
		WORD word;
		O0 part[PARTS_OF_WORD];
	} whole;
	T b = STORED(VALUE);
#if SIZE < 4
	GLOBAL u8 *address = (GLOBAL u8 *)&o0[at0 + place];
	int part = (int)((u64)address % 4) / SIZE;
	volatile GLOBAL WORD *word = (volatile GLOBAL WORD *)(address - (u64)address % 4);
#define PART part
#else
	volatile GLOBAL WORD *word = (volatile GLOBAL WORD *)&o0[at0 + place];
#define PART 0
#endif
	whole old, new_, seen;
	old.word = *word;
	for (;;) {
		new_ = old;
		T joined = x_join(STORED(old.part[PART]), b);
		new_.part[PART] = OUT0(joined);
		seen.word = SWAP(word, old.word, new_.word);
		if (seen.word == old.word)
			break;
		old = seen;
	}
#endif
}
