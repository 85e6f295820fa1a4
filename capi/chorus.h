/*
 * chorus.h: Chorus from C, and from every language that can call C.
 *
 * How to use it: docs/capi.md. capi/gen writes the lines between "gen" and "end"
 * from tables in Go; the others are written here.
 *
 *	chorus_comm comm;
 *	chorus_comm_options options = {.size = sizeof options, .rank = -1, .abort_on_error = -1};
 *	if (chorus_comm_create(&options, &comm) != CHORUS_OK)	// rank, size and store from the launcher
 *		return fail(chorus_last_error()->message);
 *
 *	float x[1024];
 *	chorus_op op = {.size = sizeof op, .kind = CHORUS_ALL_REDUCE, .dtype = CHORUS_FLOAT32, .reduction = CHORUS_SUM,
 *			.in = x, .in_count = 1024, .out = x, .out_count = 1024};
 *	chorus_submit(comm, &op, NULL);				// done when it returns
 *
 * Status. Every function that can fail returns a chorus_status, CHORUS_OK or
 * why not; chorus_last_error() has the facts. Nothing ends the process unless
 * abort_on_error asks for it.
 *
 * Structs begin with their size, which the caller sets to sizeof: a newer
 * library fills in what an older caller doesn't know. Unused fields are zero.
 *
 * Handles are numbers and never reused; 0 is none. A handle that was released
 * is refused with CHORUS_INVALID_ARGUMENT. What takes a handle may be called
 * from any thread.
 *
 * Memory passed in belongs to the caller. Structs, strings and arrays are copied
 * before a function returns; the elements of tensors must stay where they are
 * until the operation is done, whether or not its work is still held.
 *
 * [blocks] marks functions that may wait for other ranks, a store or a work.
 * Every such wait has a deadline. See chorus_set_host for interrupting them.
 *
 * fork. In a child made by fork without exec, every function returns
 * CHORUS_FORKED. Panics. After a bug in the library was caught, every function
 * returns CHORUS_PANICKED, and chorus_last_error() says where it was.
 */
#ifndef CHORUS_H
#define CHORUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The ABI that this header describes. Within one major version, functions,
 * fields at the end of structs and constants are only added. */
#define CHORUS_ABI_MAJOR 1
#define CHORUS_ABI_MINOR 0

#ifndef CHORUS_API
#define CHORUS_API
#endif

/* ---- constants ---- */

/* chorus_status says how a call ended. */
typedef int32_t chorus_status;
enum {
	CHORUS_OK = 0,
	CHORUS_INVALID_ARGUMENT = 1, /* refused before any byte moved; nothing has changed */
	CHORUS_MISMATCH = 2,         /* ranks call different operations */
	CHORUS_TIMEOUT = 3,
	CHORUS_PEER_LOST = 4,        /* a rank died, or its link broke */
	CHORUS_ABORTED = 5,          /* a rank called chorus_comm_abort, or was interrupted in a collective */
	CHORUS_UNSUPPORTED = 6,      /* by the backend, the device or this machine */
	CHORUS_INTERNAL = 7,         /* what should not have happened */
	CHORUS_FINALIZED = 8,        /* the communicator is finalized */
	CHORUS_CANCELED = 9,         /* a message was given up; the communicator stays usable */
	CHORUS_OUT_OF_MEMORY = 10,   /* of a device */
	CHORUS_WORK_FAILED = 11,     /* of a stream, which carries it until chorus_stream_recover, for a reason that is none of the above */
	CHORUS_PENDING = 16,         /* the work is under way */
	CHORUS_INTERRUPTED = 17,     /* the host's check said so; a work goes on, a synchronous collective has aborted its communicator */
	CHORUS_PANICKED = 18,        /* a bug of the library was caught; it can't be used any more */
	CHORUS_FORKED = 19,          /* the library does not work in a child made by fork */
};

/* The element types. */
enum {
	/* gen: types of elements */
	CHORUS_BOOL = 1,           /* 1 byte */
	CHORUS_UINT8 = 2,          /* 1 byte */
	CHORUS_UINT16 = 3,         /* 2 bytes */
	CHORUS_UINT32 = 4,         /* 4 bytes */
	CHORUS_UINT64 = 5,         /* 8 bytes */
	CHORUS_INT8 = 6,           /* 1 byte */
	CHORUS_INT16 = 7,          /* 2 bytes */
	CHORUS_INT32 = 8,          /* 4 bytes */
	CHORUS_INT64 = 9,          /* 8 bytes */
	CHORUS_FLOAT16 = 10,       /* 2 bytes */
	CHORUS_BFLOAT16 = 11,      /* 2 bytes */
	CHORUS_FLOAT8_E4M3FN = 12, /* 1 byte */
	CHORUS_FLOAT8_E5M2 = 13,   /* 1 byte */
	CHORUS_FLOAT32 = 14,       /* 4 bytes */
	CHORUS_FLOAT64 = 15,       /* 8 bytes */
	CHORUS_COMPLEX64 = 16,     /* 8 bytes */
	CHORUS_COMPLEX128 = 17,    /* 16 bytes */
	/* end */
};

/* The operations, with the fields of chorus_op that each uses. Counts are
 * elements; n is the number of ranks. Inputs are never written. */
enum {
	/* gen: operations */
	CHORUS_SEND = 1,                   /* in, peer, tag */
	CHORUS_RECV = 2,                   /* out, peer or CHORUS_ANY, tag */
	CHORUS_BROADCAST = 3,              /* out (root's is the source), root */
	CHORUS_ALL_REDUCE = 4,             /* in, out (may be one), reduction */
	CHORUS_REDUCE = 5,                 /* in, out (root only; may be one), root, reduction */
	CHORUS_ALL_GATHER = 6,             /* in, outs: in_count each */
	CHORUS_ALL_GATHER_SINGLE = 7,      /* in, out: n * in_count */
	CHORUS_ALL_GATHER_V = 8,           /* in, outs of any sizes, the same on all ranks */
	CHORUS_REDUCE_SCATTER = 9,         /* ins: out_count each; out, reduction */
	CHORUS_REDUCE_SCATTER_SINGLE = 10, /* in: n * out_count; out, reduction */
	CHORUS_REDUCE_SCATTER_V = 11,      /* ins of any sizes, the same on all ranks; out, reduction */
	CHORUS_ALL_TO_ALL = 12,            /* ins, outs of any sizes */
	CHORUS_ALL_TO_ALL_SINGLE = 13,     /* in, out: n equal blocks each */
	CHORUS_ALL_TO_ALL_V_SINGLE = 14,   /* in, out, in_splits, out_splits */
	CHORUS_BARRIER = 15,               /* no tensor */
	CHORUS_SCATTER = 16,               /* ins (root only): out_count each; out, root */
	CHORUS_GATHER = 17,                /* in, outs (root only): in_count each; root */
	CHORUS_GATHER_SINGLE = 18,         /* in, out (root only): n * in_count; root */
	CHORUS_SCAN = 19,                  /* in, out (may be one), reduction */
	/* end */
};

/* The reductions. */
enum {
	/* gen: reductions */
	CHORUS_SUM = 1,
	CHORUS_PRODUCT = 2,
	CHORUS_MIN = 3,        /* NaN wins */
	CHORUS_MAX = 4,        /* NaN wins */
	CHORUS_BAND = 5,       /* integers and bool */
	CHORUS_BOR = 6,        /* integers and bool */
	CHORUS_BXOR = 7,       /* integers and bool */
	CHORUS_AVG = 8,        /* the sum divided by n; integers truncate toward zero */
	CHORUS_PREMUL_SUM = 9, /* the sum of factor times input; floating and complex types */
	/* end */
};

/* The operations on windows, with the fields of chorus_window_op that each uses. */
enum {
	CHORUS_PUT = 1,              /* data, count, rank, offset; visible after a signal or fence that follows */
	CHORUS_GET = 2,              /* data, count, rank, offset */
	CHORUS_ACCUMULATE = 3,       /* data, count, rank, offset, reduction; atomic for each element */
	CHORUS_FETCH_OP = 4,         /* data, old, rank, offset, reduction */
	CHORUS_COMPARE_AND_SWAP = 5, /* data, expected, old, rank, offset */
	CHORUS_SIGNAL = 6,           /* rank, slot; after this rank's earlier operations there */
	CHORUS_WAIT_SIGNAL = 7,      /* rank, slot; consumes one signal of that rank */
	CHORUS_FENCE = 8,            /* rank or CHORUS_ANY; this rank's earlier operations are complete there */
};

/* What a communicator can do: bits of chorus_comm_info.capabilities. */
enum {
	CHORUS_CAN_WINDOW = 1,     /* one-sided windows */
	CHORUS_CAN_SHARE = 2,      /* some peers' memory can be mapped */
	CHORUS_CAN_ABORT = 4,
	CHORUS_CAN_ANY_SOURCE = 8, /* receive from CHORUS_ANY */
	CHORUS_CAN_TAG = 16,
	CHORUS_CAN_THREADS = 32,   /* ranks may be threads of one process */
	CHORUS_CAN_REGISTER = 64,  /* chorus_register */
	CHORUS_CAN_NOTHING = 128,  /* operations succeed without moving data */
};

/* A peer that stands for every rank: the source of a receive, or whom a fence is for. */
#define CHORUS_ANY (-1)

/* Independent signal counters between each two ranks of a window. */
#define CHORUS_SIGNAL_SLOTS 64

/* ---- the library ---- */

/* chorus_abi_version returns CHORUS_ABI_MAJOR << 16 | CHORUS_ABI_MINOR of the
 * library. A program works with the same major and an equal or higher minor. */
CHORUS_API uint32_t chorus_abi_version(void);

/* chorus_version returns the library's version as text. The string is the library's. NULL
 * after a fork or a panic. */
CHORUS_API const char *chorus_version(void);

/* chorus_backends returns the names of the backends, separated by commas. The
 * string is the library's. NULL after a fork or a panic. */
CHORUS_API const char *chorus_backends(void);

/* A host is a language runtime with a lock that its threads hold while they run
 * (Python's GIL), or a program that wants to be asked during long waits. */
typedef struct chorus_host {
	uint32_t size;
	uint32_t reserved;
	/* leave gives the lock back before a wait and enter, with what leave returned,
	 * takes it again. Both may be NULL. If they aren't, functions marked [blocks]
	 * must be called with the lock held. Python: PyEval_SaveThread and
	 * PyEval_RestoreThread, with the library loaded as ctypes.PyDLL. */
	void *(*leave)(void);
	void (*enter)(void *left);
	/* check is called every interval of a wait, on the waiting thread, with the lock held;
	 * it must not call functions marked [blocks]. If it returns non-zero the wait is given up
	 * as chorus_status CHORUS_INTERRUPTED says. May be NULL. Python: PyErr_CheckSignals,
	 * whose exception is pending when the function returns. */
	int (*check)(void);
	/* The only thread on which check is called, as pthread_self numbers it; 0: all. */
	uint64_t thread;
	/* Between two checks, in nanoseconds; 0 means 20 ms. */
	int64_t interval_ns;
} chorus_host;

/* chorus_set_host sets the host of this process; NULL removes it. No other
 * function of the library may be running. */
CHORUS_API chorus_status chorus_set_host(const chorus_host *host);

/* ---- errors ---- */

/* The facts of a failure. Strings are never NULL; lists may be empty. Ranks are
 * those of the communicator; -1 means none. */
typedef struct chorus_error {
	uint32_t size;
	chorus_status status;
	const char *message;  /* all of it, on one line */
	const char *comm;     /* communicator */
	const char *op;       /* operation, such as "all_reduce", or "" */
	uint64_t seq;         /* the operation's number on its communicator, or 0 */
	int32_t reporter;     /* the rank that reports */
	int32_t peer;         /* PEER_LOST: the rank that is lost */
	const char *detail;   /* why: an argument's fault, how a peer was lost, the reason of an abort */
	int64_t elapsed_ns;   /* TIMEOUT: how long it waited */
	const int32_t *missing; /* TIMEOUT: ranks known not to have come */
	const int32_t *arrived; /* TIMEOUT: ranks known to have come */
	const int32_t *unknown; /* TIMEOUT: ranks of which nothing could be learned */
	int32_t n_missing, n_arrived, n_unknown;
	int32_t rank_a, rank_b; /* MISMATCH: the two ranks, */
	int32_t by;             /* ABORTED: the rank that aborted */
	const char *op_a, *op_b; /* and what each calls: kind, dtype, count, root, reduction */
} chorus_error;

/* chorus_last_error returns the facts of the last failure on this thread. They
 * are the library's, and valid until the next failure on this thread. Never NULL. */
CHORUS_API const chorus_error *chorus_last_error(void);

/* ---- memory ---- */

/* chorus_alloc allocates memory that peers on this host can map: the fastest
 * that collectives can have. Aligned to 256 bytes at least, or to its size rounded
 * up to a power of two if that's less; contents undefined unless zero is set. */
CHORUS_API chorus_status chorus_alloc(int64_t bytes, int32_t zero, void **memory);

/* chorus_free frees what chorus_alloc allocated; NULL is ignored. Nothing may
 * use it any more, here or in a peer's operation. */
CHORUS_API chorus_status chorus_free(void *memory);

/* chorus_is_shared returns 1 if the bytes lie in memory of chorus_alloc, else 0. */
CHORUS_API int32_t chorus_is_shared(const void *memory, int64_t bytes);

/* ---- devices: accelerators, their memory, streams, events and graphs ---- */

/* Types and meaning are those of docs/devices.md. What waits does so for timeout_ns at most; 0: TORCHCOMM_TIMEOUT_SECONDS.
 * Functions marked [waits] may take long and don't touch the host's lock: a caller that has one gives it back before. */
typedef uint64_t chorus_device; /* never released */
#define CHORUS_HOST 1 /* the host, where an operation's device is asked for */
#define CHORUS_BOUND 2 /* there, too: the device that the communicator is for */
typedef uint64_t chorus_stream;
typedef uint64_t chorus_event;
typedef uint64_t chorus_graph;
typedef uint64_t chorus_generator; /* of random numbers; 0: a device's own */

/* chorus_device_count gives the number of devices of a type, whose driver it loads. */
CHORUS_API chorus_status chorus_device_count(const char *type, int32_t *count);

/* chorus_compile_apart names the command whose process compiles sources of OpenCL from now on: n words, of which the
 * first is a program. It must load this library, and call chorus_version, which doesn't return. A compiler that crashes
 * then takes nothing along. CHORUS_OPENCL_COMPILER goes before it. */
CHORUS_API chorus_status chorus_compile_apart(const char *const *command, int32_t n);

/* chorus_device_open finds a device by its name, such as "accinte:1": always the same number. */
CHORUS_API chorus_status chorus_device_open(const char *name, chorus_device *device);

typedef struct chorus_device_info {
	uint32_t size;
	int32_t index;
	int32_t priorities;  /* of streams: 0 to priorities - 1, more being more urgent */
	int32_t host_access; /* 1 if the host may touch its memory */
	int64_t free_bytes, total_bytes;
	const char *model; /* the library's */
	int32_t views;     /* 1 if this process's engines can touch its memory, by chorus_view; 0: it's touched by copies alone */
	int32_t blocking;  /* 1 if CHORUS_DEVICE_BLOCKING asks that each operator waits for its work */
	const char *library; /* that drives it, with its version, such as "CUDA 13.0"; empty: none */
	int32_t units;        /* multiprocessors of a GPU, or what else runs at once */
	int32_t major, minor; /* compute capability of CUDA and HIP, version of OpenCL; 0 and 0: none */
	const char *uuid;     /* 00112233-4455-6677-8899-aabbccddeeff */
} chorus_device_info;

/* chorus_device_get fills in what there is to know; the caller sets size. */
CHORUS_API chorus_status chorus_device_get(chorus_device device, chorus_device_info *info);

/* chorus_device_peer_capable says whether a device's kernels can be let touch another one's memory: 1, else 0. */
CHORUS_API chorus_status chorus_device_peer_capable(chorus_device device, chorus_device peer, int32_t *capable);

/* chorus_cache_alloc allocates memory from the device's caching allocator for a stream, 0 being the current one, and gives the
 * address at which this process's engines touch it as well, NULL if the driver has none. The host can't touch it, unless
 * host_access is set: it faults. Aligned to 256 bytes; 0 bytes are NULL. [waits] if the device has little memory left. */
CHORUS_API chorus_status chorus_cache_alloc(chorus_device device, int64_t bytes, chorus_stream stream, void **memory, void **view);

/* chorus_cache_free frees it; work that was enqueued before may still use it. Operations of communicators say themselves which streams
 * use memory; for other work chorus_cache_uses says before that a stream uses it which it wasn't allocated for. */
CHORUS_API chorus_status chorus_cache_free(chorus_device device, void *memory);
CHORUS_API chorus_status chorus_cache_uses(chorus_device device, void *memory, chorus_stream stream);

/* chorus_pin allocates host memory, and chorus_unpin frees it, that copies of the device need not wait for. */
CHORUS_API chorus_status chorus_pin(chorus_device device, int64_t bytes, void **memory);
CHORUS_API chorus_status chorus_unpin(void *memory);

typedef struct chorus_figure {
	const char *name; /* the library's */
	int64_t value;
} chorus_figure;

/* chorus_device_memory_stats gives the allocator's figures under the names of torch.cuda.memory_stats,
 * as many as there is room for, and sets n to how many there are. */
CHORUS_API chorus_status chorus_device_memory_stats(chorus_device device, chorus_figure *figures, int32_t room, int32_t *n);

/* The peaks, or the sums and counts, begin anew. */
CHORUS_API chorus_status chorus_device_reset_peak_stats(chorus_device device);
CHORUS_API chorus_status chorus_device_reset_accumulated_stats(chorus_device device);

/* The same of the memory of chorus_pin, under the names of torch.cuda.host_memory_stats. It's that of all devices of the
 * type together. */
CHORUS_API chorus_status chorus_device_host_stats(chorus_device device, chorus_figure *figures, int32_t room, int32_t *n);
CHORUS_API chorus_status chorus_device_reset_peak_host_stats(chorus_device device);
CHORUS_API chorus_status chorus_device_reset_accumulated_host_stats(chorus_device device);

/* chorus_cache_empty gives cached memory that nobody uses back to the driver [waits], and chorus_device_empty_host_cache
 * that of chorus_pin, of all devices of the type [blocks]. */
CHORUS_API chorus_status chorus_cache_empty(chorus_device device);
CHORUS_API chorus_status chorus_device_empty_host_cache(chorus_device device);

/* chorus_stream_create makes a stream, and chorus_stream_release gives it back; its work still runs. */
CHORUS_API chorus_status chorus_stream_create(chorus_device device, int32_t priority, chorus_stream *stream);
CHORUS_API chorus_status chorus_stream_release(chorus_stream stream);

/* chorus_stream_adopt takes a stream that somebody else in the process has made with the vendor's library, a cudaStream_t for
 * example, until chorus_stream_release; chorus_stream_native is the other way: what the vendor's library calls a stream. The
 * library's default streams aren't taken. */
CHORUS_API chorus_status chorus_stream_adopt(chorus_device device, uint64_t native, chorus_stream *stream);
CHORUS_API chorus_status chorus_stream_native(chorus_stream stream, uint64_t *native);

/* The stream that is always there. It's not released. */
CHORUS_API chorus_status chorus_stream_default(chorus_device device, chorus_stream *stream);

/* The calling thread's current stream of a device, which operations of communicators on device memory are enqueued on; at
 * first the default one. A stream that is current somewhere must not be released. */
CHORUS_API chorus_status chorus_stream_current(chorus_device device, chorus_stream *stream);
CHORUS_API chorus_status chorus_stream_set_current(chorus_stream stream);

typedef struct chorus_stream_info {
	uint32_t size;
	int32_t priority;
	int32_t capturing; /* 1 between chorus_graph_begin and chorus_graph_end */
	int32_t reserved;
	int64_t id; /* among the streams of its device */
	chorus_device device;
} chorus_stream_info;

/* chorus_stream_get fills in what there is to know; the caller sets size. */
CHORUS_API chorus_status chorus_stream_get(chorus_stream stream, chorus_stream_info *info);

/* chorus_stream_query returns CHORUS_PENDING while there is work. */
CHORUS_API chorus_status chorus_stream_query(chorus_stream stream);

/* chorus_stream_await waits for the stream's work [waits], and returns what it failed with, each time;
 * chorus_stream_recover does so [blocks] and takes the error away, so that the stream runs work again. chorus_device_await
 * waits for all streams of a device [waits]. */
CHORUS_API chorus_status chorus_stream_await(chorus_stream stream, int64_t timeout_ns);
CHORUS_API chorus_status chorus_device_await(chorus_device device, int64_t timeout_ns);
CHORUS_API chorus_status chorus_stream_recover(chorus_stream stream, int64_t timeout_ns);

/* These wait as chorus_stream_await, chorus_device_await and chorus_event_await do [blocks]: the host may end them. */
CHORUS_API chorus_status chorus_stream_synchronize(chorus_stream stream, int64_t timeout_ns);
CHORUS_API chorus_status chorus_device_synchronize(chorus_device device, int64_t timeout_ns);
CHORUS_API chorus_status chorus_event_synchronize(chorus_event event, int64_t timeout_ns);

/* These make the stream's later work wait for all work that another stream has now, or for what an event stands for now.
 * The host doesn't wait. */
CHORUS_API chorus_status chorus_stream_wait_stream(chorus_stream stream, chorus_stream other);
CHORUS_API chorus_status chorus_stream_wait_event(chorus_stream stream, chorus_event event);

/* chorus_stream_copy enqueues a copy. Host memory must stay until it's done; pinned memory may be freed before. Of device memory that
 * was allocated for another stream chorus_cache_uses has to say so. */
CHORUS_API chorus_status chorus_stream_copy(chorus_stream stream, void *to, const void *from, int64_t bytes);

/* Device memory that a kernel touches. */
typedef struct chorus_span {
	void *data;
	int64_t bytes;
} chorus_span;

/* Where a callback puts its answer. */
typedef struct chorus_reply chorus_reply;

/* A task gets addresses of its operands that it can follow, good during the call; other device memory still
 * faults. It's called on a thread of the library, without the host's lock. What it returns, if not
 * CHORUS_OK, becomes the stream's error, with what chorus_reply_error says. */
typedef chorus_status (*chorus_task_fn)(void *user, void *const *views, chorus_reply *reply);
typedef void (*chorus_over_fn)(void *user);

/* chorus_stream_task enqueues a task, a kernel of an emulated device, or, without operands, a function of the host. The name
 * is for errors and profiles. over, which may be NULL, is called once when the task will not be called any more: after it has
 * run, or was left out since the stream carries an error. What is captured is called at each replay until the graph is gone, and
 * over is called some time after. */
CHORUS_API chorus_status chorus_stream_task(chorus_stream stream, const char *name, const chorus_span *operands, int32_t n,
	chorus_task_fn task, chorus_over_fn over, void *user);

/* Random numbers by the rules of PyTorch's CUDA kernels, of a GPU without a limit on threads. */
typedef struct chorus_random {
	uint32_t size;
	int32_t kind;  /* 0: uniform from a to b, 1: normal, 2: log-normal, of mean a and deviation b, 3: exponential of rate a, 4: Cauchy of
	                * median a and scale b, 5: geometric, 6: Bernoulli of probability a, 7: Bernoulli of probabilities each, 8: integers
	                * from first to last, 9: of all that the type has from 0 on */
	int32_t dtype; /* chorus_dtype; for probabilities the same or float */
	int32_t given; /* 1: seed and offset are the caller's; 0: the generator's, which graphs know */
	void *memory;  /* of the stream's device */
	int64_t n;     /* elements, without gaps */
	double a, b;
	int64_t first, last; /* last is one of them */
	const void *probabilities; /* of the device, n of them */
	int32_t probabilities_dtype;
	int32_t reserved;
	uint64_t seed, offset; /* the offset moves on */
	chorus_generator generator;
} chorus_random;

/* chorus_stream_random enqueues filling memory; the caller sets size. chorus_random_set gives a device's own generator of such numbers
 * a seed and an offset, a multiple of 4, and chorus_random_get says where it is; neither is possible while a stream of the device is
 * captured. */
CHORUS_API chorus_status chorus_stream_random(chorus_stream stream, chorus_random *random);
CHORUS_API chorus_status chorus_random_set(chorus_device device, uint64_t seed, uint64_t offset);
CHORUS_API chorus_status chorus_random_get(chorus_device device, uint64_t *seed, uint64_t *offset);

/* A part of the sequence of a generator, for kernels that draw from it. */
typedef struct chorus_draw {
	uint32_t size;
	int32_t reserved;
	uint64_t words;        /* that the kernel may use of each of Philox's sequences; rounded up to a multiple of 4 */
	uint64_t seed, offset; /* where the part begins */
	const void *state;     /* of a captured stream: a seed and an offset of 64 bits in memory of the device, which are those of a
	                        * replay while it runs, and to which offset is to be added; else NULL */
	chorus_generator generator;
} chorus_draw;

/* chorus_random_take takes the next words for the stream's next work; the caller sets size, words and generator. */
CHORUS_API chorus_status chorus_random_take(chorus_stream stream, chorus_draw *draw);

/* A generator beside the device's own one, of the same numbers. Captured streams draw only from generators that their graph was
 * begun with (chorus_graph_begin_with). A graph keeps what it needs of a released one. */
CHORUS_API chorus_status chorus_generator_create(chorus_device device, uint64_t seed, uint64_t offset, chorus_generator *generator);
CHORUS_API chorus_status chorus_generator_set(chorus_generator generator, uint64_t seed, uint64_t offset);
CHORUS_API chorus_status chorus_generator_get(chorus_generator generator, uint64_t *seed, uint64_t *offset);
CHORUS_API chorus_status chorus_generator_release(chorus_generator generator);

#define CHORUS_EVENT_TIMING 1       /* for chorus_event_elapsed */
#define CHORUS_EVENT_INTERPROCESS 2 /* other processes can open it; without timing */

/* An event stands for the work that a stream has when it's recorded; at first for none. flags: 0, or one of the above. */
CHORUS_API chorus_status chorus_event_create(int32_t flags, chorus_event *event);

/* chorus_event_handle writes what another process of the host gives to chorus_event_open, which makes the event its own, too, of
 * one of its devices. Both may record it, and wait for what the other recorded last. An event that was never recorded becomes one
 * of the device. The bytes, 64 at most, are good while the event is; bytes is set to how many there are, also if there is no room. */
CHORUS_API chorus_status chorus_event_handle(chorus_event event, chorus_device device, void *handle, int64_t room, int64_t *bytes);
CHORUS_API chorus_status chorus_event_open(chorus_device device, const void *handle, int64_t bytes, chorus_event *event);
CHORUS_API chorus_status chorus_event_record(chorus_event event, chorus_stream stream);
CHORUS_API chorus_status chorus_event_release(chorus_event event);

typedef struct chorus_event_info {
	uint32_t size;
	int32_t reserved;
	int64_t id; /* 0 before the first record */
	chorus_device device; /* of the first record, 0 before */
} chorus_event_info;

/* chorus_event_get fills in what there is to know; the caller sets size. */
CHORUS_API chorus_status chorus_event_get(chorus_event event, chorus_event_info *info);

/* chorus_event_query returns CHORUS_PENDING while there is work; chorus_event_await waits for it [waits]. */
CHORUS_API chorus_status chorus_event_query(chorus_event event);
CHORUS_API chorus_status chorus_event_await(chorus_event event, int64_t timeout_ns);

/* chorus_event_elapsed gives the milliseconds between two events with timing that have happened. */
CHORUS_API chorus_status chorus_event_elapsed(chorus_event start, chorus_event end, double *ms);

/* What is enqueued on the stream, and on streams that wait for it, between chorus_graph_begin and
 * chorus_graph_end becomes a graph instead of running; NULL discards it. Operations of communicators become nodes. */
CHORUS_API chorus_status chorus_graph_begin(chorus_stream stream);
CHORUS_API chorus_status chorus_graph_end(chorus_stream stream, chorus_graph *graph);

/* chorus_graph_begin_in is chorus_graph_begin with the memory pool of another graph, which chorus_graph_pool tells: what was freed
 * in the capture of one is given to the next. Such graphs are replayed in the order of their captures. */
CHORUS_API chorus_status chorus_graph_begin_in(chorus_stream stream, const uint64_t pool[2]);
CHORUS_API chorus_status chorus_graph_pool(chorus_graph graph, uint64_t pool[2]);

/* chorus_graph_begin_with is the same for a graph that draws from n generators, too, and each of whose replays moves them on; pool
 * may be NULL. */
CHORUS_API chorus_status chorus_graph_begin_with(chorus_stream stream, const uint64_t pool[2], const chorus_generator *generators,
	int32_t n);

/* chorus_graph_dump writes a drawing of the graph's work to a file, in the language of Graphviz. */
CHORUS_API chorus_status chorus_graph_dump(chorus_graph graph, const char *path);

/* chorus_graph_replay enqueues a run of the graph; memory that it uses must still be there. */
CHORUS_API chorus_status chorus_graph_replay(chorus_graph graph, chorus_stream stream);
CHORUS_API chorus_status chorus_graph_release(chorus_graph graph);

/* ---- devices for frameworks: what an extension of PyTorch is made of ---- */

/* None of these touches the host's lock: they may be called with it and without it. */

/* chorus_device_set_fraction limits the allocator to a part of the device's memory, above 0 and up to 1; what it has it keeps. */
CHORUS_API chorus_status chorus_device_set_fraction(chorus_device device, double fraction);

/* chorus_device_record_history keeps the allocator's last n events for chorus_device_snapshot, and ends that with 0. A snapshot is
 * written to a file, as JSON in the form of torch.cuda.memory._snapshot(). */
CHORUS_API chorus_status chorus_device_record_history(chorus_device device, int64_t n);
CHORUS_API chorus_status chorus_device_snapshot(chorus_device device, const char *path);

/* chorus_cache_came tells, for that, where the program has made an allocation: numbers of chorus_site, the innermost call first. */
CHORUS_API chorus_status chorus_cache_came(chorus_device device, void *memory, const uint32_t *sites, int32_t n);

/* chorus_pool_new gives the name of a memory pool that nobody has. What the calling thread allocates of a device between
 * chorus_pool_begin and chorus_pool_end comes from the pool and goes back to it; a graph can have it, too (chorus_graph_begin_in).
 * After as many calls of chorus_pool_release as of chorus_pool_begin its free memory may go back to the driver. */
CHORUS_API chorus_status chorus_pool_new(uint64_t pool[2]);
/* chorus_pool_of gives the pool of the memory that a backend's library, such as "nccl"'s, gives out for a device and is fastest with; two
 * zeros if the backend has no own. It's CHORUS_UNSUPPORTED if the library is too old to. */
CHORUS_API chorus_status chorus_pool_of(const char *backend, chorus_device device, uint64_t pool[2]);
/* chorus_library_open opens the library of a backend, "nccl", "ncclx" or "rccl", as the first communicator would. CHORUS_UNSUPPORTED: there
 * is none on this machine that can be used, and chorus_last_error says where it was looked for. */
CHORUS_API chorus_status chorus_library_open(const char *backend);

/* chorus_nccl_alloc and chorus_nccl_free give memory of ncclMemAlloc on a device of CUDA, by its number, and take it back; likewise the
 * others, of NCCLX and, on a device of HIP, of RCCL. Their form is that of torch.cuda.memory.CUDAPluggableAllocator. All communicators on the
 * device register the memory before their next operation. NULL: there is none, and chorus_last_error says why. What is given back must have
 * no work under way. */
CHORUS_API void *chorus_nccl_alloc(int64_t bytes, int32_t device, void *stream);
CHORUS_API void chorus_nccl_free(void *memory, int64_t bytes, int32_t device, void *stream);
CHORUS_API void *chorus_ncclx_alloc(int64_t bytes, int32_t device, void *stream);
CHORUS_API void chorus_ncclx_free(void *memory, int64_t bytes, int32_t device, void *stream);
CHORUS_API void *chorus_rccl_alloc(int64_t bytes, int32_t device, void *stream);
CHORUS_API void chorus_rccl_free(void *memory, int64_t bytes, int32_t device, void *stream);
CHORUS_API chorus_status chorus_pool_begin(chorus_device device, const uint64_t pool[2]);
CHORUS_API chorus_status chorus_pool_end(chorus_device device, const uint64_t pool[2]);
CHORUS_API chorus_status chorus_pool_release(chorus_device device, const uint64_t pool[2]);

/* chorus_memory_handle writes what another process of the host gives to chorus_memory_open, to have the piece of the driver's memory
 * that an allocation lies in as well, until chorus_memory_close; offset is where in it the allocation begins. The bytes, 64 at
 * most, are good while the allocation is, as bytes of event handles are. What was opened can't be passed on. A piece that is opened
 * again is the same memory, and closed as often. */
CHORUS_API chorus_status chorus_memory_handle(chorus_device device, const void *memory, void *handle, int64_t room, int64_t *bytes,
	int64_t *offset);
CHORUS_API chorus_status chorus_memory_open(chorus_device device, const void *handle, int64_t bytes, void **memory);
CHORUS_API chorus_status chorus_memory_close(chorus_device device, void *memory);

/* Something that a device did, or that the host asked of it. */
typedef struct chorus_activity {
	int32_t kind; /* 0: kernel, 1: copy, 2: fill, 3: host function, 4: wait, 5: record, 6: graph, 7: a call of the host */
	int32_t device;
	int64_t stream;             /* its ID, as chorus_stream_get tells it; for one without a handle the driver's number */
	int64_t start_ns, end_ns;   /* since 1970 */
	int64_t bytes;              /* of copies and fills */
	uint64_t correlation;       /* the same for a call of the host and the work that it enqueued */
	const char *name;           /* good within the callback */
} chorus_activity;

typedef void (*chorus_activity_fn)(void *user, const chorus_activity *activity);

/* chorus_profile_start begins to note what all devices of a type do, and chorus_profile_stop ends that and tells it, by the time at
 * which it began. Work that isn't over is not told. There is one profile of a type at a time. */
CHORUS_API chorus_status chorus_profile_start(const char *type);
CHORUS_API chorus_status chorus_profile_stop(const char *type, chorus_activity_fn each, void *user);

/* chorus_profile_range adds something that a thread of the host did, in nanoseconds since 1970; nothing if no profile of the type
 * goes on. chorus_profile_write ends a profile as chorus_profile_stop does, and writes all of it, ranges too, as a file in Chrome's
 * format of traces. */
CHORUS_API chorus_status chorus_profile_range(const char *type, const char *name, int32_t thread, int64_t start_ns, int64_t end_ns);
CHORUS_API chorus_status chorus_profile_write(const char *type, const char *path);

/* What an address is to a driver. */
typedef struct chorus_attributes {
	uint32_t size;
	int32_t kind;  /* 0: unknown memory of the host, 1: pinned memory, 2: memory of a device */
	int32_t index; /* of the device, else -1 */
	int32_t remote; /* 1 if it was opened from another process */
	void *base;    /* of the allocation of the driver's, else the address */
	int64_t bytes; /* of that */
} chorus_attributes;

/* chorus_attributes_of asks a device's driver about an address; the caller sets size. */
CHORUS_API chorus_status chorus_attributes_of(chorus_device device, const void *memory, chorus_attributes *attributes);

/* chorus_view gives the address at which this process's engines touch memory of a device, or pinned memory. */
CHORUS_API chorus_status chorus_view(chorus_device device, const void *memory, int64_t bytes, void **view);

/* chorus_stream_pooled gives one of a device's 32 streams of a priority, in turn, and chorus_stream_of the stream that has an ID, as
 * chorus_stream_get tells it. A stream has the same number each time. They are not released. */
CHORUS_API chorus_status chorus_stream_pooled(chorus_device device, int32_t priority, chorus_stream *stream);
CHORUS_API chorus_status chorus_stream_of(chorus_device device, int64_t id, chorus_stream *stream);

/* chorus_stream_enter makes what the caller does until chorus_stream_leave the stream's next work, if the stream has no other; it never
 * waits. CHORUS_PENDING: the stream is busy, or is being captured, or CHORUS_DEVICE_INLINE is false. The name is kept until
 * chorus_stream_leave, which has to come. chorus_stream_turn is the same whatever CHORUS_DEVICE_INLINE is, for work that can't be
 * enqueued and whose caller has waited for the stream. */
CHORUS_API chorus_status chorus_stream_enter(chorus_stream stream, const char *name);
CHORUS_API chorus_status chorus_stream_turn(chorus_stream stream, const char *name);
CHORUS_API chorus_status chorus_stream_leave(chorus_stream stream);

/* ---- kernels: tensor operations that are compiled at run time ---- */

/* The kinds of kernels, below the operations of each by their names, and what these take: results; inputs; numbers; integers, in
 * the order in which chorus_kernel has them; other fields of chorus_kernel that count. Operands in brackets may be left out: they
 * are zero then. Integers in brackets are all there, or none. Dots: as many as there are; several lists of integers have the same
 * length.
 *
 * The tensors of a list are operands one after the other, and lists follow each other. Images have the dimensions batch and
 * channels, and 1 to 3 of space; lists of integers have one for each of these. state, seed and offset are those of chorus_random_take. */
enum {
	/* gen: kernels */
	/* operations on elements: outs...; ins...; numbers numbers...; with compute
	 * inputs are broadcast; a user's text is an operation as well */
	CHORUS_KERNEL_ELEMENTWISE = 1,

	/* reductions: outs...; in; numbers numbers...; integers dims...; with compute
	 * no dims: all */
	CHORUS_KERNEL_REDUCE = 2,

	/* scans: outs...; in; integers dim; with compute */
	CHORUS_KERNEL_SCAN = 3,

	/* softmax, log_softmax: out; in; integers dim
	 * softmax_backward, log_softmax_backward: out; grad, result; integers dim */
	CHORUS_KERNEL_SOFTMAX = 4,

	/* layer_norm, rms_norm: out, [mean], rstd; in, [weight], [bias]; numbers eps; integers [groups], [channels],
	 *    [inner]
	 * layer_norm_backward, rms_norm_backward: [grad_in], [grad_weight], [grad_bias]; grad, in, [mean], rstd, [weight];
	 *    integers [groups], [channels], [inner]
	 * with groups, rows are groups of channels, of inner elements each */
	CHORUS_KERNEL_NORM = 5,

	/* activations: out; a, b, [c]; numbers alpha, beta; integers [atomics]
	 * op: an activation, or 0; atomics: sums in any order are allowed */
	CHORUS_KERNEL_MATMUL = 6,

	/* tril, triu: out; in; integers diagonal */
	CHORUS_KERNEL_TRIANGLE = 7,

	/* arange: out; numbers start, step; with compute
	 * linspace: out; numbers start, end; with compute
	 * eye: out */
	CHORUS_KERNEL_RANGE = 8,

	/* take, put, add, mul, amax, amin: out; in, indexes...; with bad
	 * of each index: the size and stride of its dimension, and 1 if it may be negative */
	CHORUS_KERNEL_INDEX = 9,

	/* sort: [values], [indexes]; in; integers dim, descending
	 * kthvalue: [values], [indexes]; in; integers dim, k
	 * median, nanmedian: [values], [indexes]; in; integers dim
	 * mode: [values], [indexes]; in; integers dim
	 * one of the results may be left out */
	CHORUS_KERNEL_SORT = 10,

	/* searchsorted: out; values, sorted, [sorter]; integers right
	 * isin: out; values, sorted; integers invert
	 * sorter has the places of sorted's elements in their order */
	CHORUS_KERNEL_SEARCH = 11,

	/* bincount: out; in, [weights]; with bad
	 * histc: out; in; numbers low, high */
	CHORUS_KERNEL_COUNT = 12,

	/* nonzero: out; in
	 * masked_select: out; in, mask
	 * masked_scatter: out; mask, in
	 * starts: out; in
	 * inverse: out; starts, [order]
	 * lengths: out; places; integers elements
	 * starts, inverse and lengths are of runs of equal elements */
	CHORUS_KERNEL_CHOOSE = 13,

	/* roll: out; in; integers shift, dim */
	CHORUS_KERNEL_ROLL = 14,

	/* operations on elements: outs...; ins...; numbers numbers...; integers out_lists, in_lists, number_lists,
	 *    lengths...; with compute
	 * so many lists of outs, ins and numbers, then the length of each; lists of ins and numbers may have one for all */
	CHORUS_KERNEL_FOREACH = 20,

	/* reductions: outs...; ins...; numbers numbers...; with compute */
	CHORUS_KERNEL_FOREACH_REDUCE = 21,

	/* sgd, adam, adamw, adagrad: outs...; [found_inf], [grad_scale], [rate], steps...; numbers lr, weight_decay,
	 *    momentum, dampening, beta1, beta2, eps, lr_decay; integers lists, nesterov, maximize, first
	 * outs: so many lists, of parameters, gradients and states; steps: none, or one each */
	CHORUS_KERNEL_OPTIMIZE = 22,

	/* unscale: grads...; found_inf, inverse */
	CHORUS_KERNEL_UNSCALE = 23,

	/* update_scale: scale, tracker; found_inf; numbers growth, backoff; integers interval */
	CHORUS_KERNEL_UPDATE_SCALE = 24,

	/* convolution: out; in, weight, [bias]; integers transposed, groups, stride..., padding..., dilation...
	 * convolution_backward: [grad_in], [grad_weight], [grad_bias]; grad, in, weight; integers transposed, groups,
	 *    stride..., padding..., dilation... */
	CHORUS_KERNEL_CONVOLUTION = 32,

	/* max: out, indexes; in; integers count_padding, divisor, window..., stride..., padding..., dilation...
	 * max_backward: out; grad, indexes; integers count_padding, divisor, window..., stride..., padding..., dilation...
	 * average, average_backward, im2col, col2im: out; in; integers count_padding, divisor, window..., stride...,
	 *    padding..., dilation...
	 * max_unpool, max_unpool_backward: out; in, indexes; with bad
	 * no windows: the pool is adaptive; divisor 0: the size of a window; indexes are int64 */
	CHORUS_KERNEL_POOL = 33,

	/* nearest, nearest_backward, nearest_exact, nearest_exact_backward, linear, linear_backward, cubic, cubic_backward:
	 *    out; in; numbers scales...; integers align_corners, antialias
	 * scales: 0 or none by sizes */
	CHORUS_KERNEL_UPSAMPLE = 34,

	/* reflect, reflect_backward, replicate, replicate_backward, circular, circular_backward: out; in; integers
	 *    before...
	 * elements before each dimension of space */
	CHORUS_KERNEL_PAD = 35,

	/* bilinear, nearest: out; in, grid; integers border, align_corners
	 * bilinear_backward, nearest_backward: [grad_in], [grad_grid]; grad, in, grid; integers border, align_corners,
	 *    [atomics]
	 * border: 0 zeros, 1 border, 2 reflection */
	CHORUS_KERNEL_GRID_SAMPLE = 36,

	/* attention: out, sums; query, key, value, [mask], [state]; numbers scale, dropout_rate; integers causal, seed,
	 *    offset
	 * attention_backward: grad_query, grad_key, grad_value; grad, out, sums, query, key, value, [mask], [state];
	 *    numbers scale, dropout_rate; integers causal, seed, offset
	 * sums: their logarithms */
	CHORUS_KERNEL_ATTENTION = 37,

	/* batch_norm: out, [mean], [rstd]; in, [weight], [bias], [running_mean], [running_var]; numbers momentum, eps;
	 *    integers training
	 * batch_norm_backward: [grad_in], [grad_weight], [grad_bias]; grad, in, [weight], [running_mean], [running_var],
	 *    [mean], [rstd]; numbers eps; integers training
	 * of 3 dimensions; training changes running_mean and running_var */
	CHORUS_KERNEL_BATCH_NORM = 38,

	/* embedding_bag: out, bags, counts, [most]; table, indexes, offsets, [weights]; integers mode, padding,
	 *    by_frequency; with bad
	 * embedding_backward: out; grad, indexes, [weights], [bags], [counts], [most]; integers mode, padding,
	 *    by_frequency; with bad
	 * weights_backward: out; grad, table, indexes, bags; integers mode, padding, by_frequency; with bad
	 * mode: 0 sum, 1 mean, 2 max; most: rows of maxima */
	CHORUS_KERNEL_BAG = 39,

	/* cdist: out; a, b; numbers norm
	 * cdist_backward: grad_a; grad, a, b, distances; numbers norm */
	CHORUS_KERNEL_DISTANCE = 40,

	/* nll_loss: out, total; in, target, [weight]; integers dim, averaging, ignore; with bad
	 * nll_loss_backward: out; grad, target, [weight], total; integers dim, averaging, ignore; with bad
	 * averaging: 0 none, 1 mean, 2 sum */
	CHORUS_KERNEL_NLL = 41,

	/* scaled_matmul: out; a, b, [bias], scale_a, scale_b, [scale_out]; integers format_out, format_a, format_b
	 * formats of what is uint8 here: 1 float8_e4m3fn, 2 float8_e5m2, 3 and 4 those that end in fnuz; 0: others */
	CHORUS_KERNEL_SCALED_MATMUL = 42,

	/* sparse_matmul: out; starts, columns, values, b, [c]; numbers alpha, beta; integers [library]
	 * alpha * a @ b + beta * c, a in rows ("CSR"); library: 1 if a library may do it, as no row has two elements in a
	 *    column, 2 in any order, too */
	CHORUS_KERNEL_SPARSE_MATMUL = 43,

	/* dropout: out, mask; in, [state]; numbers keep; integers seed, offset
	 * shuffle: data; keys, [state]; integers seed, offset
	 * shuffle permutes data whose keys are equal and neighbours */
	CHORUS_KERNEL_RANDOM = 48,
	/* end */
};

/* A number. integer counts if is_integer is 1. */
typedef struct chorus_number {
	double real, imag;
	int64_t integer;
	int32_t is_integer;
	int32_t reserved;
} chorus_number;

/* An operand of a kernel: a tensor of the stream's device, or a number that stands for each element. All zero: it's left out, where
 * the kind allows that. */
typedef struct chorus_operand {
	void *memory; /* of the first element */
	const int64_t *sizes; /* of dims dimensions, the outermost first */
	const int64_t *strides; /* from one element to the next, in elements; 0 and negative ones are allowed */
	const chorus_number *number; /* instead of memory */
	int32_t dims;
	int32_t dtype;
} chorus_operand;

/* A run of an operation of docs/kernels.md. */
typedef struct chorus_kernel {
	uint32_t size;
	int32_t kind;
	int32_t op;      /* of chorus_kernel_find */
	int32_t compute; /* chorus_dtype that elements are converted to, or 0 */
	int32_t n_outs, n_ins, n_numbers, n_integers;
	const chorus_operand *outs, *ins;
	const chorus_number *numbers;
	const int64_t *integers;
	void *bad; /* NULL, or a 32-bit word of the device, which an index that's out of range sets to 1 */
} chorus_kernel;

/* chorus_kernel_find gives the number of an operation; CHORUS_UNSUPPORTED if there's none. ELEMENTWISE also takes a user's text. */
CHORUS_API chorus_status chorus_kernel_find(int32_t kind, const char *name, int32_t *op);

/* chorus_kernel_run enqueues a kernel, which is compiled, or read from the disk's cache, when it's first needed. Arguments are copied.
 * CHORUS_UNSUPPORTED: the device compiles no kernels, or none for these operands, or its compiler refuses this one. Then nothing is
 * enqueued. Of memory that was allocated for another stream chorus_cache_uses has to say so. */
CHORUS_API chorus_status chorus_kernel_run(chorus_stream stream, const chorus_kernel *kernel);

/* A run of a kernel whose whole text the caller has written, in the language of docs/kernels.md: see there. */
typedef struct chorus_source {
	uint32_t size;
	int32_t source; /* of chorus_source_add */
	int32_t rows;   /* whether a block has a row, and not each thread an element */
	int32_t n_pointers, n_integers;
	int64_t units; /* elements, or rows */
	void *const *pointers; /* of the device, the kernel's first parameters */
	const int64_t *integers; /* its others */
} chorus_source;

/* chorus_source_add gives the number of a text, the same one for the same text, which stays known. INVALID_ARGUMENT: it hasn't one
 * function "KERNEL void name(". */
CHORUS_API chorus_status chorus_source_add(const char *text, int32_t *source);

/* chorus_source_run enqueues it as chorus_kernel_run does a kernel. */
CHORUS_API chorus_status chorus_source_run(chorus_stream stream, const chorus_source *run);

/* Counts of a device's kernels. */
typedef struct chorus_kernel_info {
	uint32_t size;
	int32_t off; /* 1: CHORUS_DEVICE_KERNELS is false; chorus_kernel_run still runs them */
	int64_t compiled;
	int64_t from_disk; /* read from the cache */
	int64_t refused;   /* by the compiler */
	int64_t launched;
	int64_t multiplied; /* products of matrices by a library */
	int32_t varies;     /* 1: such products may have other bits each time, as cuBLAS's without CUBLAS_WORKSPACE_CONFIG=:4096:8 or :16:8 */
	int32_t reserved;
	int64_t transformed; /* Fourier transforms by a library */
	int64_t solved;      /* steps of linear algebra by a library */
} chorus_kernel_info;

/* chorus_kernel_get fills in the counts; the caller sets size. CHORUS_UNSUPPORTED: the device compiles no kernels. */
CHORUS_API chorus_status chorus_kernel_get(chorus_device device, chorus_kernel_info *info);

/* chorus_tune_set changes how products of matrices are chosen between the library and the kernel, in this process: what was found
 * is used (enabled), and what wasn't is measured (tuning), for so many milliseconds and iterations at most; 0 of one: the other
 * counts. Off at first. */
CHORUS_API chorus_status chorus_tune_set(int32_t enabled, int32_t tuning, int32_t milliseconds, int32_t iterations);

/* chorus_tune_add adds a result: operator,parameters,solution,milliseconds. One that is there already stays. */
CHORUS_API chorus_status chorus_tune_add(const char *line);

/* chorus_tune_results gives all results, a line each. The text is the library's, until the next call. */
CHORUS_API chorus_status chorus_tune_results(const char **text);

/* From what to what a transform goes. */
enum {
	CHORUS_COMPLEX_TO_COMPLEX = 0,
	CHORUS_REAL_TO_COMPLEX = 1, /* of the last dimension the first half, with the middle */
	CHORUS_COMPLEX_TO_REAL = 2, /* from such a half; inverse */
};

/* A dimension of a transform. */
typedef struct chorus_fft_dim {
	int64_t size;    /* of real numbers, if either side has them */
	int64_t in, out; /* from one place to the next, in elements; above 0 */
} chorus_fft_dim;

/* A discrete Fourier transform without a factor, or several of them. In and out don't overlap, or are the same complex elements.
 * COMPLEX_TO_REAL may change what is in in. */
typedef struct chorus_fft {
	uint32_t size;
	int32_t kind;
	int32_t dtype; /* of real and imaginary parts: CHORUS_FLOAT32 or CHORUS_FLOAT64 */
	int32_t inverse;
	int32_t dims; /* the outermost first */
	int32_t reserved;
	const chorus_fft_dim *dim;
	void *in, *out;
	int64_t count, in_next, out_next; /* of transforms, and elements from one to the next */
} chorus_fft;

/* chorus_fft_run enqueues a transform, which cuFFT, hipFFT or clFFT computes. CHORUS_UNSUPPORTED: the device has no such library,
 * or the library doesn't do this one. Then out is as it was. */
CHORUS_API chorus_status chorus_fft_run(chorus_stream stream, const chorus_fft *fft);

/* What a device's library of transforms takes, and its plans. */
typedef struct chorus_fft_info {
	uint32_t size;
	int32_t dims;   /* at most; 0: there's no library */
	int32_t align;  /* bytes, of which addresses of in and out are a multiple */
	int32_t spoils; /* 1: REAL_TO_COMPLEX too may change what is in in */
	int64_t plans;  /* that are kept */
	int64_t most_plans;
} chorus_fft_info;

/* chorus_fft_get fills in what there is to know; the caller sets size. CHORUS_UNSUPPORTED: devices of this driver have none. */
CHORUS_API chorus_status chorus_fft_get(chorus_device device, chorus_fft_info *info);

/* chorus_fft_plans changes how many plans are kept at most; -1: it gives back those that are kept. */
CHORUS_API chorus_status chorus_fft_plans(chorus_device device, int64_t most);

/* Steps of linear algebra, by LAPACK's names. */
enum {
	CHORUS_CHOLESKY = 0,       /* potrf: a becomes its factor; the other triangle isn't touched */
	CHORUS_CHOLESKY_SOLVE = 1, /* potrs: b becomes the solution, from a's factor */
	CHORUS_LU = 2,             /* getrf: a becomes L and U, with pivots */
	CHORUS_LU_SOLVE = 3,       /* getrs: b becomes the solution, from L and U */
	CHORUS_QR = 4,             /* geqrf: a becomes R and reflectors, with factors */
	CHORUS_QR_VECTORS = 5,     /* orgqr: a, reflectors, becomes the first columns of Q */
	CHORUS_EIGEN = 6,          /* syevd: of a Hermitian a, which becomes the vectors */
	CHORUS_SVD = 7,            /* gesvd: of a, which has no fewer rows than columns, and is lost */
	CHORUS_TRIANGULAR = 8,     /* trsm: b becomes the solution of op(a), from the left or the right; by cuBLAS or hipBLAS */
	CHORUS_QR_PRODUCT = 9,     /* ormqr: b becomes op(Q) * b, or b * op(Q), of a's reflectors, one in each column, with factors */
};

/* What is done to a matrix that is read. */
enum {
	CHORUS_AS_IS = 0,
	CHORUS_TRANSPOSE = 1,
	CHORUS_CONJUGATE_TRANSPOSE = 2,
};

/* Matrices of the device whose neighbours in a column lie side by side, or vectors without gaps. */
typedef struct chorus_columns {
	void *ptr;
	int64_t pitch; /* elements from one column to the next */
	int64_t next;  /* elements from one matrix or vector to the next */
} chorus_columns;

/* A step, or several of them. What the kind doesn't have is NULL. */
typedef struct chorus_solve {
	uint32_t size;
	int32_t kind;
	int32_t dtype; /* of elements: CHORUS_FLOAT32, CHORUS_FLOAT64, CHORUS_COMPLEX64 or CHORUS_COMPLEX128 */
	int32_t upper;   /* 1: the upper triangle of a counts; of CHOLESKY, CHOLESKY_SOLVE, EIGEN and TRIANGULAR */
	int32_t vectors; /* 1: they are wanted; of EIGEN and SVD */
	int32_t all;     /* 1: u and v are square; of SVD */
	int32_t op;      /* on a, or Q; of LU_SOLVE, TRIANGULAR and QR_PRODUCT */
	int32_t right;   /* 1: b is on the left; of TRIANGULAR and QR_PRODUCT */
	int32_t unit;    /* 1: a's diagonal counts as ones; of TRIANGULAR */
	int32_t reserved;
	int64_t rows, columns; /* of a */
	int64_t others;        /* columns of b, its rows if a is on the right, or reflectors */
	int64_t count;
	const chorus_columns *a, *b, *u, *v; /* v is conjugated and transposed */
	const chorus_columns *values;        /* real: eigenvalues, ascending, or singular values, descending */
	const chorus_columns *factors;       /* of reflectors */
	const chorus_columns *pivots;        /* int32: rows that each row was exchanged with, from 1 on */
	void *info;                          /* an int32 for each step: 0, or LAPACK's number for what is wrong with a. May be NULL */
} chorus_solve;

/* chorus_solve_run enqueues a step, which cuSOLVER or hipSOLVER does. CHORUS_UNSUPPORTED: the device has no such library, or the
 * library doesn't do this one. Then what it writes has no particular contents. */
CHORUS_API chorus_status chorus_solve_run(chorus_stream stream, const chorus_solve *solve);

/* chorus_solve_get says whether a device has a library of linear algebra, which is opened if it's there: CHORUS_OK, or
 * CHORUS_UNSUPPORTED. With look 0 it says whether devices of this driver may have one. */
CHORUS_API chorus_status chorus_solve_get(chorus_device device, int32_t look);

/* chorus_blas_handle gives the handle with which a stream multiplies matrices: a cublasHandle_t or hipblasHandle_t, which
 * is the stream's, and lives as long as it. CHORUS_UNSUPPORTED: there's no such library. */
CHORUS_API chorus_status chorus_blas_handle(chorus_stream stream, void **handle);

/* ---- stores: where ranks find each other ---- */

typedef uint64_t chorus_store;


/* chorus_reply_value gives the answer of get and compare_set; the bytes are copied. */
CHORUS_API void chorus_reply_value(chorus_reply *reply, const void *data, int64_t bytes);

/* chorus_reply_error says, in words, why a callback fails; the string is copied. */
CHORUS_API void chorus_reply_error(chorus_reply *reply, const char *message);

/* A store that the caller implements, with the meaning of PyTorch's c10d::Store.
 * Each callback returns CHORUS_OK, CHORUS_TIMEOUT, or another status after
 * chorus_reply_error: CHORUS_PEER_LOST if the store's server is gone, without which
 * a communicator that has been made goes on. They are called from threads of the library, several at a
 * time, without the host's lock, and none is running any more when the function that needed
 * them returns. Keys end in a zero byte; values are bytes. timeout_ns is how long the
 * callback may wait, a second at most: it's called again while there is time. */
typedef struct chorus_store_callbacks {
	uint32_t size;
	uint32_t reserved;
	void *user; /* passed to every callback */
	chorus_status (*set)(void *user, const char *key, const void *value, int64_t bytes, chorus_reply *reply);
	/* get waits until the key exists. */
	chorus_status (*get)(void *user, const char *key, int64_t timeout_ns, chorus_reply *reply);
	/* add adds to a decimal number, 0 if the key is missing, and gives the sum. */
	chorus_status (*add)(void *user, const char *key, int64_t delta, int64_t *sum, chorus_reply *reply);
	/* wait waits until all keys exist. */
	chorus_status (*wait)(void *user, const char *const *keys, int32_t n, int64_t timeout_ns, chorus_reply *reply);
	/* The rest may be NULL; what needs them then fails with CHORUS_UNSUPPORTED. */
	chorus_status (*check)(void *user, const char *const *keys, int32_t n, int32_t *all, chorus_reply *reply);
	chorus_status (*compare_set)(void *user, const char *key, const void *expected, int64_t expected_bytes,
		const void *desired, int64_t desired_bytes, chorus_reply *reply);
	chorus_status (*remove)(void *user, const char *key, int32_t *existed, chorus_reply *reply);
	chorus_status (*num_keys)(void *user, int64_t *n, chorus_reply *reply);
	/* released is called once, when the library will use none of the callbacks any more. */
	void (*released)(void *user);
} chorus_store_callbacks;

/* chorus_store_from_callbacks makes a store of callbacks. */
CHORUS_API chorus_status chorus_store_from_callbacks(const chorus_store_callbacks *callbacks, chorus_store *store);

/* chorus_store_open opens a store [blocks]. The address is one of
 *	tcp://HOST:PORT		a TCPStore's server, PyTorch's or ours
 *	tcp://HOST:PORT?listen	this process serves it as well; port 0 is not allowed
 *	tcp://HOST:PORT?plain	served by PyTorch: without the secret of the job, if there is one
 *	file:///PATH		a file that all ranks can reach
 *	hash:			a store within this process, for ranks that are threads
 * timeout_ns bounds this call and each of the store's; 0 means 300 s. */
CHORUS_API chorus_status chorus_store_open(const char *address, int64_t timeout_ns, chorus_store *store);

/* chorus_store_release closes the store. Communicators that were made from it need it no more. */
CHORUS_API chorus_status chorus_store_release(chorus_store store);

/* ---- communicators ---- */

typedef uint64_t chorus_comm;

/* What counts are checked against, as CHORUS_INVALID_ARGUMENT, before what they count is read. That there is as much, the caller answers
 * for. An operation's lists have one entry per rank, and lists of ranks not more than the communicator has. */
#define CHORUS_MAX_RANKS (1 << 20) /* the largest world, and most handles */
#define CHORUS_MAX_BATCH (1 << 20) /* operations of a batch, and operands of a launch */
#define CHORUS_MAX_HINTS 256

typedef struct chorus_hint {
	const char *name;
	const char *value;
} chorus_hint;

typedef struct chorus_comm_options {
	uint32_t size;
	int32_t rank;           /* -1: from the launcher's environment; CHORUS_NO_WORLD: none yet, see chorus_comm_reconfigure */
	int32_t world_size;     /* read if rank is neither */
	int32_t abort_on_error; /* 1: a failure that breaks the communicator aborts the process; CHORUS_ABORT_BEHIND: only one of an operation that a backend's library has on a stream, and that no call has returned; 0: none; -1: as TORCHCOMM_ABORT_ON_ERROR says */
	const char *backend;    /* NULL: that of CHORUS_BACKEND, or "native" */
	const char *device;     /* NULL: "cpu" */
	const char *name;       /* NULL: "world"; the same on all ranks, and fresh on its store, but for attempts that have failed */
	chorus_store store;     /* 0: the launcher's; may be released once the communicator is made */
	int64_t timeout_ns;     /* of this call, and of operations that give none; 0: as TORCHCOMM_TIMEOUT_SECONDS says, or 600 s */
	const chorus_hint *hints;
	int32_t n_hints;
	int32_t job_size;         /* of a communicator of some ranks of a larger job: how many that has; 0: the communicator's are the job's */
	const int32_t *job_ranks; /* and which of them these are, world_size of them, the same on all members; flight records speak of them so. Read if job_size isn't 0, and rank is given */
	int32_t name_again;       /* 1: others on the store, which have ended, may have had the name; all members pass the same */
	int32_t reserved;
	chorus_comm beside;       /* another communicator of the same ranks, or more, for the tensors of another device: what breaks one of the two breaks both, and chorus_comm_create gives up when that one breaks; 0: none */
} chorus_comm_options;

/* chorus_comm_create joins a communicator [blocks]. All of its ranks call it; it
 * returns when they have found each other, or fails naming those who did not come. */
CHORUS_API chorus_status chorus_comm_create(const chorus_comm_options *options, chorus_comm *comm);

typedef struct chorus_comm_info {
	uint32_t size;
	int32_t rank;
	int32_t world_size;
	uint32_t capabilities; /* CHORUS_CAN_... */
	uint32_t reductions;   /* bit 1 << CHORUS_SUM, ... */
	int32_t abort_on_error;
	int64_t timeout_ns;
	const char *name, *backend, *device; /* valid until the communicator is released */
	int32_t local_size;                  /* how many of the ranks are on this rank's host, with itself; 0: not known */
	int32_t reserved;
	uint64_t mapped; /* collectives of this rank that read and wrote the ranks' own memory in place */
	uint64_t staged; /* those whose data went through other memory, or messages */
} chorus_comm_info;

/* chorus_comm_get fills in what there is to know; the caller sets size. */
CHORUS_API chorus_status chorus_comm_get(chorus_comm comm, chorus_comm_info *info);

/* chorus_comm_bind gives a communicator of the host a device, whose memory its operations take from then on, beside the host's. It's
 * this rank's alone: others may bind at other times, to other devices, or not at all. It may be called again, for the same device, and
 * beside operations. */
CHORUS_API chorus_status chorus_comm_bind(chorus_comm comm, chorus_device device);

/* chorus_comm_status returns CHORUS_OK, or why the communicator is broken. */
CHORUS_API chorus_status chorus_comm_status(chorus_comm comm);

typedef struct chorus_split_options {
	uint32_t size;
	int32_t n_ranks;
	const int32_t *ranks; /* the members of this rank's group, in the order of their new ranks; none: joins no group */
	const char *name;     /* NULL: the parent's name, a dot and the lowest rank */
	int64_t timeout_ns;   /* 0: the parent's */
	const chorus_hint *hints; /* NULL: the parent's */
	int32_t n_hints;
	int32_t reserved;
	chorus_comm beside; /* of the new communicator's ranks, or more, as in chorus_comm_options; 0: none */
} chorus_split_options;

/* chorus_comm_split makes communicators of parts of one [blocks]. Every rank
 * calls it, each with its own group; a rank without one gets 0. */
CHORUS_API chorus_status chorus_comm_split(chorus_comm comm, const chorus_split_options *options, chorus_comm *part);

/* The rank of chorus_comm_options for a process that is to be taken into a world which others are in already. Its
 * communicator has rank -1 and size 0, and works only for the next three functions, finalize and release. */
#define CHORUS_NO_WORLD (-2)
#define CHORUS_ABORT_BEHIND 2

/* chorus_comm_handle gives this rank's handle, by which the other members of a new world find it: text without spaces. It's
 * valid, as is the string, which is the library's, until the communicator is released or reconfigured. */
CHORUS_API chorus_status chorus_comm_handle(chorus_comm comm, const char **handle);

typedef struct chorus_reconfigure_options {
	uint32_t size;
	int32_t n_handles;
	const char *uuid;           /* of this attempt; the same on all members, and fresh */
	const char *const *handles; /* of all members, in the order of their new ranks */
	int32_t any_order;          /* 1: the handles are a set, ordered by the old ranks */
	int32_t n_hints;
	const chorus_hint *hints; /* NULL: the communicator's */
	int64_t timeout_ns;       /* 0: the communicator's */
} chorus_reconfigure_options;

/* chorus_comm_reconfigure makes a new communicator of the processes whose handles are listed, each of which calls it [blocks]: of
 * survivors of a broken one, and of newcomers. Of those that survive the call all succeed, or none. On success comm is finalized, and still
 * to be released; after a failure it's as it was, and another attempt may be made with a fresh uuid. */
CHORUS_API chorus_status chorus_comm_reconfigure(chorus_comm comm, const chorus_reconfigure_options *options, chorus_comm *renewed);

typedef struct chorus_regroup_options {
	uint32_t size;
	int32_t n_without;
	const int32_t *without;  /* ranks to leave out besides those that are lost; one rank may tell all */
	const char *const *with; /* handles of newcomers, which call chorus_comm_regroup, too; one rank may tell all */
	int32_t n_with;
	int32_t at_least;    /* ranks of the new world; fewer are CHORUS_TIMEOUT */
	int64_t patience_ns; /* how long ranks are waited for that are neither lost nor here; 0: half of the time */
	int64_t timeout_ns;  /* 0: the communicator's */
} chorus_regroup_options;

/* chorus_comm_regroup is chorus_comm_reconfigure for ranks that don't know who is left: all survivors call it, and find out
 * [blocks]. Survivors keep their order; newcomers take the places of those who are gone, and then places at the end. */
CHORUS_API chorus_status chorus_comm_regroup(chorus_comm comm, const chorus_regroup_options *options, chorus_comm *renewed);

/* chorus_comm_set_timeout changes the timeout of the operations issued from now on. */
CHORUS_API chorus_status chorus_comm_set_timeout(chorus_comm comm, int64_t timeout_ns);

/* chorus_comm_set_hints replaces the hints of the operations issued from now on. */
CHORUS_API chorus_status chorus_comm_set_hints(chorus_comm comm, const chorus_hint *hints, int32_t n);

/* chorus_comm_abort breaks the communicator on all ranks at once: what waits
 * returns CHORUS_ABORTED with the reason. It doesn't wait. */
CHORUS_API chorus_status chorus_comm_abort(chorus_comm comm, const char *reason);

/* chorus_comm_suspend gives up the device memory that the backend's library holds for the communicator, after the operations
 * issued before, until chorus_comm_resume [blocks]. All ranks call both. Operations are refused in between; a library that can't
 * is CHORUS_UNSUPPORTED. */
CHORUS_API chorus_status chorus_comm_suspend(chorus_comm comm);
CHORUS_API chorus_status chorus_comm_resume(chorus_comm comm);

/* chorus_comm_finalize ends this rank's part after the operations issued before
 * [blocks]; after timeout_ns (0: the communicator's) it aborts them. A second call
 * returns CHORUS_FINALIZED. */
CHORUS_API chorus_status chorus_comm_finalize(chorus_comm comm, int64_t timeout_ns);

/* chorus_comm_leave is chorus_comm_finalize for a program that ends early [blocks]: ranks that wait for this one afterwards
 * get CHORUS_PEER_LOST with the reason, of which 200 bytes are kept. NULL: that the process exited with the communicator open. */
CHORUS_API chorus_status chorus_comm_leave(chorus_comm comm, const char *why, int64_t timeout_ns);

/* chorus_comm_release gives the handle back. A communicator that was not
 * finalized is finalized behind the scenes, with a warning on standard error. */
CHORUS_API chorus_status chorus_comm_release(chorus_comm comm);

/* chorus_register tells the backend that this memory will be used often, and chorus_deregister ends that. It's of use for memory of
 * chorus_alloc; any other may be registered as well. */
CHORUS_API chorus_status chorus_register(chorus_comm comm, void *memory, int64_t bytes);
CHORUS_API chorus_status chorus_deregister(chorus_comm comm, void *memory, int64_t bytes);

/* chorus_register_symmetric tells the backend's library that n blocks of its memory lie alike on all ranks, and
 * chorus_deregister_symmetric ends that [blocks]. Both are collective: all ranks give as many blocks of the same sizes, in any order.
 * A block is a whole allocation of the library's, as chorus_nccl_alloc gives it; a tensor in it has the same place on all ranks. A library
 * without that is CHORUS_UNSUPPORTED. */
CHORUS_API chorus_status chorus_register_symmetric(chorus_comm comm, void *const *blocks, const int64_t *bytes, int32_t n);
CHORUS_API chorus_status chorus_deregister_symmetric(chorus_comm comm, void *const *blocks, const int64_t *bytes, int32_t n);

/* ---- operations ---- */

typedef uint64_t chorus_work;

/* Contiguous elements of the operation's dtype, at an address that suits it, on the host or on a device. */
typedef struct chorus_buffer {
	void *data;
	int64_t count; /* elements */
} chorus_buffer;

/* One operation of one rank. */
typedef struct chorus_op {
	uint32_t size;
	int32_t kind;
	int32_t dtype; /* of all its tensors */
	int32_t reduction;
	void *in;
	int64_t in_count;
	void *out;
	int64_t out_count;
	int32_t root;
	int32_t peer; /* of a send or receive */
	int32_t tag;  /* not negative; a receive matches a send with the same one */
	int32_t n_lists; /* entries of each list and split that is used: the number of ranks; no list of another length is read */
	const chorus_buffer *ins;
	const chorus_buffer *outs;
	const int64_t *in_splits; /* elements for each rank; together not more than in_count */
	const int64_t *out_splits;
	double factor;           /* of CHORUS_PREMUL_SUM, */
	const void *factor_data; /* or, if not NULL, one element of dtype, which is read when the operation starts */
	int64_t timeout_ns;      /* counts from the operation's start; 0: the communicator's */
	const chorus_hint *hints; /* algorithm, chunk_bytes, mapped, slots, stores; every rank passes the same */
	int32_t n_hints;
	/* Results, set when a synchronous operation on the host returns; of others see chorus_work_get. */
	int32_t source; /* who sent what a receive got */
	uint64_t seq;   /* a collective's number on its communicator */
	uint32_t site;  /* where the program calls it, by its number of chorus_site; 0: unknown */
	uint32_t reserved;
	chorus_device device; /* where in, out and lists are: CHORUS_HOST, CHORUS_BOUND, or a device; 0: the drivers that are loaded are asked */
} chorus_op;

/* chorus_site numbers a place in the caller's program, for chorus_op: flight records and errors say then where the operation was
 * called. The same place has the same number; 0, no place, is returned when there are 65535 others. It copies what it's given. */
CHORUS_API uint32_t chorus_site(const char *file, int32_t line, const char *function);

/* chorus_raised tells that the program ends by an exception that nobody has caught, and where that was raised, for flight records, which are
 * written if there's a directory for them. It comes before the communicators are finalized. */
CHORUS_API chorus_status chorus_raised(const char *what, const char *file, int32_t line, const char *function);

/* chorus_submit runs an operation [blocks], or, if work isn't NULL, only issues it
 * and gives the handle of what is under way. Collectives of a communicator run one
 * at a time in the order of their submission; sends and receives run beside them.
 *
 * In the communicator of a device an operation on memory of the device is enqueued, if the process can touch that: without a work on the
 * calling thread's current stream, and the call returns at once, or when it's done if the stream has nothing else to do and
 * all ranks have come; with one on the communicator's own stream, and
 * chorus_stream_wait_work makes another wait for it, chorus_work_wait the host. What fails later is the stream's error.
 *
 * CHORUS_INVALID_ARGUMENT and CHORUS_UNSUPPORTED mean that nothing has moved and that the
 * communicator is as it was; after any other failure of a collective it stays broken. */
CHORUS_API chorus_status chorus_submit(chorus_comm comm, chorus_op *op, chorus_work *work);

/* For Python alone: functions of Python's, and one of PyTorch's, by which chorus_python_submit understands its arguments. */
typedef struct chorus_python {
	uint32_t size;
	uint32_t reserved;
	/* dltensor_from_py_object_no_sync of the DLPack exchange API of torch.Tensor (PyTorch 2.10 and later); NULL if there's none. */
	int (*view)(void *tensor, void *dl_tensor);
	long long (*as_integer)(void *object); /* PyLong_AsLongLong */
	void *(*integer)(long long value);     /* PyLong_FromLongLong */
	void *(*failed)(void);                 /* PyErr_Occurred */
	void (*forget)(void);                  /* PyErr_Clear */
	/* For call sites; all of them are NULL, or none is. */
	void *(*call)(void *callable, void *const *args, uintptr_t n, void *names); /* PyObject_Vectorcall */
	void *(*code)(void *frame);       /* PyFrame_GetCode */
	int (*instruction)(void *frame);  /* PyFrame_GetLasti */
	void *(*back)(void *frame);       /* PyFrame_GetBack */
	void (*drop)(void *object);       /* Py_DecRef */
	void *frame_at;                   /* sys._getframe, which the caller keeps */
	/* site_of(frame), which the caller keeps: where the frame is, by its number of chorus_site, or -1 if the place to tell is that of
	 * the frame that has called it. It's asked once for each instruction. */
	void *site_of;
	/* For the stacks in flight records; stacks_signal 0: there are none. A signal that has no other use and whose handler faulthandler.register
	 * has set, for all threads and with stacks_fd as its file, an empty one that nobody else uses. The library calls the handler as a
	 * function, and never sends the signal. It waits a moment for Python's lock before, which not to have is no obstacle. */
	int32_t stacks_signal;
	int32_t stacks_fd;
	int (*ensure)(void);    /* PyGILState_Ensure */
	void (*release)(int);   /* PyGILState_Release */
	int (*held)(void);      /* PyGILState_Check */
	const char *inner;      /* directories of modules whose frames aren't the program's, separated by colons; of those that end with a slash
	                         * only what is directly in them, but for site-packages */
	/* dtype_of(tensor), which the caller keeps, and what it returns of the two types of integers of 8 bits: a view calls PyTorch's types of fewer
	 * bits so, too. NULL: tensors of such a view are for CHORUS_PYTHON_OTHERWISE. */
	void *dtype_of, *int8, *uint8;
} chorus_python;

/* chorus_set_python sets them before the first chorus_python_submit; and again, without stacks, before Python's end. */
CHORUS_API chorus_status chorus_set_python(const chorus_python *functions);

/* What chorus_python_submit returns, having done nothing, for tensors that take more than it does. */
#define CHORUS_PYTHON_OTHERWISE (-1)

/* chorus_python_submit is a method for Python (ml_meth of a PyMethodDef, METH_FASTCALL) whose self is a communicator's
 * handle: self(kind, reduction, root, timeout_ns, callers, issue[, out[, in]]) runs a collective on tensors [blocks], which
 * are one if there is no in. It returns an int, a chorus_status or CHORUS_PYTHON_OTHERWISE: for tensors that aren't in the
 * host's memory, one element after the other, or whose dtypes differ, are complex or unknown here. A tensor whose bit for
 * negative values is set isn't recognized; the caller asks before. The host's check may leave an exception; then it's raised.
 *
 * callers says where the search for the call site begins: 0 is self's caller, and each number more is one caller above.
 *
 * If issue isn't 0, the operation is issued. The int is then the handle of its chorus_work, CHORUS_PYTHON_OTHERWISE, or -1
 * less the chorus_status. The caller keeps the tensors until the work is done. */
CHORUS_API void *chorus_python_submit(void *self, void *const *args, intptr_t n);

/* The same for a communicator that is bound to a device that PyTorch has by an extension: of the device's tensors, or of those
 * and the host's. */
CHORUS_API void *chorus_python_submit_bound(void *self, void *const *args, intptr_t n);
CHORUS_API void *chorus_python_submit_either(void *self, void *const *args, intptr_t n);

/* The same for a communicator that is bound to a GPU, or to another device whose streams others make: self(device, native,
 * kind, ...). The operation comes
 * after what is on the stream that the vendor's library calls native, as for chorus_stream_adopt; 0 is the current stream of
 * chorus_stream_set_current. chorus_python_wait_gpu(device, native, work) lets such a stream wait for an operation; it
 * returns an int, a chorus_status. */
CHORUS_API void *chorus_python_submit_gpu(void *self, void *const *args, intptr_t n);
CHORUS_API void *chorus_python_wait_gpu(void *self, void *const *args, intptr_t n);

/* chorus_python_site is a method for Python like it: self(callers) returns the call site of an operation that self's caller begins, as an int. */
CHORUS_API void *chorus_python_site(void *self, void *const *args, intptr_t n);

/* chorus_submit_batch submits n operations as one: the sends and receives among
 * them are posted together, so that their order can't deadlock, and then the
 * collectives run: as one group of the backend's library where that has groups, and
 * in order, up to the first that fails, elsewhere. [blocks] unless work is given. If
 * one is invalid nothing begins. timeout_ns bounds each of them that has no timeout of
 * its own; 0: the communicator's. */
CHORUS_API chorus_status chorus_submit_batch(chorus_comm comm, chorus_op *ops, int32_t n, int64_t timeout_ns, chorus_work *work);

/* chorus_work_wait waits until the work is done, for timeout_ns at most (less
 * than 0: until its own timeout) [blocks]. It returns how the operation ended,
 * or CHORUS_PENDING or CHORUS_INTERRUPTED, and then the operation goes on, unless chorus_work_cancel ends it. */
CHORUS_API chorus_status chorus_work_wait(chorus_work work, int64_t timeout_ns);

/* chorus_work_expire declares a work overdue that a backend's library, such as NCCL, has on a stream, for which the caller has waited
 * elapsed_ns in vain: the communicator breaks, and who hasn't come is in the error [blocks]. It's CHORUS_UNSUPPORTED for other works, which
 * go on. */
CHORUS_API chorus_status chorus_work_expire(chorus_work work, int64_t elapsed_ns);

/* chorus_work_test is chorus_work_wait that doesn't wait. */
CHORUS_API chorus_status chorus_work_test(chorus_work work);

/* chorus_stream_wait_work makes a stream's later work, 0 being the calling thread's current stream of the work's device, wait for an operation
 * on device memory. The host doesn't wait, unless it carries the operation out itself, as it does on memory that it can't touch. */
CHORUS_API chorus_status chorus_stream_wait_work(chorus_stream stream, chorus_work work);

typedef struct chorus_work_info {
	uint32_t size;
	chorus_status status; /* CHORUS_PENDING while it's under way */
	int32_t source;       /* who sent what a receive got; -1 while unknown */
	int32_t n_ops;        /* of a batch */
	uint64_t seq;         /* of the last collective; 0 while unknown */
} chorus_work_info;

/* chorus_work_get fills in what is known of a work; the caller sets size. */
CHORUS_API chorus_status chorus_work_get(chorus_work work, chorus_work_info *info);

/* chorus_work_sources gives, for each operation of a batch that is done, who sent
 * what it got, -1 for those that are no receives. */
CHORUS_API chorus_status chorus_work_sources(chorus_work work, int32_t *sources, int32_t n);

typedef void (*chorus_done_fn)(void *user, chorus_status status);

/* chorus_work_notify calls done once when the work is done, from a thread of the
 * library, without the host's lock; at once, from this thread, if it's done already. One per work.
 * chorus_last_error() within done has the facts. With NULL for done, the work is put into the
 * queue of chorus_next_done instead. */
CHORUS_API chorus_status chorus_work_notify(chorus_work work, chorus_done_fn done, void *user);

/* chorus_next_done takes the next work that is done from the queue, in the order in which they
 * were done, and waits for one for timeout_ns at most (less than 0: without limit) [blocks].
 * CHORUS_PENDING: there was none in time, or chorus_wake_done was called. A work that was released
 * meanwhile is in the queue all the same. */
CHORUS_API chorus_status chorus_next_done(int64_t timeout_ns, chorus_work *work);

/* chorus_wake_done makes all chorus_next_done that wait return, or the next call if none does. */
CHORUS_API chorus_status chorus_wake_done(void);

/* chorus_work_cancel gives up what is still under way of a work, as an interrupt gives up a synchronous operation: a message is withdrawn, and
 * its receive or send ends with CHORUS_CANCELED; so does an operation on a window. A collective can't be withdrawn, as others may have
 * taken part in it: its communicator is aborted, for all ranks. It doesn't wait: the work is done soon. A work that is done is left as
 * it is; one that a device's stream has is refused. */
CHORUS_API chorus_status chorus_work_cancel(chorus_work work);

/* chorus_work_release gives the handle back. An operation under way goes on, and so
 * does its use of the tensors; a notification that was asked for still comes. */
CHORUS_API chorus_status chorus_work_release(chorus_work work);

/* ---- windows: memory that others reach without this rank's taking part ---- */

typedef uint64_t chorus_window;

/* chorus_window_create exposes memory to all ranks [blocks]. It's collective; all pass
 * the same dtype, sizes may differ, and count 0 exposes nothing. */
CHORUS_API chorus_status chorus_window_create(chorus_comm comm, void *data, int64_t count, int32_t dtype, chorus_window *window);

typedef struct chorus_window_op {
	uint32_t size;
	int32_t kind;
	int32_t rank;      /* the target; CHORUS_ANY for a fence of all */
	int32_t slot;      /* of signals, from 0 to CHORUS_SIGNAL_SLOTS - 1 */
	int64_t offset;    /* at the target, in elements */
	void *data;        /* source, or where a get goes, or the one element of an update */
	int64_t count;     /* elements; 1 for CHORUS_FETCH_OP and CHORUS_COMPARE_AND_SWAP */
	void *old;         /* where the element before goes */
	const void *expected;
	int32_t reduction;
	int32_t reserved;
	int64_t timeout_ns; /* 0: the communicator's */
} chorus_window_op;

/* chorus_window_submit runs an operation on a window [blocks], or issues it if work
 * isn't NULL. Operations issued on a window from one thread run in order, but for
 * CHORUS_WAIT_SIGNAL, which holds nobody up. On memory of a device they are enqueued on the current
 * stream instead, or behind it with a work, and so are signals and fences of a window of such memory. */
CHORUS_API chorus_status chorus_window_submit(chorus_window window, const chorus_window_op *op, chorus_work *work);

/* chorus_window_map gives the address of a peer's memory in this process, if it can be
 * mapped, else CHORUS_UNSUPPORTED. It's valid until the window is closed. */
CHORUS_API chorus_status chorus_window_map(chorus_window window, int32_t rank, void **data);

typedef struct chorus_window_peer {
	uint32_t size;
	int32_t mapped; /* 1 if chorus_window_map works for it */
	int64_t count;  /* elements that it exposes */
} chorus_window_peer;

/* chorus_window_get fills in what there is to know of a peer's part; the caller sets size. */
CHORUS_API chorus_status chorus_window_get(chorus_window window, int32_t rank, chorus_window_peer *peer);

/* chorus_window_close ends the window on all ranks and gives the handle back [blocks]. It's collective. */
CHORUS_API chorus_status chorus_window_close(chorus_window window);

/* ---- hooks ---- */

typedef uint64_t chorus_hook;

/* chorus_on_abort calls broken once, when the communicator breaks, from a thread of the library;
 * chorus_last_error() within it has the cause. */
typedef void (*chorus_abort_fn)(void *user, chorus_status status);
CHORUS_API chorus_status chorus_on_abort(chorus_comm comm, chorus_abort_fn broken, void *user, chorus_hook *hook);

/* What a completion hook is told. */
typedef struct chorus_completion {
	uint32_t size;
	chorus_status status;
	int32_t kind, dtype;
	int32_t root, peer, tag, reduction;
	int32_t async;
	int32_t reserved;
	uint64_t id;  /* counts this communicator's operations on this rank */
	uint64_t seq;
	int64_t bytes; /* of the input, or of the output where that's all there is */
	const char *algorithm; /* what carried it out; valid during the call */
} chorus_completion;

/* chorus_on_completion calls done after each operation, on the thread that completed it
 * (without the host's lock), which must not wait for this communicator. */
typedef void (*chorus_completion_fn)(void *user, const chorus_completion *completion);
CHORUS_API chorus_status chorus_on_completion(chorus_comm comm, chorus_completion_fn done, void *user, chorus_hook *hook);

/* chorus_hook_remove takes a hook away; calls that have begun may still be running. */
CHORUS_API chorus_status chorus_hook_remove(chorus_hook hook);

#ifdef __cplusplus
}
#endif

#endif
