// A block's accumulator of a tensor of a list: of elements, or of the accumulators of others.
#ifdef LIST_JOIN
A a = r_init();
u32 first = 0;
for (int k = 0; k < t; k++)
	first += l.blocks[k];
for (u32 i = THREAD; i < l.blocks[t]; i += THREADS)
	a = r_join(a, scratch[first + i]);
#elif defined(VECTOR)
A a = r_init(), a1 = r_init(), a2 = r_init(), a3 = r_init();
I at = from;
#include "accumulate.h"
a = r_join(r_join(a, a1), r_join(a2, a3));
#else
A a = r_init();
for (I i = from + THREAD; i < to; i += THREADS)
	STEP(a)
#endif
#include "join_block.h"
#ifndef LIST_JOIN
scratch[BLOCK] = a;
#endif
