// A host with a lock, as an interpreter has one, and its interrupts; notifications and hooks.
#include <semaphore.h>

#include "harness.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // the host's
static _Atomic int leaves, enters, checks, stop;
static int token;

static void *host_leave(void) {
	leaves++;
	EXPECT(pthread_mutex_unlock(&lock) == 0);
	return &token;
}

static void host_enter(void *left) {
	EXPECT(left == &token);
	EXPECT(pthread_mutex_lock(&lock) == 0);
	enters++;
}

static int host_check(void) {
	EXPECT(pthread_mutex_trylock(&lock) != 0); // it's held
	checks++;
	return stop;
}

static void install(void) {
	chorus_host h = {.size = sizeof h, .leave = host_leave, .enter = host_enter, .check = host_check, .thread = (uint64_t)pthread_self(), .interval_ns = SECOND / 500};
	OK(chorus_set_host(&h));
	EXPECT(pthread_mutex_lock(&lock) == 0);
}

// The ranks are threads that share the lock: no rank could wait for another one that holds it.
static chorus_store store;

static void *ordinary(void *arg) {
	int r = (int)(intptr_t)arg;
	pthread_mutex_lock(&lock);
	chorus_comm c = join_as(store, "hosts", r, 2, 30 * SECOND);
	for (int i = 0; i < 100; i++) {
		int32_t x = r;
		chorus_op op = reduce_op(CHORUS_ALL_REDUCE, &x, 1, &x, 1);
		OK(chorus_submit(c, &op, NULL));
		EXPECT(x == 1);
		chorus_work w;
		OK(chorus_submit(c, &op, &w));
		OK(chorus_work_wait(w, -1));
		OK(chorus_work_release(w));
	}
	leave(c);
	pthread_mutex_unlock(&lock);
	return NULL;
}

void hosts(void) {
	install();
	OK(chorus_store_open("hash:", 0, &store));
	int before = checks; // a slow opening has asked this thread
	pthread_t t[2];
	pthread_mutex_unlock(&lock);
	for (int i = 0; i < 2; i++)
		EXPECT(pthread_create(&t[i], NULL, ordinary, (void *)(intptr_t)i) == 0);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	EXPECT(leaves == enters && leaves >= 2 * 100);
	EXPECT(checks == before); // these are not the thread that's asked
	OK(chorus_set_host(NULL));
	OK(chorus_store_release(store));
}

static void on_signal(int sig) {
	(void)sig;
	stop = 1;
}

// after sends this process the signal that a terminal's Ctrl-C sends, once the wait has been asked about.
static void *after(void *arg) {
	int before = checks;
	pthread_t *main_thread = arg;
	while (checks < before + 3)
		usleep(1000);
	pthread_kill(*main_thread, SIGINT);
	return NULL;
}

#define INTERRUPTED(call)                                                      \
	do {                                                                   \
		pthread_t self = pthread_self(), t_;                           \
		stop = 0;                                                      \
		EXPECT(pthread_create(&t_, NULL, after, &self) == 0);          \
		GETS(CHORUS_INTERRUPTED, call);                                \
		pthread_join(t_, NULL);                                        \
		EXPECT(stop == 1);                                             \
		stop = 0;                                                      \
	} while (0)

// interrupts has rank 0 wait in every way for rank 1, which doesn't come until told.
void interrupts(void) {
	struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_RESTART};
	EXPECT(sigaction(SIGINT, &act, NULL) == 0);
	install();
	chorus_comm gate = join("gate", 60 * SECOND);
	chorus_op barrier = reduce_op(CHORUS_BARRIER, NULL, 0, NULL, 0);
	int32_t x[4] = {0};
	chorus_op sum = reduce_op(CHORUS_ALL_REDUCE, x, 4, x, 4), recv = reduce_op(CHORUS_RECV, NULL, 0, x, 4);
	recv.peer = 1;

	if (rank == 0) { // creating
		chorus_store st;
		chorus_comm c;
		OK(chorus_store_open(address, 0, &st));
		chorus_comm_options o = {.size = sizeof o, .rank = 0, .world_size = 2, .name = "nobody", .store = st, .timeout_ns = 60 * SECOND};
		INTERRUPTED(chorus_comm_create(&o, &c));
		EXPECT(c == 0);
		OK(chorus_store_release(st));
	}
	OK(chorus_submit(gate, &barrier, NULL));

	chorus_comm c = join("wait", 60 * SECOND); // a work goes on
	if (rank == 0) {
		chorus_work w;
		OK(chorus_submit(c, &sum, &w));
		INTERRUPTED(chorus_work_wait(w, -1));
		GETS(CHORUS_PENDING, chorus_work_wait(w, SECOND / 100));
		OK(chorus_submit(gate, &barrier, NULL));
		OK(chorus_work_wait(w, -1));
		OK(chorus_work_release(w));
		INTERRUPTED(chorus_submit(c, &recv, NULL)); // a message leaves the communicator usable
		OK(chorus_comm_status(c));
		OK(chorus_submit(c, &recv, &w));
		INTERRUPTED(chorus_work_wait(w, -1));
		OK(chorus_work_cancel(w)); // so does one that is given up after an interrupt
		GETS(CHORUS_CANCELED, chorus_work_wait(w, -1));
		OK(chorus_work_cancel(w));
		OK(chorus_work_release(w));
		OK(chorus_comm_status(c));
		INTERRUPTED(chorus_next_done(-1, &w));
		OK(chorus_submit(gate, &barrier, NULL));
	} else {
		OK(chorus_submit(gate, &barrier, NULL));
		OK(chorus_submit(c, &sum, NULL));
		OK(chorus_submit(gate, &barrier, NULL));
	}
	OK(chorus_submit(c, &barrier, NULL));

	// A signal that the host handles and goes on.
	if (rank == 0) {
		chorus_work w;
		OK(chorus_submit(gate, &barrier, &w));
		OK(chorus_submit(c, &sum, NULL));
		OK(chorus_work_wait(w, -1));
		OK(chorus_work_release(w));
	} else {
		int before = checks;
		chorus_work w;
		OK(chorus_submit(gate, &barrier, &w));
		OK(chorus_work_wait(w, -1));
		OK(chorus_work_release(w));
		EXPECT(before <= checks);
		OK(chorus_submit(c, &sum, NULL));
	}

	// A synchronous collective that's given up aborts its communicator, and says so to the others.
	if (rank == 0) {
		INTERRUPTED(chorus_submit(c, &sum, NULL));
		EXPECT(strstr(chorus_last_error()->message, "interrupted"));
		OK(chorus_submit(gate, &barrier, NULL));
	} else {
		OK(chorus_submit(gate, &barrier, NULL));
		GETS(CHORUS_ABORTED, chorus_submit(c, &sum, NULL));
		EXPECT(chorus_last_error()->by == 0 && strstr(chorus_last_error()->detail, "interrupted"));
	}
	leave(c);

	// One that waits for its turn, and a window's signal, and a split.
	c = join("turn", 60 * SECOND);
	chorus_window win;
	OK(chorus_window_create(c, x, 4, CHORUS_INT32, &win));
	if (rank == 0) {
		chorus_window_op ws = {.size = sizeof ws, .kind = CHORUS_WAIT_SIGNAL, .rank = 1};
		INTERRUPTED(chorus_window_submit(win, &ws, NULL));
		chorus_work w;
		OK(chorus_submit(c, &sum, &w));
		INTERRUPTED(chorus_submit(c, &barrier, NULL));
		GETS(CHORUS_ABORTED, chorus_work_wait(w, -1));
		OK(chorus_work_release(w));
	}
	OK(chorus_submit(gate, &barrier, NULL));
	leave(c);
	leave(gate);
	pthread_mutex_unlock(&lock);
}

// ---- notifications and hooks ----

static sem_t told;
static _Atomic int status_told, kind_told, async_told;
static _Atomic int64_t bytes_told;

static void on_done(void *user, chorus_status status) {
	EXPECT(user == &told);
	if (status != CHORUS_OK)
		EXPECT(chorus_last_error()->status == status && chorus_last_error()->message[0]);
	status_told = status;
	sem_post(&told);
}

static void on_completion(void *user, const chorus_completion *c) {
	EXPECT(user == &told && c->size == sizeof *c && c->id > 0);
	kind_told = c->kind;
	async_told = c->async;
	bytes_told = c->bytes;
	EXPECT(c->algorithm[0]);
}

void hooked(void) {
	sem_init(&told, 0, 0);
	chorus_comm c = join("hooked", 30 * SECOND);
	int32_t x[4] = {0};
	chorus_op op = reduce_op(CHORUS_ALL_REDUCE, x, 4, x, 4);
	chorus_hook completion, aborted;
	OK(chorus_on_completion(c, on_completion, &told, &completion));
	OK(chorus_on_abort(c, on_done, &told, &aborted));
	OK(chorus_submit(c, &op, NULL));
	EXPECT(kind_told == CHORUS_ALL_REDUCE && bytes_told == 16 && !async_told);
	chorus_work w;
	OK(chorus_submit(c, &op, &w));
	OK(chorus_work_notify(w, on_done, &told));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_work_notify(w, on_done, &told));
	OK(chorus_work_release(w)); // the notification comes all the same
	sem_wait(&told);
	EXPECT(status_told == CHORUS_OK && async_told);
	OK(chorus_hook_remove(completion));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_hook_remove(completion));
	kind_told = 0;
	OK(chorus_submit(c, &op, NULL));
	EXPECT(kind_told == 0);

	if (rank == 0)
		OK(chorus_comm_abort(c, "enough"));
	sem_wait(&told);
	EXPECT(status_told == CHORUS_ABORTED);
	status_told = 0;
	chorus_status s = chorus_submit(c, &op, &w);
	if (s == CHORUS_OK) {
		OK(chorus_work_notify(w, on_done, &told));
		sem_wait(&told);
		EXPECT(status_told == CHORUS_ABORTED);
		OK(chorus_work_release(w));
	}
	leave(c);
}

// ---- the queue of works that are done ----

static void *waits(void *arg) {
	GETS(CHORUS_PENDING, chorus_next_done(-1, arg));
	return NULL;
}

void queued(void) {
	chorus_comm c = join("queued", 30 * SECOND);
	int32_t x[3] = {1, 1, 1};
	chorus_work works[3], w;
	GETS(CHORUS_PENDING, chorus_next_done(0, &w));
	for (int i = 0; i < 3; i++) {
		chorus_op op = reduce_op(CHORUS_ALL_REDUCE, &x[i], 1, &x[i], 1);
		OK(chorus_submit(c, &op, &works[i]));
		OK(chorus_work_notify(works[i], NULL, NULL));
	}
	int seen = 0;
	for (int i = 0; i < 3; i++) {
		OK(chorus_next_done(-1, &w));
		OK(chorus_work_test(w));
		for (int k = 0; k < 3; k++)
			if (w == works[k])
				seen |= 1 << k;
		OK(chorus_work_release(w));
	}
	EXPECT(seen == 7);
	OK(chorus_wake_done()); // no waiters: the next one goes
	GETS(CHORUS_PENDING, chorus_next_done(-1, &w));
	GETS(CHORUS_PENDING, chorus_next_done(SECOND / 100, &w));
	pthread_t t;
	EXPECT(pthread_create(&t, NULL, waits, &w) == 0);
	OK(chorus_wake_done()); // before or during its wait
	pthread_join(t, NULL);
	leave(c);
}
