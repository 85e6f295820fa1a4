// How elements of images belong to elements of others: see resampling, which has the expressions.
#ifndef EVEN
DEVICE I r_taps(axis x, I o) { return TAPS; }
DEVICE I r_index(axis x, I o, I t) { return INDEX; }
#endif
#ifndef PLAIN
DEVICE S r_weight(axis x, I o, I t) { return WEIGHT; }
#ifdef TOTAL
DEVICE S r_total(axis x, I o) {
	S sum = 0;
	for (I t = 0; t < r_taps(x, o); t++)
		sum += r_weight(x, o, t);
	return sum;
}
#endif
#endif
#ifdef BACKWARD // the candidates for an element of the input, and how much of it is in one
#ifdef CANDIDATES
DEVICE I r_low(axis x, I i) { return 0; }
DEVICE I r_high(axis x, I i) { return CANDIDATES - 1; }
DEVICE I r_place(axis x, I i, I t) { return CANDIDATE; }
#else
DEVICE I r_low(axis x, I i) {
	I a = LOW;
	return a < 0 ? 0 : a;
}
DEVICE I r_high(axis x, I i) {
	I b = HIGH;
	return b < x.out ? b : x.out - 1;
}
DEVICE I r_place(axis x, I i, I t) { return t; }
#endif
#ifdef MOST
DEVICE I r_most(axis x) { return MOST; }
#endif
DEVICE S r_share(axis x, I o, I i) {
#if defined(EVEN)
	return r_weight(x, o, 0);
#elif defined(SHARE)
	S sum = SHARE;
	return sum == 0 ? 0 : sum / r_total(x, o);
#else
	S sum = 0;
	for (I t = 0; t < r_taps(x, o); t++)
		if (r_index(x, o, t) == i)
#ifdef PLAIN
			sum = 1;
#else
			sum += r_weight(x, o, t);
#endif
	return sum;
#endif
}
#endif
