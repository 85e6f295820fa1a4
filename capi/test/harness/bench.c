// How long an 8-byte all-reduce takes through the ABI: the median of batches of calls, in nanoseconds.
#include <time.h>

#include "harness.h"

static int64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * SECOND + t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

static chorus_status no_call(chorus_comm c, chorus_op *op) {
	(void)op;
	return chorus_comm_status(c);
}

static chorus_status all_reduce(chorus_comm c, chorus_op *op) { return chorus_submit(c, op, NULL); }

static chorus_status issue_and_wait(chorus_comm c, chorus_op *op) {
	chorus_work w;
	chorus_status s = chorus_submit(c, op, &w);
	if (s == CHORUS_OK)
		s = chorus_work_wait(w, -1);
	chorus_work_release(w);
	return s;
}

static int never(void) { return 0; }

void bench(void) {
	chorus_comm c = join("bench", 30 * SECOND);
	int32_t x[2] = {1, 2};
	chorus_op op = reduce_op(CHORUS_ALL_REDUCE, x, 2, x, 2);
	const struct {
		const char *name;
		chorus_status (*call)(chorus_comm, chorus_op *);
	} cases[] = {{"chorus_comm_status", no_call}, {"all_reduce", all_reduce}, {"all_reduce with a host", all_reduce}, {"issue and wait", issue_and_wait}};
	enum { BATCHES = 101, CALLS = 1000 };
	int64_t each[BATCHES];
	for (int i = 0; i < 4; i++) {
		chorus_host h = {.size = sizeof h, .check = never};
		OK(chorus_set_host(i == 2 ? &h : NULL));
		for (int b = 0; b < BATCHES; b++) {
			int64_t begin = now();
			for (int k = 0; k < CALLS; k++)
				OK(cases[i].call(c, &op));
			each[b] = (now() - begin) / CALLS;
		}
		qsort(each, BATCHES, sizeof *each, ascending);
		if (rank == 0)
			printf("%-24s %6lld ns (fastest %lld)\n", cases[i].name, (long long)each[BATCHES / 2], (long long)each[0]);
	}
	// Meanwhile Go's scheduler has taken back what it runs the calls of this thread on.
	for (int b = 0; b < BATCHES; b++) {
		int64_t begin = now();
		while (now() - begin < SECOND / 1000)
			;
		begin = now();
		OK(no_call(c, &op));
		each[b] = now() - begin;
	}
	qsort(each, BATCHES, sizeof *each, ascending);
	if (rank == 0)
		printf("%-24s %6lld ns (fastest %lld)\n", "chorus_comm_status after 1 ms in C", (long long)each[BATCHES / 2], (long long)each[0]);
	leave(c);
}
