// Many threads at once: ranks that are threads, over a store of callbacks, and calls on one communicator.
#include <errno.h>
#include <time.h>

#include "harness.h"

// ---- a store in C ----

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct {
	char key[128];
	void *value;
	int64_t bytes;
} table[4096];
static int used, released;

static int find(const char *key) {
	for (int i = 0; i < used; i++)
		if (!strcmp(table[i].key, key))
			return i;
	return -1;
}

static void put(const char *key, const void *value, int64_t bytes) {
	int i = find(key);
	if (i < 0) {
		EXPECT(used < 4096 && strlen(key) < 128);
		i = used++;
		strcpy(table[i].key, key);
	}
	free(table[i].value);
	table[i].value = malloc(bytes ? (size_t)bytes : 1);
	memcpy(table[i].value, value, (size_t)bytes);
	table[i].bytes = bytes;
	pthread_cond_broadcast(&changed);
}

static chorus_status set(void *user, const char *key, const void *value, int64_t bytes, chorus_reply *r) {
	(void)user, (void)r;
	pthread_mutex_lock(&mu);
	put(key, value, bytes);
	pthread_mutex_unlock(&mu);
	return CHORUS_OK;
}

static chorus_status wait_all(void *user, const char *const *keys, int32_t n, int64_t timeout_ns, chorus_reply *r) {
	(void)user, (void)r;
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += timeout_ns / SECOND;
	until.tv_nsec += timeout_ns % SECOND;
	if (until.tv_nsec >= SECOND) {
		until.tv_sec++;
		until.tv_nsec -= SECOND;
	}
	int late = 0;
	pthread_mutex_lock(&mu);
	for (int32_t i = 0; i < n && !late; i++)
		while (find(keys[i]) < 0 && !late)
			late = pthread_cond_timedwait(&changed, &mu, &until) == ETIMEDOUT;
	pthread_mutex_unlock(&mu);
	return late ? CHORUS_TIMEOUT : CHORUS_OK;
}

static chorus_status get(void *user, const char *key, int64_t timeout_ns, chorus_reply *r) {
	chorus_status s = wait_all(user, &key, 1, timeout_ns, r);
	if (s != CHORUS_OK)
		return s;
	pthread_mutex_lock(&mu);
	int i = find(key);
	chorus_reply_value(r, table[i].value, table[i].bytes);
	pthread_mutex_unlock(&mu);
	return CHORUS_OK;
}

static chorus_status add(void *user, const char *key, int64_t delta, int64_t *sum, chorus_reply *r) {
	(void)user, (void)r;
	char text[32] = "0";
	pthread_mutex_lock(&mu);
	int i = find(key);
	if (i >= 0)
		memcpy(text, table[i].value, (size_t)table[i].bytes);
	*sum = atoll(text) + delta;
	int n = snprintf(text, sizeof text, "%lld", (long long)*sum);
	put(key, text, n);
	pthread_mutex_unlock(&mu);
	return CHORUS_OK;
}

static chorus_status check(void *user, const char *const *keys, int32_t n, int32_t *all, chorus_reply *r) {
	(void)user, (void)r;
	*all = 1;
	pthread_mutex_lock(&mu);
	for (int32_t i = 0; i < n; i++)
		*all &= find(keys[i]) >= 0;
	pthread_mutex_unlock(&mu);
	return CHORUS_OK;
}

static chorus_status broken_set(void *user, const char *key, const void *value, int64_t bytes, chorus_reply *r) {
	(void)user, (void)key, (void)value, (void)bytes;
	chorus_reply_error(r, "the disk is full");
	return CHORUS_INTERNAL;
}

static void on_release(void *user) { ++*(int *)user; }

static chorus_store c_store(int broken, int absent_check) {
	chorus_store_callbacks c = {.size = sizeof c, .user = &released, .set = broken ? broken_set : set, .get = get, .add = add, .wait = wait_all,
				    .check = absent_check ? NULL : check, .released = on_release};
	chorus_store s;
	OK(chorus_store_from_callbacks(&c, &s));
	return s;
}

static chorus_store common;

static void *a_rank(void *arg) {
	int r = (int)(intptr_t)arg;
	chorus_comm c = join_as(common, "threads", r, 3, 30 * SECOND);
	int32_t x = r;
	chorus_op op = reduce_op(CHORUS_ALL_REDUCE, &x, 1, &x, 1);
	OK(chorus_submit(c, &op, NULL));
	EXPECT(x == 3);
	leave(c);
	return NULL;
}

void callbacks(void) {
	common = c_store(0, 0);
	pthread_t t[3];
	for (int i = 0; i < 3; i++)
		EXPECT(pthread_create(&t[i], NULL, a_rank, (void *)(intptr_t)i) == 0);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	EXPECT(released == 0);
	chorus_comm c;
	chorus_comm_options o = {.size = sizeof o, .rank = 0, .world_size = 2, .name = "alone", .store = common, .timeout_ns = SECOND / 5};
	GETS(CHORUS_TIMEOUT, chorus_comm_create(&o, &c));
	EXPECT(chorus_last_error()->n_missing == 1 && chorus_last_error()->missing[0] == 1);
	OK(chorus_store_release(common));
	EXPECT(released == 1);

	o.store = common = c_store(0, 1); // longer than one turn
	o.name = "patient";
	o.timeout_ns = SECOND * 3 / 2;
	GETS(CHORUS_TIMEOUT, chorus_comm_create(&o, &c));
	OK(chorus_store_release(common));

	o.store = common = c_store(1, 0);
	o.name = "unlucky";
	GETS(CHORUS_INTERNAL, chorus_comm_create(&o, &c));
	EXPECT(strstr(chorus_last_error()->message, "the disk is full"));
	OK(chorus_store_release(common));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_comm_create(&o, &c));
	EXPECT(released == 3);
	for (int i = 0; i < used; i++)
		free(table[i].value);
}

// ---- one communicator ----

static chorus_comm together;

static void *talk(void *arg) {
	int me = (int)(intptr_t)arg, peer = 1 - rank;
	enum { N = 1000 };
	int32_t *out = malloc(N * sizeof *out), *in = malloc(N * sizeof *in);
	for (int round = 0; round < 50; round++) {
		for (int i = 0; i < N; i++)
			out[i] = me * 1000000 + round * 1000 + i;
		chorus_op ops[2] = {reduce_op(CHORUS_SEND, out, N, NULL, 0), reduce_op(CHORUS_RECV, NULL, 0, in, N)};
		ops[0].peer = ops[1].peer = peer;
		ops[0].tag = ops[1].tag = me;
		chorus_work w;
		switch (round % 3) {
		case 0:
			OK(chorus_submit(together, &ops[0], &w));
			OK(chorus_submit(together, &ops[1], NULL));
			OK(chorus_work_wait(w, -1));
			OK(chorus_work_release(w));
			break;
		case 1:
			OK(chorus_submit_batch(together, ops, 2, 0, NULL));
			break;
		case 2:
			OK(chorus_submit_batch(together, ops, 2, 0, &w));
			while (chorus_work_test(w) == CHORUS_PENDING)
				chorus_work_wait(w, 1000);
			OK(chorus_work_test(w));
			OK(chorus_work_release(w));
		}
		EXPECT(!memcmp(in, out, N * sizeof *in));
		// Collectives of threads come in any order, so all are alike.
		int32_t one = 1;
		chorus_op op = reduce_op(CHORUS_ALL_REDUCE, &one, 1, &one, 1);
		OK(chorus_submit(together, &op, NULL));
		EXPECT(one == 2);
		GETS(CHORUS_INVALID_ARGUMENT, chorus_work_test(12345));
	}
	free(out);
	free(in);
	return NULL;
}

void threads(void) {
	together = join("together", 60 * SECOND);
	pthread_t t[6];
	for (int i = 0; i < 6; i++)
		EXPECT(pthread_create(&t[i], NULL, talk, (void *)(intptr_t)i) == 0);
	for (int i = 0; i < 6; i++)
		pthread_join(t[i], NULL);
	leave(together);
}
