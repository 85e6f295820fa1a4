// The exported functions. Each looks at one word first, because in a forked child,
// and after a panic, Go must not be entered; then it passes its arguments on.

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"
#include "shim.h"

#define EXPORT __attribute__((visibility("default")))

// ---- state of the process ----

static _Atomic uint32_t refusal; // 0, CHORUS_PANICKED or CHORUS_FORKED
static chorus_host host;

#define NOTHING .comm = "", .op = "", .reporter = -1, .peer = -1, .by = -1, .detail = "", .rank_a = -1, .rank_b = -1, .op_a = "", .op_b = ""

static const chorus_error none = {.size = sizeof(chorus_error), .status = CHORUS_OK, .message = "no error", NOTHING};
static const chorus_error forked = {.size = sizeof(chorus_error), .status = CHORUS_FORKED, NOTHING,
	.message = "chorus: this process was made by fork from one that had loaded Chorus, whose threads a fork doesn't copy; "
		"start it with exec (in Python: multiprocessing's start methods \"spawn\" or \"forkserver\"), or don't use Chorus in it"};
static const chorus_error incomplete = {.size = sizeof(chorus_error), .status = CHORUS_INVALID_ARGUMENT, NOTHING,
	.message = "chorus: chorus_set_python got NULL, a smaller struct than this library's, or one without the functions that it needs"};
static _Atomic(const chorus_error *) panicked;

// ---- state of a thread ----

static _Thread_local struct {
	const chorus_error *last;
	chorus_error *owned; // last, if it's to be freed
	void *left;          // what host.leave returned
	int waiting;         // in a function that may block
} thread;

static pthread_key_t at_exit; // of a thread: frees its last error

static void after_fork(void) { refusal = CHORUS_FORKED; }

__attribute__((constructor)) static void loaded(void) {
	pthread_atfork(NULL, NULL, after_fork);
	pthread_key_create(&at_exit, free);
}

void shim_set_error(chorus_error *e) {
	free(thread.owned);
	thread.owned = e;
	thread.last = e;
	pthread_setspecific(at_exit, e);
}

void shim_poison(chorus_error *e) {
	const chorus_error *before = NULL;
	if (!atomic_compare_exchange_strong(&panicked, &before, e))
		free(e);
	uint32_t fine = 0;
	atomic_compare_exchange_strong(&refusal, &fine, CHORUS_PANICKED);
}

static chorus_status refuse(uint32_t why) {
	thread.last = why == CHORUS_FORKED ? &forked : panicked;
	return (chorus_status)why;
}

void shim_refuse(void) { refuse(CHORUS_PANICKED); }

chorus_status shim_forked_error(void) { return refuse(CHORUS_FORKED); }

chorus_status shim_incomplete(void) {
	thread.last = &incomplete;
	return incomplete.status;
}

#define REFUSE                                                                        \
	uint32_t refused_ = atomic_load_explicit(&refusal, memory_order_relaxed);     \
	if (__builtin_expect(refused_ != 0, 0))                                       \
	return refuse(refused_)

EXPORT const chorus_error *chorus_last_error(void) { return thread.last ? thread.last : &none; }

// ---- waiting ----

static int here(void) { return host.check && (!host.thread || host.thread == (uint64_t)(uintptr_t)pthread_self()); }

int shim_forked(void) { return refusal == CHORUS_FORKED; }
uint64_t shim_host_thread(void) { return host.thread; }

static void begin_wait(void) {
	thread.waiting++;
	if (host.leave)
		thread.left = host.leave();
}

static void end_wait(void) {
	if (host.enter)
		host.enter(thread.left);
	thread.waiting--;
}

int shim_check(void) {
	if (!thread.waiting || !here())
		return -1;
	if (host.enter)
		host.enter(thread.left);
	int stop = host.check();
	if (host.leave)
		thread.left = host.leave();
	return stop != 0;
}

// BLOCKS passes a call on that may wait. checked says whether the host wants to be asked meanwhile.
#define BLOCKS(call)                            \
	do {                                    \
		REFUSE;                         \
		int32_t checked = here();       \
		begin_wait();                   \
		chorus_status status_ = (call); \
		end_wait();                     \
		return status_;                 \
	} while (0)

// CALLS passes a call on that doesn't wait.
#define CALLS(call)           \
	do {                  \
		REFUSE;       \
		return (call); \
	} while (0)

// ISSUES passes a call on that waits seldom: only if it says so by CHORUS_PENDING, it's made again as one that may.
#define ISSUES(call, waiting)                 \
	do {                                  \
		REFUSE;                       \
		chorus_status now_ = (call);  \
		if (now_ != CHORUS_PENDING)   \
			return now_;          \
		begin_wait();                 \
		now_ = (waiting);             \
		end_wait();                   \
		return now_;                  \
	} while (0)

EXPORT chorus_status chorus_set_host(const chorus_host *h) {
	REFUSE;
	if (h && h->size < sizeof *h)
		return goRefuse((char *)"chorus_host.size is too small; set it to sizeof");
	if (h && (!h->leave != !h->enter))
		return goRefuse((char *)"a host has both leave and enter, or neither");
	if (h && h->interval_ns < 0)
		return goRefuse((char *)"chorus_host.interval_ns is negative");
	host = h ? *h : (chorus_host){0};
	return goSetInterval(host.interval_ns);
}

// ---- the library ----

EXPORT uint32_t chorus_abi_version(void) { return (uint32_t)CHORUS_ABI_MAJOR << 16 | CHORUS_ABI_MINOR; }

static const char *text(char *(*of)(void)) {
	uint32_t why = refusal;
	if (why) {
		refuse(why);
		return NULL;
	}
	return of();
}

EXPORT const char *chorus_version(void) { return text(goVersion); }
EXPORT const char *chorus_backends(void) { return text(goBackends); }

// ---- memory ----

EXPORT int32_t chorus_is_shared(const void *memory, int64_t bytes) { return refusal ? 0 : goIsShared((void *)memory, bytes); }

// ---- devices ----

static _Thread_local struct shim_current currents[SHIM_CURRENTS];

chorus_stream shim_current(chorus_device device) {
	for (int i = 0; i < SHIM_CURRENTS; i++)
		if (currents[i].device == device)
			return currents[i].stream;
	return 0;
}

int shim_set_current(chorus_device device, chorus_stream stream) {
	for (int i = 0; i < SHIM_CURRENTS; i++)
		if (currents[i].device == device || !currents[i].device) {
			currents[i].device = device;
			currents[i].stream = stream;
			return 1;
		}
	return 0;
}

EXPORT chorus_status chorus_device_reset_peak_host_stats(chorus_device device) { CALLS(goDeviceResetHostStats(device, 1)); }
EXPORT chorus_status chorus_device_reset_accumulated_host_stats(chorus_device device) {
	CALLS(goDeviceResetHostStats(device, 0));
}
EXPORT chorus_status chorus_device_reset_peak_stats(chorus_device device) { CALLS(goDeviceResetStats(device, 1)); }
EXPORT chorus_status chorus_device_reset_accumulated_stats(chorus_device device) { CALLS(goDeviceResetStats(device, 0)); }

EXPORT chorus_status chorus_stream_default(chorus_device device, chorus_stream *stream) { CALLS(goStreamCurrent(device, 1, stream)); }
EXPORT chorus_status chorus_stream_current(chorus_device device, chorus_stream *stream) { CALLS(goStreamCurrent(device, 0, stream)); }
EXPORT chorus_status chorus_stream_recover(chorus_stream stream, int64_t timeout_ns) {
	BLOCKS(goStreamSynchronize(stream, timeout_ns, 1, checked));
}

EXPORT chorus_status chorus_graph_begin(chorus_stream stream) { BLOCKS(goGraphBegin(stream, NULL, NULL, 0)); }
EXPORT chorus_status chorus_graph_begin_in(chorus_stream stream, const uint64_t pool[2]) {
	BLOCKS(goGraphBegin(stream, (uint64_t *)pool, NULL, 0));
}
EXPORT chorus_status chorus_graph_begin_with(chorus_stream stream, const uint64_t pool[2], const chorus_generator *generators,
	int32_t n) {
	BLOCKS(goGraphBegin(stream, (uint64_t *)pool, (chorus_generator *)generators, n));
}
EXPORT chorus_status chorus_graph_end(chorus_stream stream, chorus_graph *graph) { BLOCKS(goGraphEnd(stream, graph)); }

// ---- devices for frameworks ----

chorus_status shim_task(chorus_task_fn f, void *user, void **views, chorus_reply *reply) { return f(user, views, reply); }
void shim_over(chorus_over_fn over, void *user) { over(user); }

EXPORT chorus_status chorus_cache_empty(chorus_device device) { CALLS(goDeviceEmptyCache(device)); }

// LIBRARY is the memory that a library of collectives gives out, as PyTorch's pluggable allocators have it.
#define LIBRARY(name, driver)                                                                        \
	EXPORT void *chorus_##name##_alloc(int64_t bytes, int32_t device, void *stream) {            \
		(void)stream;                                                                        \
		return refusal ? NULL : goLibraryAlloc((char *)#name, (char *)driver, device, bytes);                \
	}                                                                                            \
	EXPORT void chorus_##name##_free(void *memory, int64_t bytes, int32_t device, void *stream) { \
		(void)bytes;                                                                         \
		(void)stream;                                                                        \
		if (!refusal)                                                                        \
			goLibraryFree((char *)#name, (char *)driver, device, memory);                                \
	}
LIBRARY(nccl, "cuda")
LIBRARY(ncclx, "cuda")
LIBRARY(rccl, "hip")

EXPORT chorus_status chorus_pool_end(chorus_device device, const uint64_t pool[2]) { CALLS(goPoolEnd(device, (uint64_t *)pool, 0)); }
EXPORT chorus_status chorus_pool_release(chorus_device device, const uint64_t pool[2]) {
	CALLS(goPoolEnd(device, (uint64_t *)pool, 1));
}

void shim_activity(chorus_activity_fn each, void *user, const chorus_activity *activity) { each(user, activity); }

EXPORT chorus_status chorus_stream_await(chorus_stream stream, int64_t timeout_ns) {
	CALLS(goStreamSynchronize(stream, timeout_ns, 0, 0));
}
EXPORT chorus_status chorus_event_await(chorus_event event, int64_t timeout_ns) { CALLS(goEventSynchronize(event, timeout_ns, 0)); }
EXPORT chorus_status chorus_device_await(chorus_device device, int64_t timeout_ns) {
	CALLS(goDeviceSynchronize(device, timeout_ns, 0));
}
EXPORT chorus_status chorus_stream_synchronize(chorus_stream stream, int64_t timeout_ns) {
	BLOCKS(goStreamSynchronize(stream, timeout_ns, 0, checked));
}

// ---- stores ----

EXPORT void chorus_reply_value(chorus_reply *r, const void *data, int64_t bytes) {
	if (!r)
		return;
	void *copy = bytes > 0 && data ? malloc((size_t)bytes) : NULL;
	if (copy)
		memcpy(copy, data, (size_t)bytes);
	free(r->data);
	r->data = copy;
	r->bytes = copy ? bytes : 0;
}

EXPORT void chorus_reply_error(chorus_reply *r, const char *message) {
	if (!r)
		return;
	free(r->error);
	r->error = message ? strdup(message) : NULL;
}

chorus_status shim_store_set(const chorus_store_callbacks *c, const char *key, const void *value, int64_t bytes, chorus_reply *r) {
	return c->set(c->user, key, value, bytes, r);
}
chorus_status shim_store_get(const chorus_store_callbacks *c, const char *key, int64_t timeout_ns, chorus_reply *r) {
	return c->get(c->user, key, timeout_ns, r);
}
chorus_status shim_store_add(const chorus_store_callbacks *c, const char *key, int64_t delta, int64_t *sum, chorus_reply *r) {
	return c->add(c->user, key, delta, sum, r);
}
chorus_status shim_store_wait(const chorus_store_callbacks *c, const char *const *keys, int32_t n, int64_t timeout_ns, chorus_reply *r) {
	return c->wait(c->user, keys, n, timeout_ns, r);
}
chorus_status shim_store_check(const chorus_store_callbacks *c, const char *const *keys, int32_t n, int32_t *all, chorus_reply *r) {
	return c->check ? c->check(c->user, keys, n, all, r) : CHORUS_UNSUPPORTED;
}
chorus_status shim_store_compare_set(const chorus_store_callbacks *c, const char *key, const void *expected, int64_t expected_bytes,
	const void *desired, int64_t desired_bytes, chorus_reply *r) {
	return c->compare_set ? c->compare_set(c->user, key, expected, expected_bytes, desired, desired_bytes, r) : CHORUS_UNSUPPORTED;
}
chorus_status shim_store_remove(const chorus_store_callbacks *c, const char *key, int32_t *existed, chorus_reply *r) {
	return c->remove ? c->remove(c->user, key, existed, r) : CHORUS_UNSUPPORTED;
}
chorus_status shim_store_num_keys(const chorus_store_callbacks *c, int64_t *n, chorus_reply *r) {
	return c->num_keys ? c->num_keys(c->user, n, r) : CHORUS_UNSUPPORTED;
}
void shim_store_released(const chorus_store_callbacks *c) {
	if (c->released)
		c->released(c->user);
}

// ---- communicators ----

EXPORT chorus_status chorus_comm_suspend(chorus_comm comm) { BLOCKS(goCommSuspend(comm, 0, checked)); }
EXPORT chorus_status chorus_comm_resume(chorus_comm comm) { BLOCKS(goCommSuspend(comm, 1, checked)); }
EXPORT chorus_status chorus_register(chorus_comm comm, void *memory, int64_t bytes) { CALLS(goRegister(comm, memory, bytes, 1)); }
EXPORT chorus_status chorus_deregister(chorus_comm comm, void *memory, int64_t bytes) { CALLS(goRegister(comm, memory, bytes, 0)); }
EXPORT chorus_status chorus_register_symmetric(chorus_comm comm, void *const *blocks, const int64_t *bytes, int32_t n) {
	BLOCKS(goRegisterSymmetric(comm, (void **)blocks, (int64_t *)bytes, n, 1, checked));
}
EXPORT chorus_status chorus_deregister_symmetric(chorus_comm comm, void *const *blocks, const int64_t *bytes, int32_t n) {
	BLOCKS(goRegisterSymmetric(comm, (void **)blocks, (int64_t *)bytes, n, 0, checked));
}

// ---- operations ----

EXPORT chorus_status chorus_submit(chorus_comm comm, chorus_op *op, chorus_work *work) {
	if (work)
		ISSUES(goIssue(comm, op, work, 0), goIssue(comm, op, work, 1));
	BLOCKS(goSubmit(comm, op, checked, currents));
}
EXPORT chorus_status chorus_stream_wait_work(chorus_stream stream, chorus_work work) {
	ISSUES(goStreamWaitWork(stream, work, 0, 0), goStreamWaitWork(stream, work, 1, here()));
}
EXPORT uint32_t chorus_site(const char *file, int32_t line, const char *function) {
	return refusal ? 0 : goSite((char *)file, line, (char *)function);
}
EXPORT chorus_status chorus_raised(const char *what, const char *file, int32_t line, const char *function) {
	BLOCKS(goRaised((char *)what, (char *)file, line, (char *)function));
}
EXPORT chorus_status chorus_submit_batch(chorus_comm comm, chorus_op *ops, int32_t n, int64_t timeout_ns, chorus_work *work) {
	if (work)
		ISSUES(goIssueBatch(comm, ops, n, timeout_ns, work, 0), goIssueBatch(comm, ops, n, timeout_ns, work, 1));
	BLOCKS(goSubmitBatch(comm, ops, n, timeout_ns, checked));
}
EXPORT chorus_status chorus_work_wait(chorus_work work, int64_t timeout_ns) {
	REFUSE;
	chorus_status now = goWorkTest(work);
	if (now != CHORUS_PENDING || timeout_ns == 0)
		return now;
	BLOCKS(goWorkWait(work, timeout_ns, checked));
}

// ---- windows ----

EXPORT chorus_status chorus_window_submit(chorus_window window, const chorus_window_op *op, chorus_work *work) {
	if (work)
		CALLS(goWindowIssue(window, (chorus_window_op *)op, work));
	BLOCKS(goWindowSubmit(window, (chorus_window_op *)op, checked));
}

// ---- hooks ----

void shim_done(chorus_done_fn done, void *user, chorus_status status, chorus_error *e) {
	if (e)
		shim_set_error(e);
	done(user, status);
}

void shim_completion(chorus_completion_fn done, void *user, const chorus_completion *completion) { done(user, completion); }

// ---- what only passes its arguments on ----

#include "forwards.h"
