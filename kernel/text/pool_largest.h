// The search for the largest element of a window.
I best = -1;
T v = 0;
EACH_DIM(WINDOW)
T x = IN0(i0[OFFSET_IN(x)]);
#ifdef FLOATING
if (best < 0 || x > v || x != x) {
#else
if (best < 0 || x > v) {
#endif
	v = x;
	best = FLAT(x);
}
EACH_DIM(CLOSE)
o0[OFFSET_OUT(u)] = OUT0(v);
#ifdef INDEXES
o1[OFFSET_MORE(u)] = best;
#endif
