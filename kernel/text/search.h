// Bisection of sorted lines: see SearchFamily.
KERNEL void ENTRY(POINTERS, I count, I n, I step, I sorter, i32 flag LAYOUT) {
	I i = (I)(BLOCK * THREADS + THREAD), low = 0, high = n;
	if (i >= count)
		return;
	OFFSETS(i)
	T x = IN0(i0[at1]);
	while (low < high) {
		I mid = low + (high - low) / 2, place = i2 ? (I)i2[at3 + mid * sorter] : mid;
		T y = IN1(i1[at2 + place * step]);
#ifdef SEARCH_PLACE // as PyTorch compares, also with NaN
		if (flag ? !(y > x) : !(y >= x))
#else
		if (y < x)
#endif
			low = mid + 1;
		else
			high = mid;
	}
#ifdef SEARCH_PLACE
	o0[at0] = (O0)low;
#else
	int found = 0;
	if (low < n)
		found = x == IN1(i1[at2 + low * step]);
	o0[at0] = found != flag;
#endif
}
