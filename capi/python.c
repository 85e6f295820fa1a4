// Collectives of PyTorch's tensors with one call from Python. For chorus_submit, Python asks a tensor for its address,
// size and type and packs a chorus_op, which takes three times as long as a small operation.
//
// Nothing here is compiled against Python or PyTorch. Python's functions come by chorus_set_python, and what a tensor
// is by DLPack's exchange API (https://dmlc.github.io/dlpack, version 1.3), which PyTorch has from 2.10 on.

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

#define EXPORT __attribute__((visibility("default")))

static chorus_python python;
static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER; // held while the stacks are written
static void (*handler)(int); // faulthandler's, which writes all threads' stacks; NULL if there's none

// DLTensor, and the codes of its dtype.
struct view {
	void *data;
	int32_t device, device_id;
	int32_t ndim;
	uint8_t code, bits;
	uint16_t lanes;
	const int64_t *shape, *strides;
	uint64_t byte_offset;
};
enum { CPU = 1, CUDA = 2, ROCM = 10, EXTENSION = 12 /* kDLExtDev, a PrivateUse1 of PyTorch */ };
enum { INT = 0, UINT = 1, FLOAT = 2, BFLOAT = 4, BOOL = 6, FLOAT8_E4M3FN = 10, FLOAT8_E5M2 = 12 };

// dtype_of returns the dtype of a view's elements, 0 if they are none of ours. Complex numbers count as such, because
// a view doesn't tell whether it stands for the conjugates of what is in memory.
static int32_t dtype_of(const struct view *v) {
	if (v->lanes != 1)
		return 0;
	switch (v->code << 8 | v->bits) {
	case BOOL << 8 | 8: return CHORUS_BOOL;
	case UINT << 8 | 8: return CHORUS_UINT8;
	case UINT << 8 | 16: return CHORUS_UINT16;
	case UINT << 8 | 32: return CHORUS_UINT32;
	case UINT << 8 | 64: return CHORUS_UINT64;
	case INT << 8 | 8: return CHORUS_INT8;
	case INT << 8 | 16: return CHORUS_INT16;
	case INT << 8 | 32: return CHORUS_INT32;
	case INT << 8 | 64: return CHORUS_INT64;
	case FLOAT << 8 | 16: return CHORUS_FLOAT16;
	case FLOAT << 8 | 32: return CHORUS_FLOAT32;
	case FLOAT << 8 | 64: return CHORUS_FLOAT64;
	case BFLOAT << 8 | 16: return CHORUS_BFLOAT16;
	case FLOAT8_E4M3FN << 8 | 8: return CHORUS_FLOAT8_E4M3FN;
	case FLOAT8_E5M2 << 8 | 8: return CHORUS_FLOAT8_E5M2;
	}
	return 0;
}

// whole reports whether the elements that a view says have 8 bits do.
static int whole(void *tensor, int32_t dtype) {
	if (dtype != CHORUS_INT8 && dtype != CHORUS_UINT8)
		return 1;
	void *its = python.dtype_of && python.call ? python.call(python.dtype_of, &tensor, 1, NULL) : NULL;
	if (!its) {
		python.forget();
		return 0;
	}
	python.drop(its); // its address is enough
	return its == (dtype == CHORUS_INT8 ? python.int8 : python.uint8);
}

// look finds a tensor's elements, and their kind of device. It returns 0 if they have no memory, aren't contiguous, or
// aren't of a type of Chorus's.
static int look(void *tensor, void **data, int64_t *count, int32_t *dtype) {
	struct view v;
	if (!python.view)
		return 0;
	if (python.view(tensor, &v)) {
		python.forget();
		return 0;
	}
	if (!(*dtype = dtype_of(&v)) || !whole(tensor, *dtype))
		return 0;
	int64_t n = 1;
	int dense = 1;
	for (int32_t i = v.ndim - 1; i >= 0; i--) {
		if (v.strides && v.shape[i] != 1 && v.strides[i] != n)
			dense = 0;
		n *= v.shape[i];
	}
	*data = (char *)v.data + v.byte_offset;
	*count = n;
	return !n || (dense && v.data) ? v.device : 0;
}

EXPORT chorus_status chorus_set_python(const chorus_python *p) {
	if (!p || p->size < sizeof *p || !p->as_integer || !p->integer || !p->failed || !p->forget)
		return shim_incomplete();
	if (shim_forked())
		return shim_forked_error(); // the threads that held the locks may not be here
	struct sigaction now;
	pthread_mutex_lock(&looking);
	python = *p;
	handler = NULL;
	if (p->stacks_signal && !sigaction(p->stacks_signal, NULL, &now) && !(now.sa_flags & SA_SIGINFO) && now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN)
		handler = now.sa_handler;
	pthread_mutex_unlock(&looking);
	return CHORUS_OK;
}

// ---- stacks ----

const char *shim_inner(void) { return python.inner; }

// A look at the threads' frames is safe while Python's lock is held. So a thread asks for the lock. If it doesn't get
// it soon, the thread that has it is in a long C function and changes no frame, and the look is taken without the lock.
// Either thread may free the state last.
static struct look {
	pthread_mutex_t m;
	pthread_cond_t changed;
	enum { ASKED, LOOKING, LOOKED, GIVEN_UP } state;
	int users;
} *asking; // for the lock, still

static void let_go(struct look *l) {
	int users = --l->users;
	pthread_mutex_unlock(&l->m);
	if (users)
		return;
	pthread_cond_destroy(&l->changed);
	pthread_mutex_destroy(&l->m);
	free(l);
}

static void *look_with_lock(void *arg) {
	struct look *l = arg;
	int before = python.ensure();
	pthread_mutex_lock(&l->m);
	if (l->state == ASKED) {
		l->state = LOOKING;
		pthread_mutex_unlock(&l->m);
		handler(python.stacks_signal);
		pthread_mutex_lock(&l->m);
		l->state = LOOKED;
	}
	pthread_cond_signal(&l->changed);
	__atomic_store_n(&asking, NULL, __ATOMIC_RELEASE);
	let_go(l);
	python.release(before);
	return NULL;
}

enum { LOCK_WAIT_MS = 250 };

// got_lock reports whether a look was taken with Python's lock.
static int got_lock(void) {
	if (__atomic_load_n(&asking, __ATOMIC_ACQUIRE)) // the same thread has held it since then
		return 0;
	struct look *l = calloc(1, sizeof *l);
	if (!l)
		return 0;
	pthread_condattr_t steady;
	pthread_condattr_init(&steady);
	pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
	pthread_cond_init(&l->changed, &steady);
	pthread_condattr_destroy(&steady);
	pthread_mutex_init(&l->m, NULL);
	l->users = 2;
	__atomic_store_n(&asking, l, __ATOMIC_RELEASE);
	pthread_t thread;
	pthread_attr_t detached;
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	int none = pthread_create(&thread, &detached, look_with_lock, l);
	pthread_attr_destroy(&detached);
	pthread_mutex_lock(&l->m);
	if (none) {
		__atomic_store_n(&asking, NULL, __ATOMIC_RELEASE);
		l->users = 1;
		let_go(l);
		return 0;
	}
	struct timespec until;
	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &until); // glibc's own wants 2.17, or librt
	until.tv_nsec += LOCK_WAIT_MS * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000L;
	until.tv_nsec %= 1000000000L;
	int late = 0;
	while (l->state < LOOKED && !(late && l->state == ASKED))
		late = late ? (pthread_cond_wait(&l->changed, &l->m), 1) : pthread_cond_timedwait(&l->changed, &l->m, &until) == ETIMEDOUT;
	int got = l->state == LOOKED;
	if (!got)
		l->state = GIVEN_UP;
	let_go(l);
	return got;
}

int64_t shim_stacks(char *text, int64_t room) {
	if (!handler)
		return 0;
	pthread_mutex_lock(&looking);
	int fd = python.stacks_fd;
	int64_t n = 0;
	if (!ftruncate(fd, 0) && lseek(fd, 0, SEEK_SET) == 0) {
		if (python.held() || !got_lock())
			handler(python.stacks_signal);
		n = pread(fd, text, (size_t)room, 0);
	}
	pthread_mutex_unlock(&looking);
	return n > 0 ? n : 0;
}

// ---- call sites ----

// Call sites of operations are looked up by code object and instruction, so that Python is asked once for the file and
// line of each. To add one, a thread holds Python's lock, or this file's where there's none; a lookup needs no lock.
static struct place {
	_Atomic(void *) code; // stored last; keeps its reference, lest another one get its address
	int instruction;
	int32_t site; // INNER: the caller's counts
} places[8192];
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;
static int added;

enum { PLACES = sizeof places / sizeof *places, INNER = -1, DEEPEST = 64 };

// place finds where an instruction is, or the empty place for it.
static struct place *place(void *code, int instruction) {
	uint64_t h = ((uintptr_t)code ^ (uint64_t)instruction << 40) * 0x9E3779B97F4A7C15u;
	for (uint32_t i = h >> 51;; i++) {
		struct place *p = &places[i % PLACES];
		void *its = atomic_load_explicit(&p->code, memory_order_acquire);
		if (!its || (its == code && p->instruction == instruction))
			return p;
	}
}

// learn asks Python for a place that is new, and returns its site. The code object stays alive with it.
static int32_t learn(void *frame, void *code, int instruction) {
	if (added > PLACES / 2)
		return 0;
	void *result = python.call(python.site_of, &frame, 1, NULL);
	int32_t site = result ? (int32_t)python.as_integer(result) : 0;
	if (python.failed()) {
		python.forget();
		site = 0;
	}
	if (result)
		python.drop(result);
	pthread_mutex_lock(&adding);
	struct place *p = place(code, instruction);
	int fresh = !p->code;
	if (fresh) {
		p->instruction = instruction;
		p->site = site;
		atomic_store_explicit(&p->code, code, memory_order_release);
		added++;
	}
	pthread_mutex_unlock(&adding);
	if (!fresh)
		python.drop(code);
	return site;
}

// called_at returns the call site, seen from a function that is up callers away from the one that called into the library; 0 if it's unknown.
static uint32_t called_at(long long up) {
	if (!python.frame_at)
		return 0;
	void *depth = python.integer(up), *frame = NULL;
	if (depth) {
		frame = python.call(python.frame_at, &depth, 1, NULL);
		python.drop(depth);
	}
	int32_t site = INNER;
	for (int i = 0; frame && site == INNER && i < DEEPEST; i++) {
		void *code = python.code(frame);
		int instruction = python.instruction(frame);
		struct place *p = place(code, instruction);
		if (p->code) {
			site = p->site;
			python.drop(code);
		} else {
			site = learn(frame, code, instruction);
		}
		void *back = site == INNER ? python.back(frame) : NULL;
		python.drop(frame);
		frame = back;
	}
	if (frame)
		python.drop(frame);
	if (python.failed()) // there aren't so many frames
		python.forget();
	return site > 0 ? (uint32_t)site : 0;
}

EXPORT void *chorus_python_site(void *self, void *const *args, intptr_t n) {
	(void)self;
	long long up = n == 1 ? python.as_integer(args[0]) : 0;
	return python.failed() ? NULL : python.integer(called_at(up));
}

// ---- operations ----

// Where the tensors of an operation may be.
enum { HOSTS = 1, BOUND = 2 /* those of the device that the communicator is bound to */, GPUS = 4 /* likewise, of PyTorch's own */ };

// The arguments of an operation from Python.
enum { KIND, REDUCTION, ROOT, TIMEOUT, CALLERS, ISSUE, OUT, IN, ARGUMENTS };

// submit runs, or issues, the operation that Python's arguments say.
static void *submit(void *self, void *const *args, intptr_t n, int takes) {
	if (n < (takes & (BOUND | GPUS) ? IN : OUT) || n > ARGUMENTS) // a barrier is the host's
		return python.integer(CHORUS_PYTHON_OTHERWISE);
	chorus_comm comm = (chorus_comm)python.as_integer(self);
	int32_t dtype;
	long long root = python.as_integer(args[ROOT]), callers = python.as_integer(args[CALLERS]);
	int issued = python.as_integer(args[ISSUE]) != 0;
	chorus_op op = {.size = sizeof op, .kind = (int32_t)python.as_integer(args[KIND]), .reduction = (int32_t)python.as_integer(args[REDUCTION]),
		.root = (int32_t)root, .timeout_ns = python.as_integer(args[TIMEOUT]), .device = CHORUS_HOST};
	if (python.failed())
		return NULL;
	if (root != op.root)
		return python.integer(CHORUS_PYTHON_OTHERWISE);
	if (n > OUT) {
		int where = look(args[OUT], &op.out, &op.out_count, &op.dtype);
		int bound = (where == EXTENSION && takes & BOUND) || ((where == CUDA || where == ROCM) && takes & GPUS);
		if (!(where == CPU && takes & HOSTS) && !bound)
			return python.integer(CHORUS_PYTHON_OTHERWISE);
		op.in = op.out;
		op.in_count = op.out_count;
		if (n > IN && (look(args[IN], (void **)&op.in, &op.in_count, &dtype) != where || dtype != op.dtype))
			return python.integer(CHORUS_PYTHON_OTHERWISE);
		if (bound)
			op.device = CHORUS_BOUND;
	}
	op.site = called_at(callers);
	chorus_work work = 0;
	chorus_status status = chorus_submit(comm, &op, issued ? &work : NULL);
	if (python.failed()) // a signal handler's exception
		return NULL;
	return python.integer(!issued ? (long long)status : status ? -1 - (long long)status : (long long)work);
}

EXPORT void *chorus_python_submit(void *self, void *const *args, intptr_t n) { return submit(self, args, n, HOSTS); }
EXPORT void *chorus_python_submit_bound(void *self, void *const *args, intptr_t n) { return submit(self, args, n, BOUND); }
EXPORT void *chorus_python_submit_either(void *self, void *const *args, intptr_t n) { return submit(self, args, n, HOSTS | BOUND); }

// A stream of the vendor's library, while it is the calling thread's current one here.
struct entered {
	chorus_device device;
	chorus_stream stream, before;
};

// enter makes a stream that the vendor's library calls native the current one until leave. With 0 all stays as it is.
static chorus_status enter(struct entered *e, long long device, long long native) {
	*e = (struct entered){.device = (chorus_device)device};
	if (!native)
		return CHORUS_OK;
	chorus_status status = chorus_stream_adopt(e->device, (uint64_t)native, &e->stream);
	if (status)
		return status;
	e->before = shim_current(e->device);
	if ((status = chorus_stream_set_current(e->stream))) {
		chorus_stream_release(e->stream);
		e->stream = 0;
	}
	return status;
}

static void leave(struct entered *e) {
	if (!e->stream)
		return;
	shim_set_current(e->device, e->before);
	chorus_stream_release(e->stream);
}

EXPORT void *chorus_python_submit_gpu(void *self, void *const *args, intptr_t n) {
	if (n < 2)
		return python.integer(CHORUS_PYTHON_OTHERWISE);
	struct entered e;
	long long device = python.as_integer(args[0]), native = python.as_integer(args[1]);
	if (python.failed())
		return NULL;
	chorus_status status = enter(&e, device, native);
	if (status) {
		int issued = n > 2 + ISSUE && python.as_integer(args[2 + ISSUE]) != 0;
		return python.integer(issued ? -1 - (long long)status : status);
	}
	void *result = submit(self, args + 2, n - 2, BOUND | GPUS);
	leave(&e);
	return result;
}

EXPORT void *chorus_python_wait_gpu(void *self, void *const *args, intptr_t n) {
	(void)self;
	if (n != 3)
		return python.integer(CHORUS_PYTHON_OTHERWISE);
	struct entered e;
	long long device = python.as_integer(args[0]), native = python.as_integer(args[1]), work = python.as_integer(args[2]);
	if (python.failed())
		return NULL;
	chorus_status status = enter(&e, device, native);
	if (!status) {
		status = chorus_stream_wait_work(0, (chorus_work)work);
		leave(&e);
	}
	return python.integer(status);
}
