// The part that all drivers share: a rank of a peer library that waits, asleep in
// a read, until the harness tells it over a unix socket to run a burst of rounds.
//
//	harness: run OP BYTES IN_PLACE REFILL WARMUP BLOCKS PER_BLOCK CHECK
//	rank:    {"us": [mean of a round in each block], "wrong": elements}
//	harness: drop                  gives the buffers back
//	rank:    {}
//	harness: (closes)              the rank ends
//
// A library fills in a struct library and calls serve. A burst is timed as package bench times ours: rounds run back to
// back, in blocks so long that reading the clock costs nothing. With REFILL each rank writes its input, all ranks meet
// in a barrier, and each round is timed alone.
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum op { ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BARRIER, OPS };

static const char *const op_names[OPS] = {"all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "barrier"};

// A size counts all blocks together; a block is what one rank contributes or gets.
struct burst {
	enum op op;
	size_t bytes;
	int in_place, refill, warmup, blocks, per_block, check;
	float *in, *out; // the same in place; of bytes, or of a block where the operation has one
	size_t count, block; // elements
};

struct library {
	int rank, size;
	char version[64]; // of the library, in its own words; empty if it doesn't say
	// call runs the operation once and returns 0, or -1 if the library hasn't got it in this form.
	int (*call)(const struct burst *);
	void (*barrier)(void);
	// prepare, if any, sees each burst before its first call.
	void (*prepare)(const struct burst *);
};

static double now_us(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

// Buffers come from malloc, as a program's do, so that a library which replaces
// malloc by a shared heap has its chance. They start at different pages on different ranks, and the second
// away from the first: equal address bits 12 to 27 of streams that are read together cost a factor of eight on
// some processors.
struct buffer { char *mem; size_t size; };

static float *reserve(struct buffer *b, size_t bytes, size_t pages) {
	enum { page = 4096, slack = 64 * page };
	if (b->size < bytes) {
		free(b->mem);
		b->mem = (char *)malloc(bytes + slack);
		if (!b->mem) {
			fprintf(stderr, "no memory for %zu bytes\n", bytes);
			exit(1);
		}
		memset(b->mem, 0, bytes + slack);
		b->size = bytes;
	}
	return (float *)(((uintptr_t)b->mem + page - 1) / page * page + pages * page);
}

static void give_back(struct buffer *b) {
	free(b->mem);
	b->mem = NULL;
	b->size = 0;
}

// A rank's contribution at element i is its rank plus one, times (i modulo a prime, plus one); sums of up to 8 ranks
// are exact. A span is the n elements that begin at at; they are elements from, from + 1, ... of such a contribution.
enum { period = 251 };

static void fill_span(float *at, size_t n, int factor, size_t from) {
	for (size_t i = 0, k = from % period; i < n; i++, k = k + 1 == period ? 0 : k + 1)
		at[i] = (float)(factor * (int)(k + 1));
}

static long wrong_in_span(const float *at, size_t n, int factor, size_t from) {
	long wrong = 0;
	for (size_t i = 0, k = from % period; i < n; i++, k = k + 1 == period ? 0 : k + 1)
		wrong += at[i] != (float)(factor * (int)(k + 1));
	return wrong;
}

static void fill_known(const struct burst *b, int rank) {
	if (b->op == ALL_GATHER)
		fill_span(b->in + (b->in_place ? (size_t)rank * b->block : 0), b->block, rank + 1, 0);
	else
		fill_span(b->in, b->count, rank + 1, 0);
}

static long count_wrong(const struct burst *b, int rank, int ranks) {
	long wrong = 0;
	int all = ranks * (ranks + 1) / 2;
	size_t m = b->block;
	switch (b->op) {
	case ALL_REDUCE: return wrong_in_span(b->out, b->count, all, 0);
	case BROADCAST: return wrong_in_span(b->out, b->count, 1, 0);
	case REDUCE_SCATTER: return wrong_in_span(b->out, m, all, (size_t)rank * m);
	case ALL_GATHER:
	case ALL_TO_ALL:
		for (int r = 0; r < ranks; r++)
			wrong += wrong_in_span(b->out + (size_t)r * m, m, r + 1, b->op == ALL_GATHER ? 0 : (size_t)rank * m);
		return wrong;
	default: return 0;
	}
}

// write_anew is what a program does that computes gradients; ordinary stores, where a call
// of memset would bypass the caches for large buffers.
static void write_anew(const struct burst *b) {
	volatile float *p = b->in;
	typedef float vec __attribute__((vector_size(32), aligned(4), may_alias));
	vec zero = {0};
	size_t i = 0;
	for (; i + 8 <= b->count; i += 8)
		*(volatile vec *)(p + i) = zero;
	for (; i < b->count; i++)
		p[i] = 0;
}

static void zero_buffers(const struct burst *b) {
	memset(b->in, 0, b->bytes);
	memset(b->out, 0, b->bytes);
}

static void answer_error(FILE *to, const char *text) {
	fprintf(to, "{\"error\": \"%s\"}\n", text);
	fflush(to);
}

static void run_burst(const struct library *lib, struct burst *b, FILE *to) {
	long wrong = 0;
	if (lib->prepare)
		lib->prepare(b);
	if (b->check) {
		memset(b->out, 0xa5, b->bytes);
		fill_known(b, lib->rank);
		if (lib->call(b)) {
			answer_error(to, "the library has no such operation");
			return;
		}
		wrong += count_wrong(b, lib->rank, lib->size);
	}
	zero_buffers(b); // zeros stay zeros, however many rounds
	double *us = (double *)malloc(sizeof(double) * b->blocks);
	if (b->refill) {
		for (int i = -b->warmup; i < b->blocks; i++) {
			write_anew(b);
			lib->barrier();
			double start = now_us();
			lib->call(b);
			double took = now_us() - start;
			if (i >= 0)
				us[i] = took;
		}
	} else {
		for (int i = 0; i < b->warmup; i++)
			lib->call(b);
		double last = now_us();
		for (int i = 0; i < b->blocks; i++) {
			for (int j = 0; j < b->per_block; j++)
				lib->call(b);
			double now = now_us();
			us[i] = (now - last) / b->per_block;
			last = now;
		}
	}
	if (b->check) {
		memset(b->out, 0xa5, b->bytes);
		fill_known(b, lib->rank);
		lib->call(b);
		wrong += count_wrong(b, lib->rank, lib->size);
	}
	fputs("{\"us\": [", to);
	for (int i = 0; i < b->blocks; i++)
		fprintf(to, "%s%.4f", i ? ", " : "", us[i]);
	fprintf(to, "], \"wrong\": %ld}\n", wrong);
	fflush(to);
	free(us);
}

// serve returns when the harness closes the socket, or could not be reached.
static int serve(const struct library *lib, const char *path) {
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	strncpy(at.sun_path, path, sizeof at.sun_path - 1);
	if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at)) {
		perror(path);
		return 1;
	}
	FILE *from = fdopen(fd, "r"), *to = fdopen(dup(fd), "w");
	fprintf(to, "{\"rank\": %d, \"pid\": %d, \"library\": \"%s\"}\n", lib->rank, (int)getpid(), lib->version);
	fflush(to);
	struct buffer first = {0}, second = {0};
	char line[256], name[32];
	while (fgets(line, sizeof line, from)) {
		struct burst b = {.op = OPS};
		if (!strcmp(line, "drop\n")) {
			give_back(&first);
			give_back(&second);
			fputs("{}\n", to);
			fflush(to);
			continue;
		}
		if (sscanf(line, "run %31s %zu %d %d %d %d %d %d", name, &b.bytes, &b.in_place, &b.refill, &b.warmup, &b.blocks, &b.per_block, &b.check) != 8) {
			answer_error(to, "not a command");
			continue;
		}
		for (int i = 0; i < OPS; i++)
			if (!strcmp(name, op_names[i]))
				b.op = (enum op)i;
		b.count = b.bytes / sizeof(float);
		b.block = b.count / lib->size;
		b.in = b.out = reserve(&first, b.bytes, 3 * lib->rank);
		if (!b.in_place)
			b.out = reserve(&second, b.bytes, 3 * lib->rank + 29);
		run_burst(lib, &b, to);
	}
	return 0;
}
