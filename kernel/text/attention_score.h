// Begins a loop over a thread's rows of a tile, with the score y of a product x[j], and what dropout does to its
// weight: kept.
UNROLL
for (int j = 0; j < SCORES; j++) {
	int r = ROW_OF_SCORE(j), c = COLUMN_OF_SCORE(j);
	I row = row0 + r, key = key0 + c;
	T y = -(T)INFINITY;
	int kept = 1;
	if (row < rows && key < keys
#ifdef CAUSAL
	    && key <= row
#endif
#ifdef BOOL_MASK
	    && MASK(row, key) != 0
#endif
	) {
		y = x[j] * scale;
#ifdef ADDED_MASK
		y += MASK_NUMBER(MASK(row, key));
#endif
#ifdef DROPOUT
		u64 number = (((u64)batch * (u64)heads + (u64)head) * (u64)rows + (u64)row) * (u64)keys + (u64)key;
		kept = is_kept(number, keep, seed, block, generators);
#endif
	}
