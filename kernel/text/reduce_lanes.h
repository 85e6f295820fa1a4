// The accumulators of a vector's lanes for the elements from `from` to before `to` of a result.
A a = r_init(), a1 = r_init(), a2 = r_init(), a3 = r_init();
#ifdef STRETCHES
I size = m.sizes[0], last = to;
for (I start = from, length; start < last; start += length) {
	I row = start / size, at = start - row * size, in;
	length = size - at < last - start ? size - at : last - start;
	I to = at + length;
	{
		OFFSET_OF_STRETCH(row)
		in = at0;
	}
#include "accumulate.h"
}
#else
I at = from;
#include "accumulate.h"
#endif
a = r_join(r_join(a, a1), r_join(a2, a3));
