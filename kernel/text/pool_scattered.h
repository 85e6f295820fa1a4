// The same sums as in pool_gathered.h in another way. A block has a band of the first dimension of space. Its one
// thread goes through the windows that have elements of it, and adds each gradient at its index, if that is in the band.
I rest = (I)BLOCK, up, band, c, size = (g.in[0] - 1) / bands + 1, low, high, line = 1;
SPLIT(band, bands)
SPLIT(c, g.channels)
#define LINE(k) line *= g.in[k];
EACH_DIM_BUT_0(LINE)
low = band * size;
high = g.in[0] - low < size ? g.in[0] : low + size;
if (low >= high)
	return;
I in = rest * g.in_batch + c * g.in_channel;
I out = rest * g.out_batch + c * g.out_channel;
I more = rest * g.more_batch + c * g.more_channel;
I first = low * line, elements = (high - low) * line;
for (I k = 0; k < elements; k++)
	o0[in + (first + k) STEP] = 0;
WINDOWS_OF(0, low, (high - 1))
for (I x0 = from0; x0 <= to0; x0++) {
#define OPEN(k) for (I x##k = 0; x##k < g.out[k]; x##k++) {
	EACH_DIM_BUT_0(OPEN)
	i64 k = i1[OFFSET_MORE(x)] - first;
	if ((u64)k < (u64)elements)
		o0[in + (first + (I)k) STEP] += i0[OFFSET_OUT(x)];
	EACH_DIM(CLOSE)
