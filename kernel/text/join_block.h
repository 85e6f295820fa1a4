// Joins the accumulators a of a block's threads, or of each group of SHARERS of them, in the first one's.
#ifndef SHARERS
#define SHARERS THREADS
#define SHARER THREAD
#endif
part[THREAD] = a;
BARRIER();
#ifdef VECTOR
if (THREAD == 0)
	for (int k = THREADS_OF_BLOCK / 2; k > 0; k /= 2)
		for (int j = 0; j < k; j++)
			part[j] = r_join(part[j], part[j + k]);
#else
for (int k = SHARERS / 2; k > 0; k /= 2) {
	if (SHARER < k)
		part[THREAD] = r_join(part[THREAD], part[THREAD + k]);
	BARRIER();
}
#endif
if (SHARER != 0)
	return;
a = part[THREAD];
