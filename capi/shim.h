// Declarations of C that the Go side of the library needs, and that no caller sees.
#ifndef CHORUS_SHIM_H
#define CHORUS_SHIM_H

#include "chorus.h"

struct chorus_reply {
	void *data;
	int64_t bytes;
	char *error;
};

// shim_set_error makes an error, which was allocated with malloc, this thread's last one.
void shim_set_error(chorus_error *e);
// shim_poison makes every later call fail with the error. Only the first counts.
void shim_poison(chorus_error *e);
// shim_refuse makes what shim_poison was given this thread's last error.
void shim_refuse(void);
// shim_check asks the host whether this thread's wait is to be given up: 1 is yes,
// 0 no, -1 that this thread is not to be asked.
int shim_check(void);

// A thread's current streams, one for each device where it's not the default one.
enum { SHIM_CURRENTS = 16 };
struct shim_current {
	chorus_device device; // 0: there are no more
	chorus_stream stream; // 0: the default one
};
// The calling thread's current stream of a device, 0 if it's the default one; and setting it, which fails (0) if there are
// those of too many devices.
chorus_stream shim_current(chorus_device device);
int shim_set_current(chorus_device device, chorus_stream stream);

// shim_stacks has Python write the stacks of all its threads into memory, whatever they do, and returns how many bytes these are.
int64_t shim_stacks(char *text, int64_t room);
// shim_inner returns chorus_python.inner, or NULL.
const char *shim_inner(void);
// shim_forked reports whether this process was made by fork from one that had loaded the library.
int shim_forked(void);
// shim_forked_error makes that this thread's last error, and shim_incomplete that chorus_set_python got too little.
chorus_status shim_forked_error(void);
chorus_status shim_incomplete(void);
// shim_host_thread returns chorus_host.thread.
uint64_t shim_host_thread(void);

chorus_status shim_task(chorus_task_fn f, void *user, void **views, chorus_reply *reply);
void shim_over(chorus_over_fn over, void *user);
void shim_activity(chorus_activity_fn each, void *user, const chorus_activity *activity);

// Calls of the caller's functions; those with an error make it the thread's last one first.
void shim_done(chorus_done_fn done, void *user, chorus_status status, chorus_error *e);
void shim_completion(chorus_completion_fn done, void *user, const chorus_completion *completion);
chorus_status shim_store_set(const chorus_store_callbacks *c, const char *key, const void *value, int64_t bytes, chorus_reply *r);
chorus_status shim_store_get(const chorus_store_callbacks *c, const char *key, int64_t timeout_ns, chorus_reply *r);
chorus_status shim_store_add(const chorus_store_callbacks *c, const char *key, int64_t delta, int64_t *sum, chorus_reply *r);
chorus_status shim_store_wait(const chorus_store_callbacks *c, const char *const *keys, int32_t n, int64_t timeout_ns, chorus_reply *r);
chorus_status shim_store_check(const chorus_store_callbacks *c, const char *const *keys, int32_t n, int32_t *all, chorus_reply *r);
chorus_status shim_store_compare_set(const chorus_store_callbacks *c, const char *key, const void *expected, int64_t expected_bytes,
	const void *desired, int64_t desired_bytes, chorus_reply *r);
chorus_status shim_store_remove(const chorus_store_callbacks *c, const char *key, int32_t *existed, chorus_reply *r);
chorus_status shim_store_num_keys(const chorus_store_callbacks *c, int64_t *n, chorus_reply *r);
void shim_store_released(const chorus_store_callbacks *c);

#endif
