// A stage: sums of a row's elements, or their largest, and what is found of that.
a.v = INIT;
a.u = 0;
for (I i = from; i < length; i += step) {
	ELEMENT
	JOIN(a, VALUE, OTHER)
}
#ifndef ROW_OF_THREAD
part[THREAD] = a;
BARRIER();
for (int k = SHARERS / 2; k > 0; k /= 2) {
	if (SHARER < k) {
		JOIN(part[THREAD], part[THREAD + k].v, part[THREAD + k].u)
	}
	BARRIER();
}
a = part[THREAD - SHARER];
BARRIER();
#endif
FOUND
