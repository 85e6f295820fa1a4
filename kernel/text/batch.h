// The rows of a block from `begin` to before `end`, of all that all blocks together have.
#define ROWS_OF_BLOCK(rows) \
	I share = (I)((U)(rows - 1) / (U)BLOCKS) + 1, begin = (I)BLOCK * share; \
	I end = rows - begin < share ? rows : begin + share;
