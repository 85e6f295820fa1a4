// Batcher's bitonic network, which sorts each span of the keys in local memory. The places that they come from make
// equal keys different, so that the order is stable.
for (int k = 2; k <= span; k *= 2)
	for (int d = k / 2; d > 0; d /= 2) {
		for (int e = THREAD; e < PIECE / 2; e += THREADS) {
			int a = 2 * e - (e & (d - 1)), b = a + d;
			int up = (a & (span - 1) & k) == 0;
			K x = key[a], y = key[b];
			PLACE p = from_[a], q = from_[b];
			if ((x > y || (x == y && p > q)) == up) {
				key[a] = y;
				key[b] = x;
				from_[a] = q;
				from_[b] = p;
			}
		}
		BARRIER();
	}
