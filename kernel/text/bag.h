// Bags of rows: see BagFamily. Rows have elements of type O0, and indexes have the type I1.
#define BAD() \
	if (bad) \
		*bad = 1;
#define COMMON_INPUTS GLOBAL O0 *o, GLOBAL const O0 *in, GLOBAL const I1 *index, GLOBAL const O0 *weight
#define COMMON_NUMBERS I n, I columns, I os0, I os1, I is0, I is1, I xs, I ws, I bs, i64 padding

#if defined(EMBEDDING_BAG)
KERNEL void ENTRY(COMMON_INPUTS, GLOBAL I1 *bag, GLOBAL i32 *bad, COMMON_NUMBERS, GLOBAL const I1 *offsets,
    GLOBAL I1 *size, GLOBAL I1 *most, I rows, I bags, I ends, I fs, I ss, I ms0, I ms1) {
	I g = (I)(BLOCK * THREADS + THREAD);
	I b = g / columns, d = g % columns;
	if (b >= bags)
		return;
	i64 from = offsets[b * fs], to = b + 1 < ends ? offsets[(b + 1) * fs] : n, best = -1;
	if (from < 0 || to > n || from > to || (b == 0 && from > 0)) {
		BAD()
		from = to = 0;
	}
	T r = 0;
	I count = 0;
	for (I j = (I)from; j < (I)to; j++) {
		i64 row = index[j * xs];
		if (d == 0 && bag)
			bag[j * bs] = (I1)b;
		if (row == padding)
			continue;
		if (row < 0 || row >= rows) {
			BAD()
			continue;
		}
		T x = IN0(in[(I)row * is0 + d * is1]);
#ifdef MAX
		if (count == 0 || x > r || (isnan(x) && !isnan(r))) {
			r = x;
			best = row;
		}
#else
		if (weight)
			x *= IN0(weight[j * ws]);
		r += x;
#endif
		count++;
	}
#ifdef MEAN
	if (count > 0)
		r /= (T)count;
#endif
	if (d == 0 && size)
		size[b * ss] = (I1)count;
	if (most)
		most[b * ms0 + d * ms1] = (I1)best;
	o[b * os0 + d * os1] = OUT0(r);
}

#elif defined(EMBEDDING_BACKWARD)
// The first of equal keys in their order has a thread a column, which adds all their gradients.
KERNEL void ENTRY(COMMON_INPUTS, GLOBAL const I1 *bag, GLOBAL i32 *bad, COMMON_NUMBERS, GLOBAL const I1 *keys,
    GLOBAL const i64 *order, GLOBAL const I1 *size, I rows, I ss, i32 frequency) {
	I g = (I)(BLOCK * THREADS + THREAD);
	I j = g / columns, d = g % columns, count = 0;
	if (j >= n)
		return;
	i64 row = keys[j];
	if (row == padding || (j > 0 && keys[j - 1] == row))
		return;
	if (row < 0 || row >= rows) {
		BAD()
		return;
	}
	T r = 0;
	for (; j < n && keys[j] == row; j++, count++) {
		I at = (I)order[j], from = bag ? (I)bag[at * bs] : at;
		T x = IN0(in[from * is0 + d * is1]);
		if (weight)
			x *= IN0(weight[at * ws]);
#ifdef MEAN
		x /= (T)size[from * ss];
#endif
		r += x;
	}
	if (frequency)
		r /= (T)count;
	o[(I)row * os0 + d * os1] = OUT0(r);
}

#else
KERNEL void ENTRY(COMMON_INPUTS, GLOBAL const I1 *bag, GLOBAL i32 *bad, COMMON_NUMBERS, GLOBAL const O0 *table, I rows,
    I ts0, I ts1) {
	I g = (I)(BLOCK * THREADS + THREAD);
	if (g >= n)
		return;
	i64 row = index[g * xs];
	int good = row >= 0 && row < rows;
	if (!good && row != padding && bad)
		*bad = 1;
	T r = 0;
	if (good && row != padding)
		for (I d = 0; d < columns; d++)
			r += IN0(in[(I)bag[g * bs] * is0 + d * is1]) * IN0(table[(I)row * ts0 + d * ts1]);
	o[g * os0] = OUT0(r);
}
#endif
