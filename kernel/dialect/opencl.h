// The dialect for OpenCL C 1.2 and later.
#define KERNEL __kernel
#define DEVICE static
#define GLOBAL __global
#define LOCAL __local
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define THREAD ((i32)get_local_id(0))
#define LANE ((i64)get_local_id(0))
#define THREADS ((i32)get_local_size(0))
#define THREAD_Y ((i32)get_local_id(1))
#define BLOCK ((i64)get_group_id(0))
#define BLOCK_Y ((i64)get_group_id(1))
#define BLOCK_Z ((i64)get_group_id(2))
#define BLOCKS ((i64)get_num_groups(0))
#define BLOCKS_Y ((i64)get_num_groups(1))
#define UNROLL
#define AS_IT_IS _Pragma("clang loop vectorize(disable) unroll(disable)")
#define ONE_THREAD __attribute__((reqd_work_group_size(1, 1, 1)))

typedef char i8;
typedef uchar u8;
typedef short i16;
typedef ushort u16;
typedef int i32;
typedef uint u32;
typedef long i64;
typedef ulong u64;
typedef float f32;
#ifdef USES_F64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double f64;
#endif

DEVICE f32 bits_f32(u32 x) { return as_float(x); }
DEVICE u32 f32_bits(f32 x) { return as_uint(x); }
DEVICE f32 from_f16(u16 x) { return vload_half(0, (const __private half *)&x); }
DEVICE u16 to_f16(f32 x) {
	u16 y;
	vstore_half_rte(x, 0, (__private half *)&y);
	return y;
}
DEVICE u32 mul_high(u32 a, u32 b) { return mul_hi(a, b); }
DEVICE u32 add_u32(volatile GLOBAL u32 *p, u32 v) { return atomic_add(p, v); }
#define ADD_LOCAL(p, v) atomic_add(p, v)
DEVICE u32 swap_u32(volatile GLOBAL u32 *p, u32 old, u32 v) { return atomic_cmpxchg(p, old, v); }
#ifdef USES_ATOMIC64
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
DEVICE u64 swap_u64(volatile GLOBAL u64 *p, u64 old, u64 v) { return atom_cmpxchg(p, old, v); }
#endif
#ifdef USES_F64
DEVICE f64 bits_f64(u64 x) { return as_double(x); }
DEVICE u64 f64_bits(f64 x) { return as_ulong(x); }
#endif
