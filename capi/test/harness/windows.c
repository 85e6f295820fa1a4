// One-sided operations and memory.
#include "harness.h"

#define OP(...) (&(chorus_window_op){.size = sizeof(chorus_window_op), __VA_ARGS__})

void windows(void) {
	chorus_comm c = join("windows", 30 * SECOND);
	int right = (rank + 1) % size, left = (rank + size - 1) % size;
	int64_t *mine;
	OK(chorus_alloc(16 * sizeof *mine, 1, (void **)&mine));
	chorus_window w;
	OK(chorus_window_create(c, mine, 16, CHORUS_INT64, &w));
	chorus_window_peer peer = {.size = sizeof peer};
	OK(chorus_window_get(w, right, &peer));
	EXPECT(peer.count == 16);

	int64_t v = 1000 + rank, old = 0, expected = v, got = 0;
	OK(chorus_window_submit(w, OP(.kind = CHORUS_PUT, .rank = right, .offset = 3, .data = &v, .count = 1), NULL));
	OK(chorus_window_submit(w, OP(.kind = CHORUS_SIGNAL, .rank = right, .slot = 5), NULL));
	OK(chorus_window_submit(w, OP(.kind = CHORUS_WAIT_SIGNAL, .rank = left, .slot = 5), NULL));
	EXPECT(__atomic_load_n(&mine[3], __ATOMIC_ACQUIRE) == 1000 + left);
	chorus_op barrier = reduce_op(CHORUS_BARRIER, NULL, 0, NULL, 0);
	OK(chorus_submit(c, &barrier, NULL)); // before the other rank changes it again
	OK(chorus_window_submit(w, OP(.kind = CHORUS_GET, .rank = right, .offset = 3, .data = &got, .count = 1), NULL));
	EXPECT(got == v);
	if (peer.mapped) {
		int64_t *there;
		OK(chorus_window_map(w, right, (void **)&there));
		EXPECT(there[3] == v);
	}
	OK(chorus_window_submit(w, OP(.kind = CHORUS_COMPARE_AND_SWAP, .rank = right, .offset = 3, .data = &(int64_t){7}, .expected = &expected, .count = 1, .old = &old), NULL));
	EXPECT(old == v);
	OK(chorus_submit(c, &barrier, NULL));
	for (int i = 0; i < 10; i++) {
		OK(chorus_window_submit(w, OP(.kind = CHORUS_ACCUMULATE, .rank = 0, .offset = 0, .data = &(int64_t){rank + 1}, .count = 1, .reduction = CHORUS_SUM), NULL));
		OK(chorus_window_submit(w, OP(.kind = CHORUS_FETCH_OP, .rank = 0, .offset = 1, .data = &(int64_t){1}, .count = 1, .old = &old, .reduction = CHORUS_SUM), NULL));
		EXPECT(old >= 0 && old < 10 * size);
	}
	OK(chorus_window_submit(w, OP(.kind = CHORUS_FENCE, .rank = CHORUS_ANY), NULL));
	OK(chorus_submit(c, &barrier, NULL));
	if (rank == 0)
		EXPECT(mine[0] == 10 * size * (size + 1) / 2 && mine[1] == 10 * size);

	// Asynchronous ones run in order, and a wait for a signal holds no other operation up.
	int64_t first[4] = {1, 2, 3, 4}, second[4] = {5, 6, 7, 8};
	chorus_work works[4];
	OK(chorus_window_submit(w, OP(.kind = CHORUS_WAIT_SIGNAL, .rank = left, .slot = 0), &works[0]));
	OK(chorus_window_submit(w, OP(.kind = CHORUS_PUT, .rank = right, .offset = 8, .data = first, .count = 4), &works[1]));
	OK(chorus_window_submit(w, OP(.kind = CHORUS_PUT, .rank = right, .offset = 8, .data = second, .count = 4), &works[2]));
	OK(chorus_window_submit(w, OP(.kind = CHORUS_SIGNAL, .rank = right, .slot = 0), &works[3]));
	for (int i = 0; i < 4; i++) {
		OK(chorus_work_wait(works[i], -1));
		OK(chorus_work_release(works[i]));
	}
	EXPECT(mine[8] == 5 && mine[11] == 8);

	GETS(CHORUS_INVALID_ARGUMENT, chorus_window_submit(w, OP(.kind = CHORUS_PUT, .rank = right, .offset = 15, .data = first, .count = 2), NULL));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_window_submit(w, OP(.kind = 99), NULL));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_window_submit(w, OP(.kind = CHORUS_FETCH_OP, .rank = 0, .data = first, .count = 1), NULL));
	GETS(CHORUS_TIMEOUT, chorus_window_submit(w, OP(.kind = CHORUS_WAIT_SIGNAL, .rank = left, .slot = 1, .timeout_ns = SECOND / 20), NULL));
	OK(chorus_window_close(w));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_window_close(w));
	OK(chorus_free(mine));
	leave(c);
}

void memory(void) {
	void *a, *b;
	OK(chorus_alloc(0, 0, &a));
	OK(chorus_alloc(0, 0, &b));
	EXPECT(a && b && a != b);
	OK(chorus_free(a));
	OK(chorus_free(b));
	OK(chorus_free(NULL));
	char *p;
	OK(chorus_alloc(1 << 20, 1, (void **)&p));
	EXPECT(chorus_is_shared(p, 1 << 20) && chorus_is_shared(p + 100, 5) && !chorus_is_shared(&p, 1) && !chorus_is_shared(p, 1 << 30));
	for (int i = 0; i < 1 << 20; i++)
		EXPECT(p[i] == 0);
	chorus_comm c = join("memory", 30 * SECOND);
	OK(chorus_register(c, p, 1 << 20));
	chorus_op op = reduce_op(CHORUS_ALL_REDUCE, p, 1 << 18, p, 1 << 18);
	OK(chorus_submit(c, &op, NULL));
	OK(chorus_deregister(c, p, 1 << 20));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_deregister(c, p, 1 << 20));
	leave(c);
	OK(chorus_free(p));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_free(p));
}
