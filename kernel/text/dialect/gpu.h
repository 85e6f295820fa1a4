// The words of the dialect that CUDA's and HIP's C++ share.
// Blocks have 256 threads. AMD's compiler would leave registers for 1,024.
#define KERNEL extern "C" __global__ __launch_bounds__(256)
#define DEVICE static __device__ __forceinline__
#define GLOBAL
#define LOCAL __shared__
#define BARRIER() __syncthreads()
#define THREAD ((i32)threadIdx.x)
#define LANE ((i64)threadIdx.x)
#define THREADS ((i32)blockDim.x)
#define THREAD_Y ((i32)threadIdx.y)
#ifdef PART
#define BLOCK (first_x + (i64)blockIdx.x)
#define BLOCK_Y (first_y + (i64)blockIdx.y)
#define BLOCK_Z (first_z + (i64)blockIdx.z)
#define BLOCKS blocks_x
#else
#define BLOCK ((i64)blockIdx.x)
#define BLOCK_Y ((i64)blockIdx.y)
#define BLOCK_Z ((i64)blockIdx.z)
#define BLOCKS ((i64)gridDim.x)
#endif
#define UNROLL _Pragma("unroll")
#define ALIGNED(n) alignas(n)

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
struct alignas(16) u128 { u32 words[4]; };

DEVICE u32 mul_high(u32 a, u32 b) { return __umulhi(a, b); }
DEVICE u32 add_u32(volatile u32 *p, u32 v) { return atomicAdd((u32 *)p, v); }
#define ADD_LOCAL(p, v) atomicAdd(p, v)
#define ADD_F32(p, v) atomicAdd(p, v)
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 600
#define ADD_F64(p, v) atomicAdd(p, v)
#endif
DEVICE u32 swap_u32(volatile u32 *p, u32 old, u32 v) { return atomicCAS((u32 *)p, old, v); }
DEVICE u64 swap_u64(volatile u64 *p, u64 old, u64 v) { return atomicCAS((u64 *)p, old, v); }
DEVICE f32 bits_f32(u32 x) { return __uint_as_float(x); }
DEVICE u32 f32_bits(f32 x) { return __float_as_uint(x); }
DEVICE f64 bits_f64(u64 x) { return __longlong_as_double((i64)x); }
DEVICE u64 f64_bits(f64 x) { return (u64)__double_as_longlong(x); }
#ifndef INFINITY
#define INFINITY bits_f32(0x7f800000u)
#endif
#ifndef NAN
#define NAN bits_f32(0x7fc00000u)
#endif
