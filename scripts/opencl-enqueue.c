// The cost of a launch in a program in C that calls OpenCL itself. scripts/zoom-bench.py compiles and calls it.
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

static const char *source = "__kernel void add(__global float *o, __global const float *a, __global const float *b,"
	" int n, float alpha) { int i = get_global_id(0); if (i < n) o[i] = a[i] + alpha * b[i]; }";

static void *queue, *kernel, *memory;
static int32_t (*set)(void *, uint32_t, size_t, const void *), (*set_svm)(void *, uint32_t, const void *);
static int32_t (*run)(void *, void *, uint32_t, const size_t *, const size_t *, const size_t *, uint32_t, void *, void *);
static int32_t (*flush)(void *), (*finish)(void *);

// prepare opens a driver as a loader of OpenCL does: its objects begin with the address of a table of all functions. It
// makes a queue and a kernel of the first device, and returns 0, or the step that failed.
int prepare(const char *driver) {
	void *lib = dlopen(driver, RTLD_NOW), *platform, *device, *context, *program;
	int32_t r = 0;
	if (!lib)
		return 1;
	void *(*extension)(const char *) = dlsym(lib, "clGetExtensionFunctionAddress");
	int32_t (*platforms)(uint32_t, void **, void *) = extension ? extension("clIcdGetPlatformIDsKHR") : NULL;
	if (!platforms || platforms(1, &platform, NULL))
		return 2;
	void **table = *(void ***)platform;
	int32_t (*devices)(void *, uint64_t, uint32_t, void **, void *) = table[2];
	void *(*make_context)(void *, uint32_t, void **, void *, void *, int32_t *) = table[4];
	void *(*make_queue)(void *, void *, uint64_t, int32_t *) = table[9];
	void *(*make)(void *, uint32_t, const char **, void *, int32_t *) = table[26];
	int32_t (*build)(void *, uint32_t, void **, const char *, void *, void *) = table[30];
	void *(*make_kernel)(void *, const char *, int32_t *) = table[34];
	void *(*alloc)(void *, uint64_t, size_t, uint32_t) = table[126];
	set = table[38];
	set_svm = table[134];
	run = table[59];
	flush = table[46];
	finish = table[47];
	if (devices(platform, 0xffffffff, 1, &device, NULL))
		return 3;
	context = make_context(NULL, 1, &device, NULL, NULL, &r);
	queue = r ? NULL : make_queue(context, device, 2, &r);
	program = r ? NULL : make(context, 1, &source, NULL, &r);
	if (r || build(program, 1, &device, "", NULL, NULL))
		return 4;
	kernel = make_kernel(program, "add", &r);
	memory = alloc(context, 1, 4096, 0);
	return r || !memory ? 5 : 0;
}

// enqueue launches n times, waits, and returns how many ns the launches took without the wait.
double enqueue(int n) {
	struct timespec a, b;
	int32_t count = 64;
	float alpha = 1;
	size_t items = 64, group = 16;
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int i = 0; i < n; i++) {
		for (int k = 0; k < 3; k++)
			set_svm(kernel, k, (char *)memory + 1024 * k);
		set(kernel, 3, sizeof count, &count);
		set(kernel, 4, sizeof alpha, &alpha);
		run(queue, kernel, 1, NULL, &items, &group, 0, NULL, NULL);
		flush(queue);
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	finish(queue);
	return (b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec);
}
