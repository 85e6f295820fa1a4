// Refused calls, and the contents of failures.
#include "harness.h"

#define INVALID(text, call)                                                                    \
	do {                                                                                   \
		GETS(CHORUS_INVALID_ARGUMENT, call);                                           \
		if (!strstr(chorus_last_error()->message, text))                               \
			DIE("%s: \"%s\" lacks \"%s\"", #call, chorus_last_error()->message, text); \
	} while (0)

static void refused(chorus_comm c) {
	int32_t x[4] = {1, 2, 3, 4};
	chorus_op good = reduce_op(CHORUS_ALL_REDUCE, x, 4, x, 4), op;
	chorus_work w;
	INVALID("no communicator", chorus_submit(0, &good, NULL));
	INVALID("no communicator", chorus_submit(c + 1, &good, NULL));
	INVALID("no communicator", chorus_submit(~c, &good, &w));
	INVALID("no work", chorus_work_wait(c, -1));
	INVALID("no window", chorus_window_close(77));
	INVALID("no hook", chorus_hook_remove(0));
	INVALID("NULL", chorus_submit(c, NULL, NULL));
#define WITH(text, change)                                 \
	do {                                               \
		op = good;                                 \
		change;                                    \
		INVALID(text, chorus_submit(c, &op, NULL)); \
		INVALID(text, chorus_submit(c, &op, &w));  \
	} while (0)
	WITH("sizeof", op.size = 8);
	WITH("no operation", op.kind = 0);
	WITH("no operation", op.kind = 1000);
	WITH("dtype", op.dtype = 0);
	WITH("dtype", op.dtype = -1);
	WITH("dtype", op.dtype = 100);
	WITH("aligned", op.in = (char *)x + 1);
	WITH("nil pointer", op.in = NULL);
	WITH("negative", op.in_count = -1);
	WITH("address space", op.in_count = INT64_MAX);
	WITH("elements", op.out_count = 3; op.out = x + 1);
	WITH("no such reduction", op.reduction = 0);
	WITH("no such reduction", op.reduction = 257);
	WITH("not defined", op.reduction = CHORUS_PREMUL_SUM);
	WITH("timeout", op.timeout_ns = -1);
	WITH("hint", op.n_hints = 1);
	chorus_hint unknown = {"speed", "high"}, nameless = {NULL, "x"};
	WITH("speed", op.n_hints = 1; op.hints = &unknown);
	WITH("hint", op.n_hints = 1; op.hints = &nameless);
	WITH("root", op.kind = CHORUS_BROADCAST; op.root = size);
	WITH("n_lists", op.kind = CHORUS_ALL_TO_ALL; op.n_lists = -1);
	WITH("ins is NULL", op.kind = CHORUS_ALL_TO_ALL; op.n_lists = size);
	WITH("splits", op.kind = CHORUS_ALL_TO_ALL_V_SINGLE; op.n_lists = 0; op.out = NULL; op.out_count = 0);
	// Entries are not read if their counts are wrong: there is one entry of each.
	chorus_buffer one = {x, 4};
	int64_t split = 4;
	int counts[] = {size + 1, size + 100000, 1000000000, INT32_MAX, INT32_MIN};
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
		int n = counts[i];
		for (int kind = CHORUS_SEND; kind <= CHORUS_GATHER_SINGLE; kind++) {
			if (kind != CHORUS_ALL_GATHER && kind != CHORUS_ALL_GATHER_V && kind != CHORUS_REDUCE_SCATTER && kind != CHORUS_REDUCE_SCATTER_V &&
			    kind != CHORUS_ALL_TO_ALL && kind != CHORUS_ALL_TO_ALL_V_SINGLE && kind != CHORUS_SCATTER && kind != CHORUS_GATHER)
				continue;
			int32_t y[4];
			WITH("", op.kind = kind; op.n_lists = n; op.ins = op.outs = &one; op.in_splits = op.out_splits = &split; op.root = rank; op.out = y);
			EXPECT(strstr(chorus_last_error()->message, "n_lists") || strstr(chorus_last_error()->message, "per rank"));
		}
		chorus_hint hint = {"algorithm", "ring"};
		int32_t self = rank;
		const char *handle = "none";
		if (i > 0) {
			WITH("hints", op.n_hints = n; op.hints = &hint);
			INVALID("hints", chorus_comm_set_hints(c, &hint, n));
		}
		INVALID(i > 0 ? "hints" : "world", chorus_comm_create(&(chorus_comm_options){.size = sizeof(chorus_comm_options), .rank = 0, .world_size = i > 0 ? 1 : -1, .hints = &hint, .n_hints = i > 0 ? n : 1}, &(chorus_comm){0}));
		INVALID("ranks", chorus_comm_split(c, &(chorus_split_options){.size = sizeof(chorus_split_options), .ranks = &self, .n_ranks = n}, &(chorus_comm){0}));
		INVALID("ranks", chorus_comm_regroup(c, &(chorus_regroup_options){.size = sizeof(chorus_regroup_options), .without = &self, .n_without = n}, &(chorus_comm){0}));
		if (i > 1) { // of these there may be more than ranks
			INVALID("batch", chorus_submit_batch(c, &good, n, 0, NULL));
			INVALID("handles", chorus_comm_regroup(c, &(chorus_regroup_options){.size = sizeof(chorus_regroup_options), .with = &handle, .n_with = n}, &(chorus_comm){0}));
			INVALID("world", chorus_comm_create(&(chorus_comm_options){.size = sizeof(chorus_comm_options), .rank = 0, .world_size = n}, &(chorus_comm){0}));
		}
	}
	chorus_reply_value(NULL, x, sizeof x);
	chorus_reply_error(NULL, "no");
	WITH("destination", op.kind = CHORUS_SEND; op.peer = size);
	WITH("tag", op.kind = CHORUS_SEND; op.tag = -1);
	INVALID("batch", chorus_submit_batch(c, &good, 0, 0, NULL));
	INVALID("freed before", chorus_free(x));
	INVALID("bytes", chorus_alloc(-1, 0, (void **)&(void *){0}));
	INVALID("sizeof", chorus_comm_get(c, &(chorus_comm_info){0}));
	INVALID("timeout", chorus_comm_set_timeout(c, 0));
	INVALID("twice", chorus_comm_split(c, &(chorus_split_options){.size = sizeof(chorus_split_options), .ranks = (int32_t[]){0, 0}, .n_ranks = 2}, &(chorus_comm){0}));
	chorus_store st;
	INVALID("this program has stores of the schemes", chorus_store_open("ftp://host", 0, &st));
	INVALID("no port", chorus_store_open("tcp://127.0.0.1", 0, &st));
	INVALID("callbacks", chorus_store_from_callbacks(&(chorus_store_callbacks){.size = sizeof(chorus_store_callbacks)}, &st));
	INVALID("sizeof", chorus_set_host(&(chorus_host){.size = 4}));
	OK(chorus_register(c, x, sizeof x)); // ordinary memory
	INVALID("registered", chorus_register(c, x, sizeof x));
	OK(chorus_deregister(c, x, sizeof x));

	// All that was refused and the communicator is as it was.
	OK(chorus_submit(c, &good, NULL));
}

void errors(void) {
	chorus_comm c = join("refused", 30 * SECOND);
	EXPECT(chorus_last_error()->status == CHORUS_OK);
	refused(c);
	leave(c);
	INVALID("no communicator", chorus_comm_finalize(c, 0));
	INVALID("no communicator", chorus_comm_leave(c, NULL, 0));

	// Ranks that call different operations.
	int32_t x[4] = {0};
	c = join("mismatch", 30 * SECOND);
	chorus_op op = reduce_op(CHORUS_ALL_REDUCE, x, rank == 0 ? 3 : 4, x, rank == 0 ? 3 : 4);
	GETS(CHORUS_MISMATCH, chorus_submit(c, &op, NULL));
	const chorus_error *e = chorus_last_error();
	EXPECT(e->status == CHORUS_MISMATCH && !strcmp(e->comm, "mismatch") && !strcmp(e->op, "all_reduce") && e->seq == 1 && e->reporter == rank);
	EXPECT(e->rank_a == 0 && e->rank_b > 0 && strstr(e->op_a, "int32[3]") && strstr(e->op_b, "int32[4]"));
	GETS(CHORUS_MISMATCH, chorus_comm_status(c)); // it stays broken
	leave(c);

	// A rank that doesn't come. It leaves when the others have seen that.
	c = join("timeout", 30 * SECOND);
	op = reduce_op(CHORUS_ALL_REDUCE, x, 4, x, 4);
	op.timeout_ns = SECOND / 5;
	if (rank == size - 1) {
		while (chorus_comm_status(c) == CHORUS_OK)
			usleep(1000);
	} else {
		chorus_work w;
		if (rank == 0) {
			OK(chorus_submit(c, &op, &w));
			GETS(CHORUS_TIMEOUT, chorus_work_wait(w, -1));
		} else {
			GETS(CHORUS_TIMEOUT, chorus_submit(c, &op, NULL));
		}
		e = chorus_last_error();
		// On a busy machine an answer may come too late: then nothing is known of that rank.
		EXPECT(e->n_missing + e->n_arrived + e->n_unknown == size && e->elapsed_ns >= SECOND / 5);
		for (int i = 0; i < e->n_missing; i++)
			EXPECT(e->missing[i] == size - 1);
		for (int i = 0; i < e->n_arrived; i++)
			EXPECT(e->arrived[i] != size - 1);
		if (rank == 0)
			OK(chorus_work_release(w));
	}
	leave(c);

	// An abort, in words.
	c = join("abort", 30 * SECOND);
	GETS(CHORUS_UNSUPPORTED, chorus_comm_suspend(c));
	GETS(CHORUS_UNSUPPORTED, chorus_comm_resume(c));
	void *block = &c;
	const int64_t bytes[] = {sizeof c};
	GETS(CHORUS_UNSUPPORTED, chorus_register_symmetric(c, &block, bytes, 1));
	INVALID("-1 symmetric blocks", chorus_deregister_symmetric(c, &block, bytes, -1));
	if (rank == 0)
		OK(chorus_comm_abort(c, "loss is NaN"));
	op.timeout_ns = 0;
	GETS(CHORUS_ABORTED, chorus_submit(c, &op, NULL));
	e = chorus_last_error();
	EXPECT(e->by == 0 && strstr(e->detail, "loss is NaN"));
	OK(chorus_comm_finalize(c, 0));
	GETS(CHORUS_FINALIZED, chorus_comm_finalize(c, 0));
	GETS(CHORUS_FINALIZED, chorus_comm_leave(c, "too late", 0));
	GETS(CHORUS_FINALIZED, chorus_submit(c, &op, NULL));
	OK(chorus_comm_release(c));

	// A world whose last rank doesn't come.
	if (rank < size - 1) {
		chorus_store store;
		OK(chorus_store_open(address, 60 * SECOND, &store));
		chorus_comm_options o = {.size = sizeof o, .rank = rank, .world_size = size, .name = "absent", .store = store, .timeout_ns = SECOND};
		GETS(CHORUS_TIMEOUT, chorus_comm_create(&o, &c));
		e = chorus_last_error();
		EXPECT(c == 0 && e->reporter == rank && e->n_missing == 1 && e->missing[0] == size - 1);
		OK(chorus_store_release(store));
	}

	// Failures of one thread are not those of another.
	INVALID("no work", chorus_work_test(0));
	const chorus_error *mine = chorus_last_error();
	pthread_t t;
	extern void *other_thread(void *);
	EXPECT(pthread_create(&t, NULL, other_thread, NULL) == 0);
	pthread_join(t, NULL);
	EXPECT(chorus_last_error() == mine && strstr(mine->message, "no work"));
}

void *other_thread(void *unused) {
	(void)unused;
	EXPECT(chorus_last_error()->status == CHORUS_OK);
	INVALID("no window", chorus_window_close(0));
	return NULL;
}
