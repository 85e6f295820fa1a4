// Random numbers: see RandomFamily.
#include "generator.h"
// Number j of a block as one in (0, 1].
#define UNIFORM(type) (type) v.v[j] * 0x1p-32f + 0x1p-33f

#if defined(BERNOULLI_EACH)
KERNEL void ENTRY(POINTERS, I n, GENERATOR LAYOUT) {
	I number = (I)(BLOCK * THREADS + THREAD), first = number * 4;
	if (number >= n / 4 + (n % 4 != 0))
		return;
	LOAD_GENERATOR()
	numbers4 v = philox(seed, (u64)number, block, 0);
	for (int j = 0; j < 4 && first + j < n; j++) {
		f32 u = UNIFORM(f32);
		OFFSETS((first + j))
		o0[at0] = OUT0((T)((T)u <= IN0(i0[at1])));
	}
}

#elif defined(SHUFFLE)
KERNEL void ENTRY(POINTERS, I n, GENERATOR LAYOUT) {
	I at = (I)(BLOCK * THREADS + THREAD), count = 1, drawn = 0;
	if (at >= n - 1 || i0[at] != i0[at + 1] || (at > 0 && i0[at] == i0[at - 1]))
		return;
	while (at + count < n && i0[at + count] == i0[at])
		count++;
	LOAD_GENERATOR()
	numbers4 v = philox(seed, (u64)at, block, 0);
	for (I j = count - 1; j > 0; j--, drawn++) {
		if (drawn > 0 && drawn % 4 == 0)
			v = philox(seed, (u64)at, block, (u64)(drawn / 4));
		I other = (I)(v.v[drawn % 4] % (u32)(j + 1));
		i64 x = o0[at + j];
		o0[at + j] = o0[at + other];
		o0[at + other] = x;
	}
}

#else
// A thread fills EACH elements, which lie all threads apart: v is its block of numbers.
#ifdef DROPOUT
KERNEL void ENTRY(POINTERS, I n, I threads, GENERATOR, f32 keep, T scale LAYOUT) {
#else
KERNEL void ENTRY(POINTERS, I n, I threads, GENERATOR NUMBERS LAYOUT) {
#endif
	I number = (I)(BLOCK * THREADS + THREAD), t = number % threads, k = number / threads;
	I first = t + k * EACH * threads;
	if (first >= n)
		return;
	LOAD_GENERATOR()
	numbers4 v = philox(seed, (u64)t, block, (u64)k);
#if defined(GAUSS) && defined(WIDE)
	T r = sqrt(-2 * log((T)((u64)v.v[0] ^ (u64)v.v[1] << 21) * (T)0x1p-53 + (T)0x1p-54));
	T phi = PI * fma((T)((u64)v.v[2] ^ (u64)v.v[3] << 21), (T)0x1p-52, (T)0x1p-53);
	T gauss[2];
	gauss[0] = r * sin(phi);
	gauss[1] = r * cos(phi);
#elif defined(GAUSS)
	T gauss[4];
	for (int j = 0; j < 4; j += 2) {
		T u = UNIFORM(T), turn = 6.283185307179586f * 0x1p-32f;
		T phi = fma((T)v.v[j + 1], turn, turn / 2), r = sqrt(-2 * log(u));
		gauss[j] = r * sin(phi);
		gauss[j + 1] = r * cos(phi);
	}
#endif
	for (int j = 0; j < EACH && first + j * threads < n; j++) {
#if defined(DROPOUT)
		int kept = UNIFORM(f32) < keep;
		OFFSETS((first + j * threads))
		T y = IN0(i0[at2]) * (kept ? scale : (T)0);
		o0[at0] = OUT0(y);
		o1[at1] = kept;
#else
#if defined(INTEGER) && defined(WIDE)
		u64 x = (u64)v.v[2 * j] << 32 | v.v[2 * j + 1];
#elif defined(INTEGER)
		u64 x = v.v[j];
#elif defined(GAUSS)
		T g = gauss[j];
#elif defined(WIDE)
		T u = (T)((u64)v.v[2 * j] ^ (u64)v.v[2 * j + 1] << 21) * (T)0x1p-53 + (T)0x1p-54;
#else
		T u = UNIFORM(T);
#endif
		OFFSETS((first + j * threads))
		O0 y = OUT0((T)(DISTRIBUTION));
#ifdef UNIFORM_NUMBERS // one that's rounded to the end becomes the first
		if (STORED(y) == s1)
			y = OUT0(s0);
#endif
		o0[at0] = y;
#endif
	}
}
#endif
