// An OpenCL library between Chorus and the real one, with faults that faulty_set chooses, or FAULTY at the start.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int32_t cl_int;
typedef cl_int (*build_t)(void *, uint32_t, const void *, const char *, void *, void *);
typedef cl_int (*run_t)(void *, void *, uint32_t, const size_t *, const size_t *, const size_t *, uint32_t,
                        const void *, void *);
typedef cl_int (*info_t)(void *, uint32_t, size_t, void *, size_t *);
typedef cl_int (*list_t)(uint32_t, void ***, uint32_t *);

static const char *fault;
static build_t build;
static int builds;
static run_t run;
static info_t info;
static list_t list;

void faulty_set(const char *name) { fault = strdup(name); }

static int is(const char *name) {
  if (fault == NULL && (fault = getenv("FAULTY")) == NULL) fault = "";
  return strcmp(fault, name) == 0;
}

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

cl_int clBuildProgram(void *program, uint32_t n, const void *devices, const char *options, void *then, void *data) {
  if (is("refuses")) return -11;  // CL_BUILD_PROGRAM_FAILURE
  if (is("dies")) raise(SIGSEGV);
  if (is("hangs")) pause();
  while (is("spins")) continue;
  if (is("dies later") && getenv("CHORUS_OPENCL_COMPILE") != NULL && __sync_fetch_and_add(&builds, 1) == 4)
    raise(SIGSEGV);
  if (build == NULL) build = (build_t)real("clBuildProgram");
  return build(program, n, devices, options, then, data);
}

cl_int clEnqueueNDRangeKernel(void *queue, void *kernel, uint32_t dims, const size_t *offset, const size_t *global,
                              const size_t *local, uint32_t n, const void *events, void *event) {
  if (is("lost")) return -36;  // CL_INVALID_COMMAND_QUEUE
  if (run == NULL) run = (run_t)real("clEnqueueNDRangeKernel");
  return run(queue, kernel, dims, offset, global, local, n, events, event);
}

cl_int clGetDeviceInfo(void *device, uint32_t what, size_t size, void *value, size_t *returned) {
  if (info == NULL) info = (info_t)real("clGetDeviceInfo");
  cl_int r = info(device, what, size, value, returned);
  if (what == 0x1028 && value != NULL && is("no compiler")) *(uint32_t *)value = 0;  // CL_DEVICE_COMPILER_AVAILABLE
  return r;
}

// A driver that is used without a loader has a table of its functions at the begin of each platform.
static cl_int list_with_faults(uint32_t n, void ***platforms, uint32_t *count) {
  static void *table[147];
  cl_int r = list(n, platforms, count);
  if (r == 0 && platforms != NULL && build == NULL) {
    memcpy(table, *platforms[0], sizeof table);
    info = (info_t)table[3], build = (build_t)table[30], run = (run_t)table[59];
    table[3] = (void *)clGetDeviceInfo, table[30] = (void *)clBuildProgram, table[59] = (void *)clEnqueueNDRangeKernel;
    for (uint32_t i = 0; i < n && i < *count; i++) *platforms[i] = (void *)table;
  }
  return r;
}

void *clGetExtensionFunctionAddress(const char *name) {
  void *(*find)(const char *) = (void *(*)(const char *))real("clGetExtensionFunctionAddress");
  void *found = find == NULL ? NULL : find(name);
  if (found == NULL || strcmp(name, "clIcdGetPlatformIDsKHR") != 0) return found;
  list = (list_t)found;
  return (void *)list_with_faults;
}
