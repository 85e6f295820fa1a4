// The sum of the gradients whose indexes are the element's own.
i64 own = FLAT(u);
T v = 0;
#define OPEN(k) \
	WINDOWS_OF(k, u##k, u##k) \
	for (I x##k = from##k; x##k <= to##k; x##k++) {
EACH_DIM(OPEN)
if (i1[OFFSET_MORE(x)] == own)
	v += IN0(i0[OFFSET_OUT(x)]);
EACH_DIM(CLOSE)
o0[OFFSET_IN(u)] = OUT0(v);
