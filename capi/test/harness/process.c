// The process: forks, panics, and leftovers after many uses.
#include <dirent.h>
#include <sys/wait.h>

#include "harness.h"

void forked(void) {
	chorus_comm c = join("forked", 30 * SECOND);
	int32_t x[2] = {1, 2};
	chorus_op op = reduce_op(CHORUS_ALL_REDUCE, x, 2, x, 2);
	OK(chorus_submit(c, &op, NULL));
	pid_t child = fork();
	EXPECT(child >= 0);
	if (child == 0) {
		alarm(20); // nothing may hang here
		void *p;
		chorus_comm none;
		chorus_comm_options o = {.size = sizeof o, .rank = 0, .world_size = 1};
		chorus_python python = {.size = sizeof python};
		GETS(CHORUS_INVALID_ARGUMENT, chorus_set_python(&python));
		EXPECT(strstr(chorus_last_error()->message, "chorus_set_python"));
		memset(&python, 1, sizeof python); // functions that are never called
		python.size = sizeof python;
		GETS(CHORUS_FORKED, chorus_set_python(&python));
		EXPECT(strstr(chorus_last_error()->message, "fork"));
		GETS(CHORUS_FORKED, chorus_submit(c, &op, NULL));
		EXPECT(strstr(chorus_last_error()->message, "fork") && strstr(chorus_last_error()->message, "spawn"));
		GETS(CHORUS_FORKED, chorus_submit(c, &op, &(chorus_work){0}));
		GETS(CHORUS_FORKED, chorus_comm_create(&o, &none));
		GETS(CHORUS_FORKED, chorus_comm_finalize(c, 0));
		GETS(CHORUS_FORKED, chorus_comm_release(c));
		GETS(CHORUS_FORKED, chorus_alloc(8, 0, &p));
		GETS(CHORUS_FORKED, chorus_free(p));
		GETS(CHORUS_FORKED, chorus_work_wait(1, -1));
		GETS(CHORUS_FORKED, chorus_next_done(-1, &(chorus_work){0}));
		GETS(CHORUS_FORKED, chorus_set_host(NULL));
		EXPECT(!chorus_backends() && !chorus_version() && !chorus_is_shared(x, 8) && chorus_abi_version());
		exit(42); // with exit handlers
	}
	int status;
	EXPECT(waitpid(child, &status, 0) == child);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 42)
		DIE("the child ended with %#x", status);
	OK(chorus_submit(c, &op, NULL)); // the parent is as it was
	EXPECT(x[0] == size * size);
	leave(c);
}

__attribute__((weak)) chorus_status chorus_debug_panic(int32_t elsewhere); // in test builds only

void panicked(void) {
	chorus_comm c = join("panicked", 30 * SECOND);
	chorus_op barrier = reduce_op(CHORUS_BARRIER, NULL, 0, NULL, 0);
	OK(chorus_submit(c, &barrier, NULL)); // no thread is still creating it
	GETS(CHORUS_PANICKED, chorus_debug_panic(rank % 2)); // of ranks, one here and one on a goroutine
	EXPECT(strstr(chorus_last_error()->message, "asked to") && !strcmp(chorus_last_error()->detail, "asked to"));
	int32_t x[2] = {0};
	chorus_op op = reduce_op(CHORUS_ALL_REDUCE, x, 2, x, 2);
	GETS(CHORUS_PANICKED, chorus_submit(c, &op, NULL));
	GETS(CHORUS_PANICKED, chorus_comm_finalize(c, 0));
	EXPECT(strstr(chorus_last_error()->message, "asked to"));
	GETS(CHORUS_PANICKED, chorus_debug_panic(0));
	EXPECT(!chorus_backends());
}

static int entries(const char *path) {
	DIR *d = opendir(path);
	int n = 0;
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

// resident is the process's memory in pages.
static long resident(void) {
	long total, pages;
	FILE *f = fopen("/proc/self/statm", "r");
	EXPECT(f && fscanf(f, "%ld %ld", &total, &pages) == 2);
	fclose(f);
	return pages;
}

void cycles(void) {
	chorus_store store;
	OK(chorus_store_open("hash:", 0, &store));
	chorus_comm shared = join("cycles", 60 * SECOND);
	const char *n = getenv("CYCLES");
	int rounds = n ? atoi(n) : 10000;
	int fds = 0, tasks = 0;
	long pages = 0;
	for (int i = 0; i < rounds; i++) {
		if (i == rounds / 4) { // by then everything is as large as it gets
			fds = entries("/proc/self/fd");
			tasks = entries("/proc/self/task");
			pages = resident();
		}
		char name[32];
		snprintf(name, sizeof name, "c%d", i);
		chorus_comm c = join_as(store, name, 0, 1, 30 * SECOND);
		int64_t *p;
		OK(chorus_alloc(4096, 0, (void **)&p));
		chorus_op op = reduce_op(CHORUS_ALL_REDUCE, p, 16, p, 16);
		OK(chorus_submit(c, &op, NULL));
		chorus_work w;
		OK(chorus_submit(c, &op, &w));
		if (i % 2)
			OK(chorus_work_wait(w, -1));
		chorus_hook h;
		extern void ignored(void *, chorus_status);
		OK(chorus_on_abort(c, ignored, NULL, &h));
		if (i % 3)
			OK(chorus_hook_remove(h));
		OK(chorus_work_release(w));
		GETS(CHORUS_INVALID_ARGUMENT, chorus_work_release(w)); // makes an error, too
		leave(c);
		OK(chorus_free(p));
		if (i % 100 == 0) { // with other processes
			chorus_split_options o = {.size = sizeof o, .ranks = (int32_t[]){0, 1, 2, 3}, .n_ranks = size};
			chorus_comm part;
			OK(chorus_comm_split(shared, &o, &part));
			int32_t x = 1;
			op = reduce_op(CHORUS_ALL_REDUCE, &x, 1, &x, 1);
			OK(chorus_submit(part, &op, NULL));
			EXPECT(x == size);
			chorus_window win;
			OK(chorus_window_create(part, &x, 1, CHORUS_INT32, &win));
			OK(chorus_window_close(win));
			leave(part);
		}
	}
	leave(shared);
	OK(chorus_store_release(store));
	int more_fds = entries("/proc/self/fd") - fds, more_tasks = entries("/proc/self/task") - tasks;
	long more_pages = resident() - pages;
	if (more_fds > 0 || more_tasks > 8 || more_pages > 8192) // 32 MiB: the collector's breath
		DIE("after %d cycles there are %d more descriptors, %d more threads, %ld more pages", rounds, more_fds, more_tasks, more_pages);
}

void ignored(void *user, chorus_status status) {
	(void)user;
	(void)status;
}

// of_task reads a number from a file of a thread: the one after a word, or the first if there's no word; -1 if it can't be read.
static long of_task(const char *task, const char *file, const char *word) {
	char path[300], line[256];
	snprintf(path, sizeof path, "/proc/%s/%s", task, file);
	FILE *f = fopen(path, "r");
	if (!f)
		return -1;
	long n = -1;
	while (n < 0 && fgets(line, sizeof line, f))
		if (!word || !strncmp(line, word, strlen(word)))
			n = atol(word ? line + strlen(word) : line);
	fclose(f);
	return n;
}

#define WOKEN "voluntary_ctxt_switches:"

static void *one_more(void *arg) {
	chorus_is_shared(arg, 8);
	return NULL;
}

// Of the threads, the runtime's monitor alone has slack in its timers: the one that is woken most often by calls that come after pauses.
void monitored(void) {
	chorus_comm c = join("monitored", 30 * SECOND);
	int32_t x[2] = {1, 2};
	pthread_t others[8];
	for (int i = 0; i < 8; i++) // so that the runtime makes more threads
		EXPECT(!pthread_create(&others[i], NULL, one_more, x));
	for (int i = 0; i < 8; i++)
		EXPECT(!pthread_join(others[i], NULL));

	struct {
		char id[256];
		long slack, woken;
	} threads[64];
	int n = 0, monitor = -1;
	DIR *d = opendir("/proc/self/task");
	for (struct dirent *e; (e = readdir(d));) {
		if (*e->d_name == '.' || atoi(e->d_name) == getpid())
			continue;
		EXPECT(n < 64);
		snprintf(threads[n].id, sizeof threads[n].id, "%s", e->d_name);
		threads[n].slack = of_task(e->d_name, "timerslack_ns", NULL);
		threads[n].woken = of_task(e->d_name, "status", WOKEN);
		n++;
	}
	closedir(d);
	for (int i = 0; i < 20; i++) {
		usleep(50000);
		chorus_is_shared(x, 8);
	}
	int most = 0;
	for (int i = 0; i < n; i++) {
		if (threads[i].slack < 0) {
			printf("left out: only root sees the timers of other threads\n");
			leave(c);
			return;
		}
		threads[i].woken = of_task(threads[i].id, "status", WOKEN) - threads[i].woken;
		if (threads[i].woken > threads[most].woken)
			most = i;
		if (threads[i].slack == 10000000) {
			EXPECT(monitor < 0);
			monitor = i;
		}
	}
	if (getenv("CHORUS_MONITOR_SLACK") != NULL) {
		EXPECT(monitor < 0);
		leave(c);
		return;
	}
	EXPECT(monitor >= 0);
	if (monitor != most || threads[most].woken < 20)
		DIE("thread %s has slack, and was woken %ld times; thread %s %ld times", threads[monitor].id, threads[monitor].woken,
		    threads[most].id, threads[most].woken);
	leave(c);
}
