// Devices: memory, streams, events, graphs and communicators on them.
#include "harness.h"

#define N 4096

static chorus_device device;

static void *on_device(int64_t bytes) {
	void *p, *view;
	chorus_attributes at = {.size = sizeof at};
	OK(chorus_cache_alloc(device, bytes, 0, &p, &view));
	OK(chorus_attributes_of(device, (char *)p + bytes - 1, &at));
	EXPECT(at.kind == 2 && at.index == rank % 2 && view);
	return p;
}

static chorus_status fills(void *user, void *const *views, chorus_reply *reply) {
	int32_t *x = views[0];
	(void)reply;
	for (int i = 0; i < N; i++)
		x[i] = (int32_t)(intptr_t)user;
	return CHORUS_OK;
}

// Fills device memory with v N times, in the order of the stream.
static void put(chorus_stream s, void *p, int32_t v) {
	OK(chorus_cache_uses(device, p, s));
	OK(chorus_stream_task(s, "fill", &(chorus_span){p, N * sizeof v}, 1, fills, NULL, (void *)(intptr_t)v));
}

static void wants(chorus_stream s, void *p, int32_t v) {
	int32_t host[N];
	OK(chorus_stream_copy(s, host, p, sizeof host));
	OK(chorus_stream_await(s, 0));
	for (int i = 0; i < N; i++)
		if (host[i] != v)
			DIE("element %d is %d, want %d", i, host[i], v);
}

static chorus_status twice(void *user, void *const *views, chorus_reply *reply) {
	int32_t *x = views[0];
	(void)reply;
	for (int i = 0; i < N; i++)
		x[i] *= *(int *)user;
	return CHORUS_OK;
}

static chorus_status fails(void *user, void *const *views, chorus_reply *reply) {
	(void)views;
	if (user)
		chorus_reply_error(reply, user);
	return 77;
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static chorus_status passes_gate(void *user, void *const *views, chorus_reply *reply) {
	(void)user, (void)views, (void)reply;
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
	return CHORUS_OK;
}

static void misuse(chorus_stream s, void *p) {
	int32_t host = 0;
	void *out;
	chorus_device d;
	int32_t n;
	GETS(CHORUS_UNSUPPORTED, chorus_device_open("nonesuch:0", &d));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_device_open("accinte:99", &d));
	GETS(CHORUS_UNSUPPORTED, chorus_device_count("nonesuch", &n));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_cache_alloc(device + 1, 8, 0, &out, &out));
	GETS(CHORUS_OUT_OF_MEMORY, chorus_cache_alloc(device, INT64_C(1) << 44, 0, &out, &out));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_cache_free(device, (char *)p + 4));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_unpin(&host));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_stream_copy(s, p, &host, 1 << 28));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_stream_task(s, "none", NULL, 0, NULL, NULL, NULL));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_stream_release(s)); // a default stream
	GETS(CHORUS_INVALID_ARGUMENT, chorus_stream_query(s + 1));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_event_query(12345));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_graph_end(s, NULL));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_graph_release(s));
	OK(chorus_device_await(device, 0));
}

static void order(chorus_stream s, void *p) {
	chorus_stream other;
	chorus_event a, b;
	int factor = 3;
	OK(chorus_stream_create(device, 1, &other));
	OK(chorus_event_create(1, &a));
	OK(chorus_event_create(1, &b));
	pthread_mutex_lock(&gate);
	OK(chorus_event_record(a, s));
	OK(chorus_stream_task(s, "gate", NULL, 0, passes_gate, NULL, NULL));
	put(s, p, 5);
	OK(chorus_event_record(b, s));
	OK(chorus_stream_wait_event(other, b));
	OK(chorus_stream_task(other, "twice", &(chorus_span){p, N * 4}, 1, twice, NULL, &factor));
	GETS(CHORUS_PENDING, chorus_event_query(b));
	GETS(CHORUS_PENDING, chorus_stream_query(other));
	GETS(CHORUS_TIMEOUT, chorus_stream_await(other, SECOND / 100));
	GETS(CHORUS_TIMEOUT, chorus_stream_synchronize(other, SECOND / 100));
	GETS(CHORUS_TIMEOUT, chorus_event_synchronize(b, SECOND / 100));
	GETS(CHORUS_TIMEOUT, chorus_device_synchronize(device, SECOND / 100));
	pthread_mutex_unlock(&gate);
	OK(chorus_stream_wait_stream(s, other));
	wants(s, p, 15);
	OK(chorus_event_query(b));
	double ms = -1;
	OK(chorus_event_elapsed(a, b, &ms));
	EXPECT(ms >= 10);
	// The same stream, as other code would have it.
	uint64_t native = 0;
	chorus_stream again = 0;
	OK(chorus_stream_native(other, &native));
	OK(chorus_stream_adopt(device, native, &again));
	EXPECT(native && again && again != other);
	OK(chorus_stream_task(again, "twice", &(chorus_span){p, N * 4}, 1, twice, NULL, &factor));
	OK(chorus_stream_await(other, 0));
	OK(chorus_stream_release(again));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_stream_release(again));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_stream_native(again, &native));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_stream_native(other, NULL));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_stream_adopt(device, native, NULL));
	// A failure stays until it's taken from the stream.
	OK(chorus_stream_task(other, "fails", NULL, 0, fails, NULL, NULL));
	GETS(CHORUS_WORK_FAILED, chorus_stream_await(other, 0));
	GETS(CHORUS_WORK_FAILED, chorus_stream_recover(other, 0));
	EXPECT(strstr(chorus_last_error()->message, "77"));
	OK(chorus_stream_task(other, "fails", NULL, 0, fails, NULL, "for a reason"));
	GETS(CHORUS_WORK_FAILED, chorus_stream_recover(other, 0));
	EXPECT(strstr(chorus_last_error()->message, "for a reason"));
	OK(chorus_stream_await(other, 0));
	OK(chorus_event_release(a));
	OK(chorus_event_release(b));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_event_query(b));
	OK(chorus_stream_release(other));
}

// An event of rank 0, for which the streams of the others wait.
static void between(chorus_comm c, chorus_stream s, int rank) {
	struct { int64_t bytes; char handle[64]; } h = {0};
	chorus_event e, plain;
	OK(chorus_event_create(0, &plain));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_event_create(3, &e));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_event_handle(plain, device, h.handle, sizeof h.handle, &h.bytes));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_event_open(device, h.handle, sizeof h.handle, &e));
	OK(chorus_event_release(plain));
	if (rank == 0) {
		OK(chorus_event_create(CHORUS_EVENT_INTERPROCESS, &e));
		GETS(CHORUS_INVALID_ARGUMENT, chorus_event_handle(e, device, h.handle, 1, &h.bytes));
		EXPECT(h.bytes > 1 && h.bytes <= (int64_t)sizeof h.handle);
		OK(chorus_event_handle(e, device, h.handle, sizeof h.handle, &h.bytes));
		GETS(CHORUS_INVALID_ARGUMENT, chorus_event_open(device, h.handle, h.bytes, &plain)); // its own
		pthread_mutex_lock(&gate);
		OK(chorus_stream_task(s, "gate", NULL, 0, passes_gate, NULL, NULL));
		OK(chorus_event_record(e, s));
	}
	chorus_op op = {.size = sizeof op, .kind = CHORUS_BROADCAST, .dtype = CHORUS_UINT8, .out = &h, .out_count = sizeof h};
	chorus_op barrier = {.size = sizeof op, .kind = CHORUS_BARRIER};
	OK(chorus_submit(c, &op, NULL));
	if (rank != 0) {
		OK(chorus_event_open(device, h.handle, h.bytes, &e));
		OK(chorus_stream_wait_event(s, e));
		GETS(CHORUS_PENDING, chorus_event_query(e));
		GETS(CHORUS_PENDING, chorus_stream_query(s));
	}
	int32_t x = 1, sum = 0;
	op = reduce_op(CHORUS_ALL_REDUCE, &x, 1, &sum, 1); // the host's memory, so that it waits for no stream
	OK(chorus_submit(c, &op, NULL));
	if (rank == 0)
		pthread_mutex_unlock(&gate);
	OK(chorus_stream_await(s, 0));
	OK(chorus_event_query(e));
	OK(chorus_submit(c, &barrier, NULL));
	OK(chorus_stream_await(s, 0));
	OK(chorus_event_release(e));
}

// Memory of rank 0 that all others have as well.
static void shared(chorus_comm c, chorus_stream s) {
	struct { int64_t bytes, offset; char handle[64]; } h = {0};
	void *p = NULL, *piece = NULL, *again, *view;
	chorus_op barrier = {.size = sizeof barrier, .kind = CHORUS_BARRIER};
	chorus_op op = {.size = sizeof op, .kind = CHORUS_BROADCAST, .dtype = CHORUS_UINT8, .out = &h, .out_count = sizeof h};
	if (rank == 0) {
		OK(chorus_cache_alloc(device, N * 4, s, &p, &view));
		put(s, p, 7);
		OK(chorus_stream_await(s, 0));
		GETS(CHORUS_INVALID_ARGUMENT, chorus_memory_handle(device, p, h.handle, 1, &h.bytes, &h.offset));
		EXPECT(h.bytes > 1 && h.bytes <= (int64_t)sizeof h.handle);
		GETS(CHORUS_INVALID_ARGUMENT, chorus_memory_handle(device, p, NULL, 8, &h.bytes, &h.offset));
		GETS(CHORUS_INVALID_ARGUMENT, chorus_memory_handle(device, &h, h.handle, sizeof h.handle, &h.bytes, &h.offset));
		OK(chorus_memory_handle(device, p, h.handle, sizeof h.handle, &h.bytes, &h.offset));
		GETS(CHORUS_INVALID_ARGUMENT, chorus_memory_open(device, h.handle, h.bytes, &piece)); // its own
		GETS(CHORUS_INVALID_ARGUMENT, chorus_memory_open(device, h.handle, h.bytes - 1, &piece));
		GETS(CHORUS_INVALID_ARGUMENT, chorus_memory_open(device, NULL, 0, &piece));
		GETS(CHORUS_INVALID_ARGUMENT, chorus_memory_close(device, p));
	}
	OK(chorus_submit(c, &op, NULL));
	for (int turn = 1; turn < size; turn++) {
		if (rank == turn) {
			chorus_attributes at = {.size = sizeof at};
			struct { int64_t bytes, offset; char handle[64]; } passed;
			OK(chorus_memory_open(device, h.handle, h.bytes, &piece));
			OK(chorus_memory_open(device, h.handle, h.bytes, &again));
			EXPECT(again == piece);
			p = (char *)piece + h.offset;
			OK(chorus_attributes_of(device, p, &at));
			EXPECT(at.kind == 2 && at.remote && at.index == rank % 2);
			wants(s, p, 7 + turn - 1);
			GETS(CHORUS_INVALID_ARGUMENT,
			     chorus_memory_handle(device, p, passed.handle, sizeof passed.handle, &passed.bytes, &passed.offset));
			OK(chorus_stream_task(s, "fill", &(chorus_span){p, N * 4}, 1, fills, NULL, (void *)(intptr_t)(7 + turn)));
			OK(chorus_stream_await(s, 0));
			OK(chorus_memory_close(device, piece));
			wants(s, p, 7 + turn); // it was opened twice
			OK(chorus_memory_close(device, piece));
			GETS(CHORUS_INVALID_ARGUMENT, chorus_memory_close(device, piece));
		}
		OK(chorus_submit(c, &barrier, NULL));
	}
	if (rank == 0) {
		wants(s, p, 7 + size - 1);
		OK(chorus_cache_free(device, p));
	}
}

struct told {
	int calls, kernels;
	int64_t last;
	chorus_stream_info on;
};

static void tells(void *user, const chorus_activity *a) {
	struct told *t = user;
	EXPECT(a->name && a->end_ns >= a->start_ns && a->start_ns >= t->last && a->device == rank % 2 && a->stream == t->on.id);
	t->last = a->start_ns;
	t->calls += a->kind == 7;
	t->kernels += a->kind == 0 && !strcmp(a->name, "fill");
}

static void profiled(chorus_stream s, void *p) {
	struct told t = {.on = {.size = sizeof t.on}};
	OK(chorus_stream_get(s, &t.on));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_profile_stop("accinte", tells, &t));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_profile_start(NULL));
	GETS(CHORUS_UNSUPPORTED, chorus_profile_start("nonesuch"));
	OK(chorus_profile_start("accinte"));
	EXPECT(chorus_profile_start("accinte") != CHORUS_OK);
	for (int i = 0; i < 3; i++)
		put(s, p, i);
	OK(chorus_stream_await(s, 0));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_profile_stop("accinte", NULL, NULL));
	OK(chorus_profile_stop("accinte", tells, &t));
	EXPECT(t.kernels == 3 && t.calls >= 3);
	GETS(CHORUS_INVALID_ARGUMENT, chorus_profile_stop("accinte", tells, &t));
	OK(chorus_profile_range("accinte", "nobody notes it", 1, 10, 20));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_profile_range("accinte", "backwards", 1, 20, 10));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_profile_range(NULL, "a", 1, 10, 20));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_profile_write("accinte", NULL));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_profile_write("accinte", "/nowhere"));
	OK(chorus_profile_start("accinte"));
	OK(chorus_profile_range("accinte", "mine", 1, 10, 20));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_profile_write("accinte", "/nonesuch/trace.json"));
	OK(chorus_profile_start("accinte")); // the other one is over
	OK(chorus_profile_write("accinte", "/dev/null"));
}

static void random_numbers(chorus_stream s, chorus_device d, void *p) {
	chorus_random r = {.size = sizeof r, .dtype = CHORUS_FLOAT32, .given = 1, .memory = p, .n = 64, .b = 1, .seed = 42, .offset = 8};
	OK(chorus_stream_random(s, &r));
	EXPECT(r.offset == 12); // four words of each sequence for up to four elements of each thread
	uint64_t seed, offset;
	OK(chorus_random_set(d, 7, 16));
	r.given = 0;
	OK(chorus_stream_random(s, &r));
	OK(chorus_random_get(d, &seed, &offset));
	EXPECT(seed == 7 && offset == 20);
	chorus_draw part = {.size = sizeof part, .words = 5};
	OK(chorus_random_take(s, &part));
	EXPECT(part.seed == 7 && part.offset == 20 && part.state == NULL);
	OK(chorus_random_get(d, &seed, &offset));
	EXPECT(offset == 28);
	part.size = 3;
	GETS(CHORUS_INVALID_ARGUMENT, chorus_random_take(s, &part));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_random_take(s, NULL));
	OK(chorus_stream_await(s, 0));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_random_set(d, 7, 3));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_random_get(d, NULL, NULL));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_stream_random(s, NULL));
	chorus_random bad = r;
	bad.kind = 77;
	GETS(CHORUS_INVALID_ARGUMENT, chorus_stream_random(s, &bad));
	bad = r, bad.kind = 6, bad.a = 2;
	GETS(CHORUS_INVALID_ARGUMENT, chorus_stream_random(s, &bad));
	bad = r, bad.dtype = CHORUS_INT32;
	GETS(CHORUS_INVALID_ARGUMENT, chorus_stream_random(s, &bad)); // uniform integers
	bad = r, bad.given = 1, bad.offset = 5;
	GETS(CHORUS_INVALID_ARGUMENT, chorus_stream_random(s, &bad));
	bad = r, bad.n = 1ll << 50;
	EXPECT(chorus_stream_random(s, &bad) != CHORUS_OK);
	// Another generator: a graph moves it on at each replay, once it's begun with it.
	chorus_generator g;
	chorus_graph graph;
	GETS(CHORUS_INVALID_ARGUMENT, chorus_generator_create(d, 3, 2, &g));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_generator_create(d, 3, 4, NULL));
	OK(chorus_generator_create(d, 3, 4, &g));
	r.generator = g;
	OK(chorus_stream_random(s, &r));
	part = (chorus_draw){.size = sizeof part, .words = 4, .generator = g};
	OK(chorus_random_take(s, &part));
	EXPECT(part.seed == 3 && part.offset == 8);
	OK(chorus_generator_set(g, 4, 8));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_generator_set(g, 4, 9));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_generator_get(g, NULL, NULL));
	OK(chorus_graph_begin(s));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_stream_random(s, &r)); // not begun with it
	GETS(CHORUS_INVALID_ARGUMENT, chorus_random_take(s, &part));
	OK(chorus_graph_end(s, NULL));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_graph_begin_with(s, NULL, NULL, 1));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_graph_begin_with(s, NULL, &g, -1));
	OK(chorus_graph_begin_with(s, NULL, (chorus_generator[2]){g, g}, 2));
	OK(chorus_stream_random(s, &r));
	OK(chorus_random_take(s, &part));
	EXPECT(part.offset == 4 && part.state);
	GETS(CHORUS_INVALID_ARGUMENT, chorus_generator_set(g, 4, 8));
	OK(chorus_graph_end(s, &graph));
	OK(chorus_graph_replay(graph, s));
	OK(chorus_graph_replay(graph, s));
	OK(chorus_generator_get(g, &seed, &offset));
	EXPECT(seed == 4 && offset == 24);
	OK(chorus_generator_release(g));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_generator_release(g));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_stream_random(s, &r));
	OK(chorus_graph_replay(graph, s)); // which keeps it
	OK(chorus_stream_await(s, 0));
	OK(chorus_graph_release(graph));
}

static void figures(void) {
	chorus_figure f[256];
	int32_t n;
	OK(chorus_device_memory_stats(device, f, 256, &n));
	EXPECT(n > 50 && n <= 256);
	int64_t allocated = -1;
	for (int i = 0; i < n; i++)
		if (!strcmp(f[i].name, "allocated_bytes.all.current"))
			allocated = f[i].value;
	EXPECT(allocated >= N * 4);
	OK(chorus_device_memory_stats(device, NULL, 0, &n));
	OK(chorus_device_reset_peak_stats(device));
	uint32_t site = chorus_site("train.py", 7, "train");
	GETS(CHORUS_INVALID_ARGUMENT, chorus_cache_came(device, NULL, NULL, 1));
	OK(chorus_cache_came(device, NULL, &site, 1)); // no allocation, and no history
	OK(chorus_device_host_stats(device, f, 256, &n));
	EXPECT(n >= 28);
	OK(chorus_device_reset_peak_host_stats(device));
	OK(chorus_device_reset_accumulated_host_stats(device));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_device_host_stats(device, NULL, 1, &n));
	OK(chorus_device_reset_accumulated_stats(device));
	OK(chorus_cache_empty(device));
}

// Memory of a device that this library has not given out is found by its driver, or said to be the device's; what is the
// device's, or was, is never taken for the host's.
static void elsewhere(chorus_comm c, chorus_stream s) {
	void *p, *view;
	chorus_device cpu, other;
	int32_t x = 1, sum = 0;
	OK(chorus_device_open("cpu", &cpu));
	OK(chorus_device_open(rank % 2 ? "accinte:0" : "accinte:1", &other));
	int32_t capable;
	OK(chorus_device_peer_capable(device, other, &capable));
	EXPECT(capable == 1);
	OK(chorus_device_peer_capable(device, device, &capable));
	EXPECT(capable == 0);
	OK(chorus_device_peer_capable(device, cpu, &capable));
	EXPECT(capable == 0);
	GETS(CHORUS_INVALID_ARGUMENT, chorus_device_peer_capable(device, other, NULL));
	OK(chorus_cache_alloc(device, N * 4, s, &p, &view));
	put(s, p, 1);
	const chorus_device said[] = {0, CHORUS_BOUND, device};
	for (int i = 0, v = 1; i < 3; i++) {
		chorus_op op = reduce_op(CHORUS_ALL_REDUCE, p, N, p, N);
		op.device = said[i];
		OK(chorus_submit(c, &op, NULL));
		wants(s, p, v *= size);
	}
	const chorus_device hosts[] = {0, CHORUS_HOST, cpu};
	for (int i = 0; i < 3; i++) {
		chorus_op op = reduce_op(CHORUS_ALL_REDUCE, &x, 1, &sum, 1);
		op.device = hosts[i];
		OK(chorus_submit(c, &op, NULL));
		EXPECT(sum == size);
	}
	chorus_op op = reduce_op(CHORUS_ALL_REDUCE, p, N, p, N);
	const chorus_device wrong[] = {other, device + 1, 3};
	for (int i = 0; i < 3; i++) {
		op.device = wrong[i];
		GETS(CHORUS_INVALID_ARGUMENT, chorus_submit(c, &op, NULL));
	}
	op = reduce_op(CHORUS_ALL_REDUCE, &x, 1, &sum, 1);
	op.device = device;
	GETS(CHORUS_INVALID_ARGUMENT, chorus_submit(c, &op, NULL));
	op.device = CHORUS_BOUND;
	GETS(CHORUS_INVALID_ARGUMENT, chorus_submit(c, &op, NULL));
	op = reduce_op(CHORUS_ALL_REDUCE, p, 1 << 24, p, 1 << 24);
	GETS(CHORUS_INVALID_ARGUMENT, chorus_submit(c, &op, NULL));
	// In a communicator of the host.
	chorus_comm h = join("host", 30 * SECOND);
	chorus_window win;
	void *gone;
	OK(chorus_cache_alloc(device, 1 << 26, 0, &gone, &view));
	OK(chorus_cache_free(device, gone));
	OK(chorus_cache_empty(device));
	void *addresses[] = {p, gone};
	for (int i = 0; i < 2; i++) {
		op = reduce_op(CHORUS_ALL_REDUCE, addresses[i], 2, addresses[i], 2);
		GETS(CHORUS_INVALID_ARGUMENT, chorus_submit(h, &op, NULL));
		EXPECT(i || (strstr(chorus_last_error()->message, "accinte") && strstr(chorus_last_error()->message, "cpu")));
		GETS(CHORUS_INVALID_ARGUMENT, chorus_window_create(h, addresses[i], 2, CHORUS_INT32, &win));
	}
	GETS(CHORUS_INVALID_ARGUMENT, chorus_submit(c, &op, NULL));
	leave(h);
	OK(chorus_cache_free(device, p));
}

void devices(void) {
	char name[32];
	int32_t n;
	OK(chorus_device_count("accinte", &n));
	EXPECT(n == 2);
	snprintf(name, sizeof name, "accinte:%d", rank % 2);
	OK(chorus_device_open(name, &device));
	chorus_device_info info = {.size = sizeof info};
	OK(chorus_device_get(device, &info));
	EXPECT(info.index == rank % 2 && !info.host_access && info.views && info.total_bytes >= info.free_bytes && info.free_bytes > 0);
	chorus_stream s, current;
	OK(chorus_stream_default(device, &s));
	OK(chorus_stream_current(device, &current));
	EXPECT(current == s);
	int32_t *p = on_device(N * sizeof *p), *q = on_device(N * sizeof *q);
	misuse(s, p);
	order(s, p);
	figures();
	profiled(s, p);
	random_numbers(s, device, p);

	chorus_store store;
	OK(chorus_store_open(address, 60 * SECOND, &store));
	chorus_comm_options o = {.size = sizeof o, .rank = rank, .world_size = size, .abort_on_error = 0, .device = name, .store = store, .timeout_ns = 30 * SECOND};
	chorus_comm c;
	OK(chorus_comm_create(&o, &c));
	OK(chorus_store_release(store));
	chorus_stream mine;
	OK(chorus_stream_create(device, 0, &mine));
	OK(chorus_stream_set_current(mine));
	chorus_op op = reduce_op(CHORUS_ALL_REDUCE, p, N, q, N), host;
	put(mine, p, rank + 1);
	OK(chorus_submit(c, &op, NULL)); // on mine
	wants(mine, q, size * (size + 1) / 2);
	chorus_work w; // on the communicator's own
	put(mine, p, 2);
	OK(chorus_submit(c, &op, &w));
	OK(chorus_stream_wait_work(mine, w));
	wants(mine, q, 2 * size);
	OK(chorus_work_wait(w, -1));
	OK(chorus_work_release(w));
	// The host's tensors, among them; and one side here, the other there.
	int32_t x = 1, sum = 0;
	host = reduce_op(CHORUS_ALL_REDUCE, &x, 1, &sum, 1);
	OK(chorus_submit(c, &host, NULL));
	EXPECT(sum == size);
	OK(chorus_submit(c, &host, &w));
	OK(chorus_work_wait(w, -1));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_stream_wait_work(mine, w));
	OK(chorus_work_release(w));
	host = reduce_op(CHORUS_ALL_REDUCE, &x, 1, p, 1);
	GETS(CHORUS_INVALID_ARGUMENT, chorus_submit(c, &host, NULL));
	// Messages around a ring, as a batch.
	put(mine, p, 100 + rank);
	chorus_op ring[2] = {{.size = sizeof(chorus_op), .kind = CHORUS_SEND, .dtype = CHORUS_INT32, .in = p, .in_count = N, .peer = (rank + 1) % size},
			     {.size = sizeof(chorus_op), .kind = CHORUS_RECV, .dtype = CHORUS_INT32, .out = q, .out_count = N, .peer = (rank + size - 1) % size}};
	OK(chorus_submit_batch(c, ring, 2, 0, NULL));
	wants(mine, q, 100 + (rank + size - 1) % size);
	// A window on the device: what this rank puts into the next one's.
	chorus_window win;
	OK(chorus_window_create(c, q, N, CHORUS_INT32, &win));
	put(mine, p, 7 + rank);
	chorus_window_op shift = {.size = sizeof shift, .kind = CHORUS_PUT, .rank = (rank + 1) % size, .data = p, .count = N};
	OK(chorus_window_submit(win, &shift, &w));
	OK(chorus_stream_wait_work(mine, w));
	OK(chorus_work_wait(w, -1));
	OK(chorus_work_release(w));
	OK(chorus_window_submit(win, &shift, NULL));
	shift = (chorus_window_op){.size = sizeof shift, .kind = CHORUS_SIGNAL, .rank = (rank + 1) % size};
	OK(chorus_window_submit(win, &shift, NULL));
	shift = (chorus_window_op){.size = sizeof shift, .kind = CHORUS_WAIT_SIGNAL, .rank = (rank + size - 1) % size};
	OK(chorus_window_submit(win, &shift, NULL));
	wants(mine, q, 7 + (rank + size - 1) % size);
	OK(chorus_window_close(win));
	// A graph of a kernel and an operation, replayed; memory that is freed while it is in use.
	static int factor = 2;
	chorus_graph g;
	OK(chorus_graph_begin(mine));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_graph_begin(mine));
	OK(chorus_stream_task(mine, "twice", &(chorus_span){p, N * 4}, 1, twice, NULL, &factor));
	OK(chorus_submit(c, &op, NULL));
	OK(chorus_graph_end(mine, &g));
	put(mine, p, 1);
	for (int i = 0; i < 4; i++)
		OK(chorus_graph_replay(g, mine));
	wants(mine, p, 16);
	wants(mine, q, 16 * size);
	uint64_t pool[2], same[2];
	char path[64], line[64] = "";
	OK(chorus_graph_pool(g, pool));
	snprintf(path, sizeof path, "/tmp/chorus-graph-%d", (int)getpid());
	OK(chorus_graph_dump(g, path));
	FILE *drawing = fopen(path, "r");
	EXPECT(drawing && fgets(line, sizeof line, drawing) && !strncmp(line, "digraph", 7));
	fclose(drawing);
	remove(path);
	GETS(CHORUS_INVALID_ARGUMENT, chorus_graph_dump(g, "/nonexistent/graph"));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_graph_begin_in(mine, (uint64_t[2]){0, 0}));
	chorus_graph second;
	OK(chorus_graph_begin_in(mine, pool));
	put(mine, p, 16);
	OK(chorus_graph_end(mine, &second));
	OK(chorus_graph_pool(second, same));
	EXPECT(same[0] == pool[0] && same[1] == pool[1]);
	OK(chorus_graph_release(second));
	OK(chorus_graph_release(g));
	if (size > 1) {
		between(c, mine, rank);
		shared(c, mine);
	}
	OK(chorus_graph_begin(mine));
	put(mine, p, 9);
	OK(chorus_graph_end(mine, NULL)); // as if nothing had been
	wants(mine, p, 16);
	OK(chorus_submit(c, &op, &w));
	elsewhere(c, mine);
	OK(chorus_cache_free(device, p));
	OK(chorus_cache_free(device, q));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_cache_free(device, q));
	OK(chorus_work_wait(w, -1));
	OK(chorus_work_release(w));
	void *pinned;
	OK(chorus_pin(device, 100, &pinned));
	memset(pinned, 1, 100);
	OK(chorus_unpin(pinned));
	OK(chorus_device_empty_host_cache(device));
	leave(c);
	OK(chorus_stream_set_current(s));
	OK(chorus_stream_release(mine));
}
