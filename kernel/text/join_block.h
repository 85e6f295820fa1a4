// Joins the accumulators a of a block's threads in the first one's.
part[THREAD] = a;
BARRIER();
#ifdef VECTOR
if (THREAD == 0)
	for (int k = THREADS_OF_BLOCK / 2; k > 0; k /= 2)
		for (int j = 0; j < k; j++)
			part[j] = r_join(part[j], part[j + k]);
#else
for (int k = THREADS / 2; k > 0; k /= 2) {
	if (THREAD < k)
		part[THREAD] = r_join(part[THREAD], part[THREAD + k]);
	BARRIER();
}
#endif
if (THREAD != 0)
	return;
a = part[0];
