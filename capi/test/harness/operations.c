// Every kind of operation: synchronous, asynchronous and in a batch.
#include "harness.h"

enum { MAX = 8, N = 5 };

static int32_t x[MAX * N], y[MAX * N], z[MAX * N];
static chorus_buffer ins[MAX], outs[MAX];
static int64_t in_splits[MAX], out_splits[MAX];

// value is element i of what rank r starts with.
static int32_t value(int r, int i) { return r * 100 + i; }

static void fill(void) {
	for (int i = 0; i < MAX * N; i++) {
		x[i] = value(rank, i);
		y[i] = -1;
	}
}

static int32_t sum_up_to(int last, int i) {
	int32_t s = 0;
	for (int r = 0; r <= last; r++)
		s += value(r, i);
	return s;
}

static int32_t sum(int i) { return sum_up_to(size - 1, i); }

static chorus_op make(int kind) {
	chorus_op op = reduce_op(kind, x, N, y, N);
	op.root = size - 1;
	op.ins = ins;
	op.outs = outs;
	op.n_lists = size;
	for (int r = 0; r < size; r++) {
		ins[r] = (chorus_buffer){x + r * N, N};
		outs[r] = (chorus_buffer){y + r * N, N};
		in_splits[r] = out_splits[r] = N;
	}
	switch (kind) {
	case CHORUS_BROADCAST:
		op.out = rank == op.root ? x : y;
		break;
	case CHORUS_ALL_GATHER_SINGLE:
	case CHORUS_GATHER_SINGLE:
		op.out_count = size * N;
		break;
	case CHORUS_REDUCE_SCATTER_SINGLE:
		op.in_count = size * N;
		break;
	case CHORUS_ALL_TO_ALL_V_SINGLE:
		op.in_splits = in_splits;
		op.out_splits = out_splits;
		// fall through
	case CHORUS_ALL_TO_ALL_SINGLE:
		op.in_count = op.out_count = size * N;
		break;
	case CHORUS_ALL_GATHER_V:
	case CHORUS_REDUCE_SCATTER_V: // rank r has r + 1 elements
		for (int r = 0, at = 0; r < size; at += ++r) {
			ins[r] = (chorus_buffer){x + at, r + 1};
			outs[r] = (chorus_buffer){y + at, r + 1};
		}
		op.in_count = op.out_count = rank + 1;
		break;
	}
	return op;
}

static void same(const char *what, int i, int32_t got, int32_t want) {
	if (got != want)
		DIE("%s: element %d is %d, want %d", what, i, got, want);
}

static void verify(const char *mode, const chorus_op *op) {
	char what[64];
	snprintf(what, sizeof what, "%s, kind %d", mode, op->kind);
	int root = rank == op->root;
	for (int i = 0; i < MAX * N; i++)
		same(what, i, x[i], value(rank, i)); // inputs are never written
	int at = 0;
	switch (op->kind) {
	case CHORUS_BROADCAST:
		for (int i = 0; i < N && !root; i++)
			same(what, i, y[i], value(op->root, i));
		break;
	case CHORUS_ALL_REDUCE:
	case CHORUS_REDUCE:
		for (int i = 0; i < N; i++)
			same(what, i, y[i], root || op->kind == CHORUS_ALL_REDUCE ? sum(i) : -1);
		break;
	case CHORUS_SCAN:
		for (int i = 0; i < N; i++)
			same(what, i, y[i], sum_up_to(rank, i));
		break;
	case CHORUS_ALL_GATHER:
	case CHORUS_ALL_GATHER_SINGLE:
	case CHORUS_GATHER:
	case CHORUS_GATHER_SINGLE:
		if (!root && (op->kind == CHORUS_GATHER || op->kind == CHORUS_GATHER_SINGLE)) {
			same(what, 0, y[0], -1);
			break;
		}
		for (int i = 0; i < size * N; i++)
			same(what, i, y[i], value(i / N, i % N));
		break;
	case CHORUS_ALL_GATHER_V:
		for (int r = 0; r < size; at += ++r)
			for (int i = 0; i <= r; i++)
				same(what, at + i, y[at + i], value(r, i));
		break;
	case CHORUS_REDUCE_SCATTER:
	case CHORUS_REDUCE_SCATTER_SINGLE:
		for (int i = 0; i < N; i++)
			same(what, i, y[i], sum(rank * N + i));
		break;
	case CHORUS_REDUCE_SCATTER_V:
		at = rank * (rank + 1) / 2;
		for (int i = 0; i <= rank; i++)
			same(what, i, y[i], sum(at + i));
		break;
	case CHORUS_ALL_TO_ALL:
	case CHORUS_ALL_TO_ALL_SINGLE:
	case CHORUS_ALL_TO_ALL_V_SINGLE:
		for (int i = 0; i < size * N; i++)
			same(what, i, y[i], value(i / N, rank * N + i % N));
		break;
	case CHORUS_SCATTER:
		for (int i = 0; i < N; i++)
			same(what, i, y[i], value(op->root, rank * N + i));
		break;
	}
}

static void transfers(chorus_comm c) {
	int right = (rank + 1) % size, left = (rank + size - 1) % size;
	fill();
	chorus_op send = reduce_op(CHORUS_SEND, x, N, NULL, 0), recv = reduce_op(CHORUS_RECV, NULL, 0, y, N);
	send.peer = right;
	send.tag = recv.tag = 7;
	recv.peer = size == 1 ? 0 : CHORUS_ANY;
	chorus_work w;
	OK(chorus_submit(c, &send, &w));
	OK(chorus_submit(c, &recv, NULL));
	EXPECT(recv.source == left);
	for (int i = 0; i < N; i++)
		same("recv", i, y[i], value(left, i));
	OK(chorus_work_wait(w, -1));
	OK(chorus_work_release(w));

	OK(chorus_submit(c, &send, NULL)); // small messages don't wait for their receive
	OK(chorus_submit(c, &recv, &w));
	OK(chorus_work_wait(w, 30 * SECOND));
	chorus_work_info info = {.size = sizeof info};
	OK(chorus_work_get(w, &info));
	EXPECT(info.status == CHORUS_OK && info.source == left && info.n_ops == 1);
	OK(chorus_work_release(w));
}

static void batches(chorus_comm c) {
	int right = (rank + 1) % size, left = (rank + size - 1) % size;
	for (int async = 0; async < 2; async++) {
		fill();
		memcpy(z, x, sizeof z);
		chorus_op ops[4] = {make(CHORUS_ALL_REDUCE), reduce_op(CHORUS_RECV, NULL, 0, y + N, N), reduce_op(CHORUS_SEND, z, N, NULL, 0), make(CHORUS_ALL_REDUCE)};
		ops[1].peer = left;
		ops[2].peer = right;
		ops[3].in = ops[3].out = y; // of the first one's result
		chorus_work w = 0;
		OK(chorus_submit_batch(c, ops, 4, 30 * SECOND, async ? &w : NULL));
		if (async) {
			int32_t sources[4];
			OK(chorus_work_wait(w, -1));
			OK(chorus_work_sources(w, sources, 4));
			EXPECT(sources[0] == -1 && sources[1] == left && sources[2] == -1);
			GETS(CHORUS_INVALID_ARGUMENT, chorus_work_sources(w, sources, 3));
			OK(chorus_work_release(w));
		} else {
			EXPECT(ops[1].source == left && ops[3].seq > ops[0].seq);
		}
		for (int i = 0; i < N; i++) {
			same("batch", i, y[i], size * sum(i));
			same("batch, received", i, y[N + i], value(left, i));
		}
	}
}

void operations(void) {
	chorus_comm c = join("operations", 30 * SECOND);
	chorus_comm_info info = {.size = sizeof info};
	OK(chorus_comm_get(c, &info));
	EXPECT(info.rank == rank && info.world_size == size && info.timeout_ns == 30 * SECOND && !info.abort_on_error);
	EXPECT(!strcmp(info.name, "operations") && !strcmp(info.backend, "native") && !strcmp(info.device, "cpu"));
	EXPECT(info.capabilities & CHORUS_CAN_WINDOW && info.reductions & 1 << CHORUS_PREMUL_SUM && !(info.capabilities & CHORUS_CAN_NOTHING));
	EXPECT(info.local_size == size);
	EXPECT(strstr(chorus_backends(), "native"));
	uint64_t seq = 0;
	for (int kind = CHORUS_BROADCAST; kind <= CHORUS_SCAN; kind++) {
		fill();
		chorus_op op = make(kind);
		OK(chorus_submit(c, &op, NULL));
		verify("synchronous", &op);
		EXPECT(op.seq > seq);
		seq = op.seq;

		fill();
		op = make(kind);
		chorus_work w;
		OK(chorus_submit(c, &op, &w));
		memset(ins, 0xff, sizeof ins); // structs and lists are the caller's again at once
		memset(outs, 0xff, sizeof outs);
		memset(in_splits, 0xff, sizeof in_splits);
		chorus_op saved = op;
		memset(&op, 0xff, sizeof op);
		OK(chorus_work_wait(w, -1));
		OK(chorus_work_test(w));
		verify("asynchronous", &saved);
		chorus_work_info done = {.size = sizeof done};
		OK(chorus_work_get(w, &done));
		EXPECT(done.status == CHORUS_OK && done.seq == seq + 1 && done.source == -1);
		seq = done.seq;
		OK(chorus_work_release(w));
		GETS(CHORUS_INVALID_ARGUMENT, chorus_work_test(w));
	}

	// In place, with a hint, and every rank's own factor, as number and as memory.
	float f[2] = {1, 2}, factor = (float)(rank + 1);
	chorus_hint hint = {"algorithm", "ring"};
	chorus_op op = {.size = sizeof op, .kind = CHORUS_ALL_REDUCE, .dtype = CHORUS_FLOAT32, .reduction = CHORUS_PREMUL_SUM, .factor = factor,
			.in = f, .in_count = 2, .out = f, .out_count = 2, .hints = &hint, .n_hints = 1};
	OK(chorus_submit(c, &op, NULL));
	float total = (float)(size * (size + 1) / 2);
	EXPECT(f[0] == total && f[1] == 2 * total);
	op.factor = 0;
	op.factor_data = &factor;
	OK(chorus_submit(c, &op, NULL));
	EXPECT(f[0] == total * total);

	// No elements at all.
	op = reduce_op(CHORUS_ALL_REDUCE, NULL, 0, NULL, 0);
	OK(chorus_submit(c, &op, NULL));

	transfers(c);
	batches(c);

	// Parts, in another order, and a rank that joins none.
	int32_t group[MAX];
	for (int r = 0; r < size; r++)
		group[r] = size - 1 - r;
	chorus_split_options so = {.size = sizeof so, .ranks = group, .n_ranks = size, .name = "part"};
	chorus_comm part;
	OK(chorus_comm_split(c, &so, &part));
	OK(chorus_comm_get(part, &info));
	EXPECT(info.rank == size - 1 - rank && !strcmp(info.name, "part"));
	leave(part);
	so = (chorus_split_options){.size = sizeof so, .ranks = group, .n_ranks = rank == size - 1 ? 1 : 0};
	OK(chorus_comm_split(c, &so, &part));
	EXPECT((part != 0) == (rank == size - 1));
	if (part) {
		leave(part);
	}
	OK(chorus_comm_set_timeout(c, SECOND));
	OK(chorus_comm_set_hints(c, &hint, 1));
	OK(chorus_comm_set_hints(c, NULL, 0));
	OK(chorus_comm_get(c, &info));
	EXPECT(info.timeout_ns == SECOND);
	OK(chorus_comm_status(c));
	leave(c);
}
