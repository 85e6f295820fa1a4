//go:build linux && go1.26 && !go1.27 && !race

// A thread of C that calls Go takes a processor of Go's runtime along when it returns, and the runtime's monitor, a
// thread of its own, takes that away again. (runtime/proc.go of Go 1.26: retake spares a thread for 10 ms only if
// goroutines run on its processor, which under calls from C none do.) Then all processors are idle, the monitor goes to
// sleep, and the next call has to wake it up. That takes 25 to 50 us in a virtual machine, several times as long as a
// small operation. A woken monitor looks every 20 us, so that a program that computes for 0.1 ms between its calls pays
// for each of them.
//
// So the monitor's timers get slack: the kernel may let it sleep for 10 ms longer, the longest that it sleeps when
// nothing happens. On a busy core it wakes with the next tick of the kernel's clock. Several calls then find their
// processor as they left it, and computations are interrupted less often. prctl sets the slack of the calling thread
// alone, and threads inherit it from their creator. So it's set here: a pthread_create of this library's own creates
// its threads, by calling the system's. chorus.map keeps it local, so that it doesn't affect the program's threads.
// (With the race detector the library is linked into the program.)
//
// The monitor is the second thread that the runtime creates: its main goroutine creates it before anything else. The
// runtime is a part of the library, so that this holds for all libraries of a version of Go or for none. The first line
// lists the versions for which TestMonitor has shown it. With other versions, or with CHORUS_MONITOR_SLACK=0, the slack
// isn't changed.

#define _GNU_SOURCE // RTLD_NEXT
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>

enum { MONITORS_SLACK = 10000000 }; // ns

typedef int create_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

static atomic_int created;
static atomic_long usual; // slack of the runtime's threads

int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attr, void *(*run)(void *), void *restrict arg) {
	static _Atomic(create_function *) system;
	create_function *create = system;
	if (create == NULL) {
		create = (create_function *)dlsym(RTLD_NEXT, "pthread_create");
		if (create == NULL)
			return EAGAIN; // no system has none; Go's runtime says then that a thread could not be created
		system = create;
	}
	const char *off = getenv("CHORUS_MONITOR_SLACK");
	if (off != NULL && off[0] == '0')
		return create(thread, attr, run, arg);
	long own = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), its = own;
	if (created++ == 1) { // the first is the runtime's main thread, which creates the monitor before anything else
		usual = own;
		its = MONITORS_SLACK;
	} else if (own == MONITORS_SLACK) {
		its = usual; // the monitor creates threads, too
	}
	if (its > 0 && its != own)
		prctl(PR_SET_TIMERSLACK, its, 0, 0, 0);
	int err = create(thread, attr, run, arg);
	if (its > 0 && its != own)
		prctl(PR_SET_TIMERSLACK, own, 0, 0, 0);
	if (err)
		created--; // the runtime tries again
	return err;
}
