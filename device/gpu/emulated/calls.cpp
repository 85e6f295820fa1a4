// The functions of the executor that kernels call by the words of kernel.h.
#include "worker.h"

#include <cstdarg>
#include <cstdio>
#include <string>

using namespace emulated;

#define SITE ((uintptr_t)__builtin_return_address(0))

#pragma GCC visibility push(default)
extern "C" {

unsigned emulated_place(int what) { return Worker::running()->place(what); }

void *emulated_dynamic_shared() { return Worker::running()->dynamic_memory(); }

void emulated_barrier() { Worker::running()->wait_for_block(SITE); }

void emulated_sync_warp(unsigned long long mask) { Worker::running()->wait_for_warp(Ask::sync, mask, 0, 0, 1, SITE); }

unsigned long long emulated_shuffle(int kind, unsigned long long mask, unsigned long long value, int from, int width) {
	return Worker::running()->wait_for_warp((Ask)kind, mask, value, from, width, SITE);
}

unsigned long long emulated_vote(int kind, unsigned long long mask, unsigned long long value) {
	return Worker::running()->wait_for_warp((Ask)(kind + (int)Ask::all), mask, value, 0, 1, SITE);
}

void emulated_trap(const char *what) { Worker::running()->fail(Fault::assertion, SITE, what); }

void emulated_print(const char *format, ...) {
	va_list list;
	va_start(list, format);
	vprintf(format, list);
	va_end(list);
}
}
#pragma GCC visibility pop
