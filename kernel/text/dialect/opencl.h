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
#ifdef PART
#define BLOCK (first_x + (i64)get_group_id(0))
#define BLOCK_Y (first_y + (i64)get_group_id(1))
#define BLOCK_Z (first_z + (i64)get_group_id(2))
#define BLOCKS blocks_x
#else
#define BLOCK ((i64)get_group_id(0))
#define BLOCK_Y ((i64)get_group_id(1))
#define BLOCK_Z ((i64)get_group_id(2))
#define BLOCKS ((i64)get_num_groups(0))
#define BLOCKS_Y ((i64)get_num_groups(1))
#endif
#define UNROLL
#define ALIGNED(n) __attribute__((aligned(n)))
#define PREFETCH(p) prefetch((const GLOBAL char *)(p), (size_t)1)
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
typedef uint4 u128;
#ifdef USES_F64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double f64;
#endif

DEVICE f32 bits_f32(u32 x) { return as_float(x); }
DEVICE u32 f32_bits(f32 x) { return as_uint(x); }

// vload_half and vstore_half of a variable's address would do everywhere, but that a compiler may take a half and a u16
// for different places: PoCL 3.0's has read variables before they were written.
#ifdef cl_khr_fp16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
DEVICE f32 from_f16(u16 x) { return convert_float(as_half(x)); }
DEVICE u16 to_f16(f32 x) { return as_ushort(convert_half_rte(x)); }
#else
DEVICE f32 from_f16(u16 x) {
	u32 a = x & 0x7fff, sign = (u32)(x & 0x8000) << 16;
	u32 small = as_uint((f32)a * 0x1p-24f), large = (a << 13) + (a < 0x7c00 ? 0x38000000u : 0x70000000u);
	return as_float((a < 0x400 ? small : large) | sign);
}
DEVICE u16 to_f16(f32 x) {
	u32 a = as_uint(x) & 0x7fffffff, sign = as_uint(x) >> 16 & 0x8000;
	u32 small = as_uint(as_float(a) + 0.5f) - 0x3f000000; // rounded to multiples of 2^-24 by the addition
	u32 normal = (a + 0xfff + (a >> 13 & 1) - 0x38000000) >> 13;
	u32 large = a > 0x7f800000 ? 0x7e00 : 0x7c00;
	return (u16)((a < 0x38800000 ? small : a < 0x47800000 ? normal : large) | sign);
}
#endif
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
