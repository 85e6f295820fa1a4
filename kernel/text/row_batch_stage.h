for (I r = 0; r < count; r++) {
	I row = first + r;
	BEGIN_ROW
	KNOWN(r)
	A a, a1, a2, a3;
	a.v = a1.v = a2.v = a3.v = INIT;
	a.u = a1.u = a2.u = a3.u = 0;
	I to = length, at = 0;
#define STEP(a) \
	ELEMENT \
	STORE \
	JOIN(a, VALUE, OTHER)
#include "accumulate.h"
	JOIN(a, a1.v, a1.u)
	JOIN(a, a2.v, a2.u)
	JOIN(a, a3.v, a3.u)
	lanes_v[r * THREADS_OF_BLOCK + THREAD] = a.v;
#ifdef PAIRS
	lanes_u[r * THREADS_OF_BLOCK + THREAD] = a.u;
#endif
}
BARRIER();
if (THREAD < count) {
	KNOWN(THREAD)
	A a;
	a.v = INIT;
	a.u = 0;
	for (int k = 0; k < THREADS_OF_BLOCK; k++) {
		JOIN(a, lanes_v[THREAD * THREADS_OF_BLOCK + k], lanes_u[THREAD * THREADS_OF_BLOCK + k])
	}
	FOUND
	KEEP
}
BARRIER();
