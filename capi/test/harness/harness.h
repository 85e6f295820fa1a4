// Declarations that the scenarios of the harness share.
#ifndef HARNESS_H
#define HARNESS_H

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chorus.h"

extern int rank, size;
extern const char *address;

#define SECOND INT64_C(1000000000)

// DIE ends the process with a message.
#define DIE(...)                                                           \
	do {                                                               \
		fprintf(stderr, "%s:%d: rank %d: ", __FILE__, __LINE__, rank); \
		fprintf(stderr, __VA_ARGS__);                              \
		fprintf(stderr, "\n");                                     \
		exit(1);                                                   \
	} while (0)

// EXPECT demands a condition.
#define EXPECT(cond)                          \
	do {                                  \
		if (!(cond))                  \
			DIE("not so: %s", #cond); \
	} while (0)

// GETS demands that a call returns a status, and that an error's text has its beginning once.
#define GETS(want, call)                                                                                              \
	do {                                                                                                          \
		chorus_status got_ = (call);                                                                          \
		if (got_ != (want))                                                                                   \
			DIE("%s: status %d, want %s: %s", #call, got_, #want, chorus_last_error()->message);          \
		const char *text_ = got_ == CHORUS_OK ? NULL : strstr(chorus_last_error()->message, "chorus:");       \
		if (text_ && strstr(text_ + 1, "chorus:"))                                                            \
			DIE("%s: begins twice: %s", #call, chorus_last_error()->message);                             \
	} while (0)

#define OK(call) GETS(CHORUS_OK, call)

chorus_comm join(const char *name, int64_t timeout_ns);
chorus_comm join_as(chorus_store store, const char *name, int r, int n, int64_t timeout_ns);
void leave(chorus_comm c);

// An operation of float32 or int32 tensors, to be adjusted.
chorus_op reduce_op(int kind, void *in, int64_t in_count, void *out, int64_t out_count);

void operations(void);
void errors(void);
void windows(void);
void memory(void);
void forked(void);
void panicked(void);
void cycles(void);
void wire(void);
void monitored(void);
void threads(void);
void callbacks(void);
void hosts(void);
void interrupts(void);
void hooked(void);
void queued(void);
void devices(void);
void kernels(void);
void regroup(void);
void bench(void);

#endif
