// The words of CUDA's and HIP's C++ as those of the host's. Kernels are compiled with this before their text, and without
// any header. The executor defines what is declared as extern "C" here.

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __shared__ thread_local // a block runs on one thread of the host, one block after another

typedef decltype(sizeof(0)) size_t;

struct uint3 {
	unsigned x, y, z;
};
typedef uint3 dim3;

extern "C" {
// Of the running thread, in the order threadIdx, blockIdx, blockDim, gridDim: they don't change while it runs.
unsigned emulated_place(int what) __attribute__((const, nothrow));
void *emulated_dynamic_shared() __attribute__((const, nothrow));
void emulated_barrier();
void emulated_sync_warp(unsigned long long mask);
// The value of the lane that `from` asks for, among those of the mask that come here. 0 for all lanes of the wavefront.
unsigned long long emulated_shuffle(int kind, unsigned long long mask, unsigned long long value, int from, int width);
unsigned long long emulated_vote(int kind, unsigned long long mask, unsigned long long value);
[[noreturn]] void emulated_trap(const char *what);
void emulated_print(const char *format, ...);
}

#define threadIdx (uint3{emulated_place(0), emulated_place(1), emulated_place(2)})
#define blockIdx (uint3{emulated_place(3), emulated_place(4), emulated_place(5)})
#define blockDim (uint3{emulated_place(6), emulated_place(7), emulated_place(8)})
#define gridDim (uint3{emulated_place(9), emulated_place(10), emulated_place(11)})
#define warpSize EMULATED_WARP

#define EMULATED static inline __attribute__((always_inline))

EMULATED void __syncthreads() { emulated_barrier(); }
EMULATED void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
EMULATED void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
EMULATED void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
EMULATED void __trap() { emulated_trap("the kernel has called __trap"); }
#define assert(x) ((x) ? (void)0 : emulated_trap("the assertion " #x " is false"))
#define printf emulated_print

// Bits of one type as those of another.
template <class To, class From> EMULATED To emulated_bits(From x) {
	static_assert(sizeof(To) == sizeof(From), "types of different sizes");
	To y;
	__builtin_memcpy(&y, &x, sizeof y);
	return y;
}
EMULATED float __uint_as_float(unsigned x) { return emulated_bits<float>(x); }
EMULATED float __int_as_float(int x) { return emulated_bits<float>(x); }
EMULATED unsigned __float_as_uint(float x) { return emulated_bits<unsigned>(x); }
EMULATED int __float_as_int(float x) { return emulated_bits<int>(x); }
EMULATED double __longlong_as_double(long long x) { return emulated_bits<double>(x); }
EMULATED long long __double_as_longlong(double x) { return emulated_bits<long long>(x); }

EMULATED unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
EMULATED int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
EMULATED unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
	return (unsigned long long)((unsigned __int128)a * b >> 64);
}
EMULATED int __popc(unsigned x) { return __builtin_popcount(x); }
EMULATED int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
EMULATED int __clz(int x) { return x == 0 ? 32 : __builtin_clz((unsigned)x); }
EMULATED int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll((unsigned long long)x); }
EMULATED int __ffs(int x) { return __builtin_ffs(x); }
EMULATED int __ffsll(long long x) { return __builtin_ffsll(x); }
EMULATED unsigned __brev(unsigned x) {
	unsigned y = 0;
	for (int k = 0; k < 32; k++)
		y |= (x >> k & 1u) << (31 - k);
	return y;
}
EMULATED unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
	return (unsigned)((((unsigned long long)high << 32 | low) << (by & 31)) >> 32);
}
EMULATED unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
	return (unsigned)(((unsigned long long)high << 32 | low) >> (by & 31));
}

// Half precision: PTX's instructions, which asm statements become calls of, and _Float16 for compilers without it.
EMULATED float emulated_from_f16(unsigned short x) {
	unsigned sign = (unsigned)(x & 0x8000) << 16, abs = x & 0x7fff;
	if (abs >= 0x7c00)
		return emulated_bits<float>(sign | 0x7f800000u | (abs & 0x3ff) << 13 | (abs > 0x7c00 ? 0x400000u : 0u));
	if (abs >= 0x400)
		return emulated_bits<float>(sign | ((abs << 13) + 0x38000000u));
	return emulated_bits<float>(sign | emulated_bits<unsigned>((float)abs * 0x1p-24f));
}
EMULATED unsigned short emulated_to_f16(float x) {
	unsigned bits = emulated_bits<unsigned>(x), sign = bits >> 16 & 0x8000, abs = bits & 0x7fffffff;
	if (abs >= 0x7f800000u)
		return (unsigned short)(sign | 0x7c00 | (abs > 0x7f800000u ? 0x200 | (abs >> 13 & 0x3ff) : 0));
	if (abs >= 0x477ff000u)
		return (unsigned short)(sign | 0x7c00);
	if (abs < 0x38800000u) // rounded to multiples of 2^-24 by the addition
		return (unsigned short)(sign | (emulated_bits<unsigned>(emulated_bits<float>(abs) + 0.5f) - 0x3f000000u));
	return (unsigned short)(sign | ((abs + 0xfffu + (abs >> 13 & 1u) - 0x38000000u) >> 13));
}
EMULATED void emulated_ptx_cvt_f32_f16(float &y, unsigned short x) { y = emulated_from_f16(x); }
EMULATED void emulated_ptx_cvt_rn_f16_f32(unsigned short &y, float x) { y = emulated_to_f16(x); }
struct emulated_half {
	unsigned short bits;
	emulated_half() = default;
	explicit emulated_half(float x) : bits(emulated_to_f16(x)) {}
	explicit operator float() const { return emulated_from_f16(bits); }
};
#define _Float16 emulated_half

// Functions of both types of floating-point numbers, and of integers by way of f64.
#define EMULATED_1(name) \
	EMULATED float name(float x) { return __builtin_##name##f(x); } \
	EMULATED double name(double x) { return __builtin_##name(x); } \
	EMULATED float name##f(float x) { return __builtin_##name##f(x); }
#define EMULATED_2(name) \
	EMULATED float name(float x, float y) { return __builtin_##name##f(x, y); } \
	EMULATED double name(double x, double y) { return __builtin_##name(x, y); } \
	EMULATED double name(float x, double y) { return __builtin_##name(x, y); } \
	EMULATED double name(double x, float y) { return __builtin_##name(x, y); } \
	EMULATED float name##f(float x, float y) { return __builtin_##name##f(x, y); }
#define EMULATED_IS(name) \
	EMULATED bool name(float x) { return __builtin_##name(x); } \
	EMULATED bool name(double x) { return __builtin_##name(x); }
// clang-format off
EMULATED_1(acos) EMULATED_1(acosh) EMULATED_1(asin) EMULATED_1(asinh) EMULATED_1(atan) EMULATED_1(atanh)
EMULATED_1(cbrt) EMULATED_1(ceil) EMULATED_1(cos) EMULATED_1(cosh) EMULATED_1(erf) EMULATED_1(erfc) EMULATED_1(exp)
EMULATED_1(exp2) EMULATED_1(expm1) EMULATED_1(fabs) EMULATED_1(floor) EMULATED_1(lgamma) EMULATED_1(log)
EMULATED_1(log10) EMULATED_1(log1p) EMULATED_1(log2) EMULATED_1(logb) EMULATED_1(nearbyint) EMULATED_1(rint)
EMULATED_1(round) EMULATED_1(sin) EMULATED_1(sinh) EMULATED_1(sqrt) EMULATED_1(tan) EMULATED_1(tanh)
EMULATED_1(tgamma) EMULATED_1(trunc) EMULATED_2(atan2) EMULATED_2(copysign) EMULATED_2(fdim) EMULATED_2(fmax)
EMULATED_2(fmin) EMULATED_2(fmod) EMULATED_2(hypot) EMULATED_2(nextafter) EMULATED_2(pow) EMULATED_2(remainder)
EMULATED_IS(isnan) EMULATED_IS(isinf) EMULATED_IS(isfinite);
// clang-format on
EMULATED bool signbit(float x) { return __builtin_signbitf(x); }
EMULATED bool signbit(double x) { return __builtin_signbit(x); }
EMULATED float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
EMULATED double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
EMULATED float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
EMULATED float ldexp(float x, int n) { return __builtin_ldexpf(x, n); }
EMULATED double ldexp(double x, int n) { return __builtin_ldexp(x, n); }
EMULATED float scalbn(float x, int n) { return __builtin_scalbnf(x, n); }
EMULATED double scalbn(double x, int n) { return __builtin_scalbn(x, n); }
EMULATED float rsqrt(float x) { return 1 / __builtin_sqrtf(x); }
EMULATED double rsqrt(double x) { return 1 / __builtin_sqrt(x); }
template <class T> EMULATED T frexp(T x, int *power) {
	int n = 0; // the C library's own write wouldn't be seen
	T fraction = sizeof(T) == 4 ? (T)__builtin_frexpf((float)x, &n) : (T)__builtin_frexp((double)x, &n);
	*power = n;
	return fraction;
}
template <class T> EMULATED T modf(T x, T *whole) {
	*whole = trunc(x);
	return isinf(x) ? copysign((T)0, x) : copysign(x - *whole, x);
}
template <class T> EMULATED void sincos(T x, T *sine, T *cosine) { *sine = sin(x), *cosine = cos(x); }
EMULATED int abs(int x) { return x < 0 ? -x : x; }
EMULATED float __fdividef(float x, float y) { return x / y; }
EMULATED float __fmul_rn(float x, float y) { return x * y; }
EMULATED float __fadd_rn(float x, float y) { return x + y; }
EMULATED float __fsub_rn(float x, float y) { return x - y; }
EMULATED float __fdiv_rn(float x, float y) { return x / y; }
EMULATED float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
EMULATED float __fmaf_rn(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
EMULATED double __dmul_rn(double x, double y) { return x * y; }
EMULATED double __dadd_rn(double x, double y) { return x + y; }
EMULATED double __fma_rn(double x, double y, double z) { return __builtin_fma(x, y, z); }
template <class T> EMULATED T max(T a, T b) { return a > b ? a : b; }
template <class T> EMULATED T min(T a, T b) { return a < b ? a : b; }

// Vectors, which are aligned as the hardware's. They have their own copies, so that compilers check where one is bound.
#define EMULATED_VECTORS(name, type) \
	struct alignas(2 * sizeof(type)) name##2 { \
		type x, y; \
		name##2() = default; \
		name##2(type a, type b) : x(a), y(b) {} \
		name##2(const name##2 & o) : x(o.x), y(o.y) {} \
		name##2 &operator=(const name##2 & o) { \
			x = o.x, y = o.y; \
			return *this; \
		} \
	}; \
	struct alignas(4 * sizeof(type) > 16 ? 16 : 4 * sizeof(type)) name##4 { \
		type x, y, z, w; \
		name##4() = default; \
		name##4(type a, type b, type c, type d) : x(a), y(b), z(c), w(d) {} \
		name##4(const name##4 & o) : x(o.x), y(o.y), z(o.z), w(o.w) {} \
		name##4 &operator=(const name##4 & o) { \
			x = o.x, y = o.y, z = o.z, w = o.w; \
			return *this; \
		} \
	}; \
	EMULATED name##2 make_##name##2(type x, type y) { return name##2(x, y); } \
	EMULATED name##4 make_##name##4(type x, type y, type z, type w) { return name##4(x, y, z, w); }
EMULATED_VECTORS(char, signed char)
EMULATED_VECTORS(uchar, unsigned char)
EMULATED_VECTORS(short, short)
EMULATED_VECTORS(ushort, unsigned short)
EMULATED_VECTORS(int, int)
EMULATED_VECTORS(uint, unsigned)
EMULATED_VECTORS(longlong, long long)
EMULATED_VECTORS(ulonglong, unsigned long long)
EMULATED_VECTORS(float, float)
EMULATED_VECTORS(double, double)

// Atomic operations.
#define EMULATED_ATOMIC(type) \
	EMULATED type atomicAdd(type *p, type v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); } \
	EMULATED type atomicExch(type *p, type v) { return __atomic_exchange_n(p, v, __ATOMIC_RELAXED); } \
	EMULATED type atomicAnd(type *p, type v) { return __atomic_fetch_and(p, v, __ATOMIC_RELAXED); } \
	EMULATED type atomicOr(type *p, type v) { return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); } \
	EMULATED type atomicXor(type *p, type v) { return __atomic_fetch_xor(p, v, __ATOMIC_RELAXED); } \
	EMULATED type atomicCAS(type *p, type old, type v) { \
		__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); \
		return old; \
	} \
	EMULATED type atomicMax(type *p, type v) { \
		type old = __atomic_load_n(p, __ATOMIC_RELAXED); \
		while (old < v && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) { \
		} \
		return old; \
	} \
	EMULATED type atomicMin(type *p, type v) { \
		type old = __atomic_load_n(p, __ATOMIC_RELAXED); \
		while (v < old && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) { \
		} \
		return old; \
	}
EMULATED_ATOMIC(int)
EMULATED_ATOMIC(unsigned)
EMULATED_ATOMIC(unsigned long long)
EMULATED int atomicSub(int *p, int v) { return __atomic_fetch_sub(p, v, __ATOMIC_RELAXED); }
EMULATED unsigned atomicSub(unsigned *p, unsigned v) { return __atomic_fetch_sub(p, v, __ATOMIC_RELAXED); }
template <class T, class Word> EMULATED T emulated_atomic_add(T *p, T v) {
	Word old = __atomic_load_n((Word *)p, __ATOMIC_RELAXED), sum;
	do
		sum = emulated_bits<Word>(emulated_bits<T>(old) + v);
	while (!__atomic_compare_exchange_n((Word *)p, &old, sum, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return emulated_bits<T>(old);
}
EMULATED float atomicAdd(float *p, float v) { return emulated_atomic_add<float, unsigned>(p, v); }
EMULATED double atomicAdd(double *p, double v) { return emulated_atomic_add<double, unsigned long long>(p, v); }

// Warps. Without a mask, as in HIP, all lanes of the wavefront that haven't ended come.
template <class T> EMULATED T emulated_shuffled(int kind, unsigned long long mask, T value, int from, int width) {
	static_assert(sizeof(T) <= 8, "a value that's wider than a shuffle");
	unsigned long long word = 0;
	__builtin_memcpy(&word, &value, sizeof value);
	word = emulated_shuffle(kind, mask, word, from, width);
	__builtin_memcpy(&value, &word, sizeof value);
	return value;
}
#define EMULATED_SHUFFLE(name, kind) \
	template <class T> \
	EMULATED T __##name##_sync(unsigned long long mask, T value, int from, int width = EMULATED_WARP) { \
		return emulated_shuffled(kind, mask, value, from, width); \
	}
EMULATED_SHUFFLE(shfl, 0)
EMULATED_SHUFFLE(shfl_up, 1)
EMULATED_SHUFFLE(shfl_down, 2)
EMULATED_SHUFFLE(shfl_xor, 3)
EMULATED void __syncwarp(unsigned long long mask = EMULATED_LANES) { emulated_sync_warp(mask); }
EMULATED bool __all_sync(unsigned long long mask, int x) { return emulated_vote(0, mask, x != 0) != 0; }
EMULATED bool __any_sync(unsigned long long mask, int x) { return emulated_vote(1, mask, x != 0) != 0; }
#if EMULATED_WARP == 64
typedef unsigned long long emulated_lanes;
#define EMULATED_SHUFFLE_OF_HIP(name, kind) \
	template <class T> EMULATED T __##name(T value, int from, int width = EMULATED_WARP) { \
		return emulated_shuffled(kind, 0, value, from, width); \
	}
EMULATED_SHUFFLE_OF_HIP(shfl, 0)
EMULATED_SHUFFLE_OF_HIP(shfl_up, 1)
EMULATED_SHUFFLE_OF_HIP(shfl_down, 2)
EMULATED_SHUFFLE_OF_HIP(shfl_xor, 3)
EMULATED bool __all(int x) { return emulated_vote(0, 0, x != 0) != 0; }
EMULATED bool __any(int x) { return emulated_vote(1, 0, x != 0) != 0; }
EMULATED unsigned long long __ballot(int x) { return emulated_vote(2, 0, x != 0); }
EMULATED unsigned long long __activemask() { return emulated_vote(3, 0, 1); }
EMULATED void __builtin_amdgcn_wave_barrier() { emulated_sync_warp(0); }
EMULATED void __builtin_amdgcn_fence(int, const char *) {}
#else
typedef unsigned emulated_lanes;
EMULATED emulated_lanes __activemask() { return (emulated_lanes)emulated_vote(3, 0, 1); }
#endif
EMULATED emulated_lanes __ballot_sync(unsigned long long mask, int x) {
	return (emulated_lanes)emulated_vote(2, mask, x != 0);
}

// Products of small matrices by a warp, whose lanes have the elements that the vendors' manuals say.
EMULATED int emulated_lane() {
	return (int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % EMULATED_WARP);
}
EMULATED float emulated_from_bf16(unsigned short x) { return emulated_bits<float>((unsigned)x << 16); }
typedef float emulated_number_of(unsigned short);
#if EMULATED_WARP == 64
template <emulated_number_of *number, class Sum, class Four> EMULATED Sum emulated_mfma(Four a, Four b, Sum d) {
	int lane = emulated_lane();
	for (int k = 0; k < 4; k++) { // four of the depth, which a lane has of a row or column
		typedef unsigned long long word;
		word column = __shfl(emulated_bits<word>(b), k * 16 + lane % 16);
		for (int j = 0; j < 4; j++) {
			word row = __shfl(emulated_bits<word>(a), k * 16 + lane / 16 * 4 + j);
			for (int i = 0; i < 64; i += 16)
				d[j] += number((unsigned short)(row >> i)) * number((unsigned short)(column >> i));
		}
	}
	return d;
}
#define __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, d, ...) emulated_mfma<emulated_from_f16>(a, b, d)
#define __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, d, ...) emulated_mfma<emulated_from_bf16>(a, b, d)
#else
template <emulated_number_of *number>
EMULATED void emulated_mma(float *(&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
	int lane = emulated_lane();
	for (int k = 0; k < 8; k++) { // two of the depth, which are a word
		unsigned row[2], column[2];
		for (int i = 0; i < 2; i++) {
			row[i] = __shfl_sync(EMULATED_LANES, a[i + k / 4 * 2], lane / 4 * 4 + k % 4);
			column[i] = __shfl_sync(EMULATED_LANES, b[k / 4], (lane % 4 * 2 + i) * 4 + k % 4);
		}
		for (int j = 0; j < 4; j++)
			for (int i = 0; i < 32; i += 16)
				*d[j] += number((unsigned short)(row[j / 2] >> i)) * number((unsigned short)(column[j % 2] >> i));
	}
}
#define EMULATED_MMA(type) \
	EMULATED void emulated_ptx_mma_sync_aligned_m16n8k16_row_col_f32_##type##_##type##_f32(float &d0, float &d1, \
	    float &d2, float &d3, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) { \
		float *d[] = {&d0, &d1, &d2, &d3}; \
		emulated_mma<emulated_from_##type>(d, {a0, a1, a2, a3}, {b0, b1}); \
	}
EMULATED_MMA(f16)
EMULATED_MMA(bf16)
#endif

// An entry is what the executor calls: a function that takes the arguments out of their packed list.
struct emulated_parameter {
	size_t offset, bytes;
};
struct emulated_entry {
	const char *name;
	void (*call)(const unsigned char *);
	const emulated_parameter *parameters;
	size_t count;
	int max_threads;
};
template <size_t... I> struct emulated_indexes {};
template <size_t N, size_t... I> struct emulated_upto : emulated_upto<N - 1, N - 1, I...> {};
template <size_t... I> struct emulated_upto<0, I...> { typedef emulated_indexes<I...> type; };
template <class F, F *f> struct emulated_caller;
template <class... P, void (*f)(P...)> struct emulated_caller<void(P...), f> {
	struct list {
		emulated_parameter all[sizeof...(P) + 1];
	};
	static constexpr list make() {
		constexpr size_t sizes[] = {sizeof(P)..., 1}, aligns[] = {alignof(P)..., 1};
		list l{};
		size_t at = 0;
		for (size_t k = 0; k < sizeof...(P); k++) {
			at = (at + aligns[k] - 1) / aligns[k] * aligns[k];
			l.all[k] = {at, sizes[k]};
			at += sizes[k];
		}
		return l;
	}
	static constexpr list parameters = make();
	template <size_t... I>
	__attribute__((no_sanitize("thread"))) static void pass(const unsigned char *arguments, emulated_indexes<I...>) {
		f(*(const P *)(arguments + parameters.all[I].offset)...);
	}
	__attribute__((no_sanitize("thread"))) static void call(const unsigned char *arguments) {
		pass(arguments, typename emulated_upto<sizeof...(P)>::type());
	}
	static constexpr emulated_entry entry(const char *name, int max_threads) {
		return {name, &call, parameters.all, sizeof...(P), max_threads};
	}
};
// In the thread's copy of the shared memory, whose place is known by it.
extern "C" __attribute__((visibility("default"))) void *emulated_shared_memory() {
	static thread_local char mark;
	return &mark;
}
// The name may be a macro's.
#define EMULATED_ENTRY(name, threads) EMULATED_ENTRY_OF(name, threads)
#define EMULATED_ENTRY_OF(name, threads) emulated_caller<decltype(name), name>::entry(#name, threads),
#define EMULATED_ENTRIES(...) \
	extern "C" __attribute__((visibility("default"))) \
	const emulated_entry emulated_entries[] = {__VA_ARGS__{nullptr, nullptr, nullptr, 0, 0}};
