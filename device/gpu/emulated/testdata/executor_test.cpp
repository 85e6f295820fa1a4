// Kernels with a fault, and the same without it, on the executor alone.
#include "../executor.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

using namespace emulated;

namespace {

struct Case {
	const char *name;
	Dialect dialect;
	const char *source; // of the kernel k(int *out, const int *in, int n, many m)
	unsigned blocks, threads;
	Fault fault;
	const char *text; // that the fault's has
	int first;        // out[0] without a fault
};

constexpr int count = 1024; // elements of out and of in, whose values are their numbers

const Case cases[] = {
    {"a sum", Dialect::cuda, "out[blockIdx.x * blockDim.x + threadIdx.x] = in[threadIdx.x] + n;", 4, 256, Fault::none,
        "", 1024},
    {"a read behind the end", Dialect::cuda, "\nout[threadIdx.x] = in[threadIdx.x + 1];", 1, 1024,
        Fault::illegal_address,
        "thread (1023, 0, 0), module.cu:2: `out[threadIdx.x] = in[threadIdx.x + 1];`: reads 4 bytes", 0},
    {"a write behind the end", Dialect::cuda, "out[threadIdx.x + 1] = 0;", 1, 1024, Fault::illegal_address,
        "writes 4 bytes", 0},
    {"a null pointer", Dialect::cuda, "*(int *)(size_t)(n - 1024) = 1;", 1, 1, Fault::illegal_address, "at 0x0", 0},
    {"memory of the process", Dialect::cuda, "*(int *)0x10000 = 1;", 1, 1, Fault::illegal_address, "outside", 0},
    {"a read without a value", Dialect::cuda, "out[0] = out[1];", 1, 1, Fault::launch_failed, "which have no value", 0},
    {"a word of which a half has a value", Dialect::cuda,
        "*(short *)out = 5; volatile int *word = out; int old = *word; atomicCAS(out, old, (old & 0xffff) + 1);", 1, 1,
        Fault::none, "", 6},
    {"a word without a value", Dialect::cuda, "volatile int *word = out; out[1] = *word;", 1, 1, Fault::launch_failed,
        "which have no value", 0},
    {"shared memory without a value", Dialect::cuda,
        "__shared__ int x[256]; if (threadIdx.x > 0) x[threadIdx.x] = 1; __syncthreads(); out[threadIdx.x] = "
        "x[threadIdx.x];",
        1, 256, Fault::launch_failed, "thread (0, 0, 0)", 0},
    {"shared memory of the block before", Dialect::cuda,
        "__shared__ int x[256]; if (blockIdx.x == 0) x[threadIdx.x] = 1; out[blockIdx.x] = x[0];", 1, 1, Fault::none,
        "", 1},
    {"shared memory behind its end", Dialect::cuda,
        "__shared__ int x[4]; x[threadIdx.x * 1000] = 1; out[threadIdx.x] = x[threadIdx.x];", 1, 64,
        Fault::illegal_address, "writes 4 bytes", 0},
    {"a barrier", Dialect::cuda,
        "__shared__ int x[256]; x[threadIdx.x] = threadIdx.x; __syncthreads(); out[threadIdx.x] = x[255 - "
        "threadIdx.x];",
        1, 256, Fault::none, "", 255},
    {"a missing barrier", Dialect::cuda,
        "__shared__ int x[256]; x[threadIdx.x] = threadIdx.x; out[threadIdx.x] = x[threadIdx.x ^ 64];", 1, 256,
        Fault::launch_failed, "", 0},
    {"a missing barrier before the next round", Dialect::cuda,
        "__shared__ int x[256]; for (int k = 0; k < 2; k++) { x[threadIdx.x] = k; __syncthreads();\n"
        "out[threadIdx.x] = x[255 - threadIdx.x]; }",
        1, 256, Fault::launch_failed, "a race", 0},
    {"a barrier that some leave out", Dialect::cuda, "if (threadIdx.x < 100) __syncthreads();", 1, 256,
        Fault::launch_failed, "a barrier that not all threads of the block reach: thread (100, 0, 0) has ended", 0},
    {"two barriers", Dialect::cuda,
        "if (threadIdx.x < 100) {\n__syncthreads();\n} else {\nout[0] = 1; __syncthreads(); out[1] = 2; }", 1, 101,
        Fault::launch_failed, "is at another: module.cu:4", 0},
    {"blocks that write one place", Dialect::cuda, "out[0] = in[blockIdx.x];", 2, 1, Fault::launch_failed, "a race", 0},
    {"blocks that read what another writes", Dialect::cuda,
        "out[blockIdx.x] = 1; if (blockIdx.x > 0) out[100 + blockIdx.x] = out[0];", 2, 1, Fault::launch_failed,
        "a race", 0},
    {"blocks that write what another has read", Dialect::cuda,
        "if (blockIdx.x > 0) ((int *)in)[0] = 1; else out[0] = in[0];", 2, 1, Fault::launch_failed, "a race", 0},
    {"a large struct among the arguments", Dialect::cuda, "out[threadIdx.x] = (int)m.n[20 + threadIdx.x];", 1, 4,
        Fault::none, "", 20},
    {"a struct that is copied by wider words", Dialect::cuda,
        "struct pair { float a, b; }; __shared__ int first; __shared__ pair x[64]; first = 1; pair p; p.a = 1; p.b = "
        "n; "
        "x[threadIdx.x] = p; __syncthreads(); p = x[63 - threadIdx.x]; out[threadIdx.x] = (int)(p.a + p.b);",
        1, 64, Fault::none, "", 1025},
    {"a word that's read before it's exchanged", Dialect::cuda,
        "volatile int *p = out + 1; if (threadIdx.x == 0) out[1] = 0; __syncthreads(); int old = *p, seen; "
        "while ((seen = atomicCAS((int *)p, old, old + 1)) != old) old = seen; __syncthreads(); out[0] = out[1];",
        1, 64, Fault::none, "", 64},
    {"threads that write the same value", Dialect::cuda, "out[0] = 7;", 4, 64, Fault::none, "", 7},
    {"atomic sums of blocks", Dialect::cuda, "atomicAdd((int *)in, 1); out[blockIdx.x * blockDim.x + threadIdx.x] = 1;",
        16, 64, Fault::none, "", 1},
    {"a sum that isn't atomic", Dialect::cuda, "((int *)in)[0] += 1;", 1, 64, Fault::launch_failed, "a race", 0},
    {"a sum of floats", Dialect::cuda,
        "__shared__ float x; if (threadIdx.x == 0) x = 0; __syncthreads();\n"
        "atomicAdd(&x, 0.5f); __syncthreads(); if (threadIdx.x == 0) out[0] = (int)x;",
        1, 256, Fault::none, "", 128},
    {"a misaligned vector", Dialect::cuda, "float4 v = *(float4 *)(in + 1); out[0] = (int)v.x;", 1, 1,
        Fault::misaligned_address, "float4", 0},
    {"an aligned vector", Dialect::cuda, "int4 v = *(int4 *)(in + 4); out[0] = v.y;", 1, 1, Fault::none, "", 5},
    {"a misaligned word", Dialect::cuda, "out[0] = *(int *)((char *)in + 2);", 1, 1, Fault::misaligned_address, "", 0},
    {"an index of 32 bits", Dialect::cuda, "int i = n * 3000000; out[0] = i;", 1, 1, Fault::launch_failed, "overflows",
        0},
    {"numbers of 32 bits, which wrap", Dialect::cuda, "typedef int i32; typedef i32 T; T x = n * 3000000; out[0] = x;",
        1, 1, Fault::none, "", -1222967296},
    {"sums of a warp", Dialect::cuda,
        "int x = in[threadIdx.x]; for (int k = 16; k > 0; k /= 2) x += __shfl_down_sync(0xffffffffu, x, k); "
        "if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = x;",
        1, 256, Fault::none, "", 496},
    {"sums of a wavefront", Dialect::hip,
        "int x = in[threadIdx.x]; for (int k = 32; k > 0; k /= 2) x += __shfl_xor(x, k); "
        "if (threadIdx.x % 64 == 0) out[threadIdx.x / 64] = x;",
        1, 256, Fault::none, "", 2016},
    {"a shuffle of a warp without a lane", Dialect::cuda,
        "int x = in[threadIdx.x];\nif (threadIdx.x != 7) x = __shfl_sync(0xffffffffu, x, 0); out[threadIdx.x] = x;", 1,
        64, Fault::launch_failed, "lane 7 of its warp doesn't come: that has ended", 0},
    {"a shuffle of a wavefront without a lane", Dialect::hip,
        "int x = in[threadIdx.x]; if (threadIdx.x != 7) x = __shfl(x, 0); __syncthreads(); out[threadIdx.x] = x;", 1,
        64, Fault::launch_failed, "lane 7 of its warp doesn't come: that waits at", 0},
    {"votes", Dialect::cuda,
        "unsigned b = __ballot_sync(0xffffffffu, threadIdx.x % 2); out[threadIdx.x] = (b == 0xaaaaaaaau) + "
        "2 * __any_sync(0xffffffffu, threadIdx.x == 3) + 4 * __all_sync(0xffffffffu, threadIdx.x < 64);",
        1, 32, Fault::none, "", 7},
    {"memory between lanes", Dialect::cuda,
        "__shared__ int x[64]; x[threadIdx.x] = threadIdx.x; __syncwarp(); out[threadIdx.x] = x[threadIdx.x ^ 1];", 1,
        64, Fault::none, "", 1},
    {"memory between lanes without __syncwarp", Dialect::cuda,
        "__shared__ int x[64]; x[threadIdx.x] = threadIdx.x; out[threadIdx.x] = x[threadIdx.x & 62];", 1, 64,
        Fault::launch_failed, "a race", 0},
    {"memory between warps with __syncwarp alone", Dialect::cuda,
        "__shared__ int x[64]; x[threadIdx.x] = threadIdx.x; __syncwarp(); out[threadIdx.x] = x[threadIdx.x & 31];", 1,
        64, Fault::launch_failed, "a race", 0},
    {"dynamic shared memory", Dialect::cuda,
        "extern __shared__ int x[]; x[threadIdx.x] = threadIdx.x; __syncthreads(); out[threadIdx.x] = x[255 - "
        "threadIdx.x];",
        1, 256, Fault::none, "", 255},
    {"dynamic shared memory behind its end", Dialect::cuda, "extern __shared__ int x[]; x[255] = 1;\nx[256] = 1;", 1, 1,
        Fault::illegal_address, "module.cu:2", 0},
    {"an assertion", Dialect::hip, "assert(n == 0);", 1, 1, Fault::assertion, "n == 0", 0},
    // The compiler makes a barrier for each way to it.
    {"unchecked: sums of groups", Dialect::cuda,
        "__shared__ int x[256]; int lane = threadIdx.x % 32; x[threadIdx.x] = in[threadIdx.x]; __syncthreads();\n"
        "for (int k = 16; k > 0; k /= 2) {\nif (lane < k)\nx[threadIdx.x] += x[threadIdx.x + k];\n__syncthreads();\n}\n"
        "if (lane == 0) out[threadIdx.x / 32] = x[threadIdx.x];",
        1, 256, Fault::none, "", 496},
    {"half precision", Dialect::cuda,
        "unsigned short h; float f; asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(1.5f)); "
        "asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(f) : \"h\"(h)); out[0] = (int)(f * 2);",
        1, 1, Fault::none, "", 3},
};

bool run(const Case &c) {
	std::string source =
	    std::string("struct many { long long n[24]; }; extern \"C\" __global__ __launch_bounds__(1024) "
	                "void k(int *out, const int *in, int n, many m) {") +
	    c.source + "\n}\n";
	if (strncmp(c.name, "unchecked", 9) == 0)
		setenv("EMULATED_GPU_CHECKS", "off", 1);
	Compiled made = compile(c.dialect, source, "module.cu", {});
	unsetenv("EMULATED_GPU_CHECKS");
	if (!made.done) {
		printf("%s: doesn't compile: %s\n", c.name, made.log.c_str());
		return false;
	}
	auto e = executor(c.dialect);
	std::string why;
	Module *m = e->load(made.image.data(), made.image.size(), why);
	if (m == nullptr) {
		printf("%s: doesn't load: %s\n", c.name, why.c_str());
		return false;
	}
	alignas(16) static int both[3 * count];
	int *in = both, *out = both + 2 * count;
	for (int k = 0; k < count; k++)
		out[k] = -1, in[k] = k;
	e->allocated({(uintptr_t)out, 4 * count}, false);
	e->allocated({(uintptr_t)in, 4 * count}, true);
	struct {
		int *out, *in;
		int n;
		long long many[24];
	} arguments{out, in, count, {}};
	arguments.many[20] = 20;
	Launch l{e->find(m, "k"), {c.blocks, 1, 1}, {c.threads, 1, 1}, strncmp(c.name, "dynamic", 7) == 0 ? 1024u : 0u,
	    (const unsigned char *)&arguments};
	Outcome o = e->launch(l);
	bool right =
	    o.fault == c.fault && o.text.find(c.text) != std::string::npos && (c.fault != Fault::none || out[0] == c.first);
	if (!right)
		printf("%s: fault %d, want %d, of text %s; want %s; out[0] is %d\n", c.name, (int)o.fault, (int)c.fault,
		    o.text.c_str(), c.text, out[0]);
	else if (c.fault != Fault::none && getenv("VERBOSE") != nullptr)
		printf("%s: %s\n", c.name, o.text.c_str());
	e->unload(m);
	return right;
}

} // namespace

int main() {
	int wrong = 0;
	for (const Case &c : cases)
		wrong += !run(c);
	printf("%d of %zu cases are wrong\n", wrong, sizeof cases / sizeof cases[0]);
	return wrong != 0;
}
