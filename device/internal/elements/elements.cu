// copy_elements is what device.Elements describes, in the C that CUDA, HIP and OpenCL share. Numbers are converted as
// kern.Convert does, to the bit, but for what is in a NaN.

#ifdef __OPENCL_VERSION__
#define KERNEL kernel
#define DEVICE static
#define GLOBAL global
#define INDEX get_global_id(0)
typedef ulong u64;
typedef long i64;
#else
#ifndef KERNEL
#define KERNEL extern "C" __global__
#define DEVICE static __device__
#endif
#define GLOBAL
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
typedef unsigned long long u64;
typedef long long i64;
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;

// The numbers of package dtype.
enum {
	BOOL = 1, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FLOAT16, BFLOAT16, FLOAT8_E4M3FN, FLOAT8_E5M2,
	FLOAT32, FLOAT64, COMPLEX64, COMPLEX128
};

DEVICE int bytes_of(int type) {
	switch (type) {
	case UINT16: case INT16: case FLOAT16: case BFLOAT16:
		return 2;
	case UINT32: case INT32: case FLOAT32:
		return 4;
	case UINT64: case INT64: case FLOAT64: case COMPLEX64:
		return 8;
	case COMPLEX128:
		return 16;
	}
	return 1;
}

union f32 { float f; u32 bits; };
union f64 { double f; u64 bits; };

DEVICE float single(u32 bits) { union f32 x; x.bits = bits; return x.f; }
DEVICE u32 bits_of(float f) { union f32 x; x.f = f; return x.bits; }

// load and store move up to 8 bytes at any address: one that isn't aligned would be a fault.
DEVICE u64 load(GLOBAL const u8 *p, int n) {
	if (((u64)p & (n - 1)) == 0)
		switch (n) {
		case 1: return *p;
		case 2: return *(GLOBAL const u16 *)p;
		case 4: return *(GLOBAL const u32 *)p;
		case 8: return *(GLOBAL const u64 *)p;
		}
	u64 v = 0;
	for (int i = 0; i < n; i++)
		v |= (u64)p[i] << 8 * i;
	return v;
}

DEVICE void store(GLOBAL u8 *p, int n, u64 v) {
	if (((u64)p & (n - 1)) == 0)
		switch (n) {
		case 1: *p = (u8)v; return;
		case 2: *(GLOBAL u16 *)p = (u16)v; return;
		case 4: *(GLOBAL u32 *)p = (u32)v; return;
		case 8: *(GLOBAL u64 *)p = v; return;
		}
	for (int i = 0; i < n; i++)
		p[i] = (u8)(v >> 8 * i);
}

// widen is a float of sign, exponent with that bias and man digits; from inf on it's infinity and NaN.
DEVICE float widen(u32 sign, u32 abs, u32 man, u32 bias, u32 inf) {
	u32 drop = 23 - man, power = (127 + 24 - bias - man) << 23;
	if (abs >= inf)
		return single(sign | 0x7f800000u | abs << drop);
	if (abs < 1u << man) // subnormal: digits under a power of two, which is taken away
		return single(sign | bits_of(single(power | abs) - single(power)));
	return single(sign | ((abs << drop) + ((127 - bias) << 23)));
}

// narrow is its inverse, rounded to nearest, ties to even, for what is neither negative nor NaN.
DEVICE u32 narrow(u32 abs, u32 man, u32 bias) {
	u32 drop = 23 - man, power = (127 + 24 - bias - man) << 23;
	if (abs < (127 + 1 - bias) << 23) // subnormal: the sum rounds in the right place
		return bits_of(single(abs) + single(power)) - power;
	return (abs - ((127 - bias) << 23) + (1u << (drop - 1)) - 1 + (abs >> drop & 1)) >> drop;
}

// is_single reports whether float holds all of a type's numbers.
DEVICE int is_single(int type) { return type >= FLOAT16 && type <= FLOAT32; }

DEVICE float read_single(int type, u32 v) {
	switch (type) {
	case FLOAT16: return widen(v >> 15 << 31, v & 0x7fff, 10, 15, 0x7c00);
	case BFLOAT16: return single(v << 16);
	case FLOAT8_E4M3FN:
		if ((v & 0x7f) == 0x7f)
			return single(0x7fc00000u);
		return widen(v >> 7 << 31, v & 0x7f, 3, 7, 0x80);
	case FLOAT8_E5M2: return widen(v >> 7 << 31, (v & 0x7f) << 8, 10, 15, 0x7c00);
	}
	return single(v);
}

DEVICE u32 write_single(int type, float f) {
	u32 b = bits_of(f), sign = b >> 31, abs = b & 0x7fffffffu, nan = abs > 0x7f800000u;
	switch (type) {
	case FLOAT16:
		return sign << 15 | (nan ? 0x7e00 : abs >= 0x47800000u ? 0x7c00 : narrow(abs, 10, 15));
	case BFLOAT16:
		return nan ? b >> 16 | 0x40 : (b + 0x7fff + (b >> 16 & 1)) >> 16;
	case FLOAT8_E4M3FN:
		return sign << 7 | (nan ? 0x7f : abs >= 0x43e00000u ? 0x7e : narrow(abs, 3, 7));
	case FLOAT8_E5M2:
		return sign << 7 | (nan ? 0x7f : abs >= 0x47800000u ? 0x7c : narrow(abs, 2, 15));
	}
	return b;
}

// to_odd rounds so that rounding once more gives what rounding once would: what isn't exact has an odd last digit.
DEVICE float to_odd(double f) {
	float r = (float)f;
	double back = r;
	if (back == f || f != f)
		return r;
	u32 b = bits_of(r);
	if ((b & 1) == 0)
		b = (back < 0 ? -back : back) > (f < 0 ? -f : f) ? b - 1 : b + 1;
	return single(b);
}

DEVICE double odd_double(u64 v) {
	if (v >> 53 != 0 && (v & 0x7ff) != 0)
		v = (v & ~(u64)0x7ff) | 1 << 11;
	return (double)v;
}

// number is one of a type, as the widest of its kind.
struct number {
	char kind; // 'i', 'u', or 'f' with f, or 's' with s
	i64 i;
	u64 u;
	float s;
	double f, imaginary;
};

DEVICE double read_double(GLOBAL const u8 *p) { union f64 x; x.bits = load(p, 8); return x.f; }
DEVICE void write_double(GLOBAL u8 *p, double f) { union f64 x; x.f = f; store(p, 8, x.bits); }

DEVICE struct number read_number(int type, GLOBAL const u8 *p) {
	struct number x = {0};
	int n = bytes_of(type);
	x.kind = 'u';
	switch (type) {
	case BOOL: x.u = *p != 0; return x;
	case UINT8: case UINT16: case UINT32: case UINT64: x.u = load(p, n); return x;
	case FLOAT64: x.kind = 'f'; x.f = read_double(p); return x;
	case COMPLEX64:
		x.kind = 'f';
		x.f = single((u32)load(p, 4));
		x.imaginary = single((u32)load(p + 4, 4));
		return x;
	case COMPLEX128: x.kind = 'f'; x.f = read_double(p); x.imaginary = read_double(p + 8); return x;
	}
	if (is_single(type)) {
		x.kind = 's';
		x.s = read_single(type, (u32)load(p, n));
		x.f = x.s;
		return x;
	}
	x.kind = 'i';
	x.i = (i64)(load(p, n) << (64 - 8 * n)) >> (64 - 8 * n);
	return x;
}

// to_integer goes towards zero, and to the nearest end of the type's range for what is beyond; NaN becomes 0.
DEVICE u64 to_integer(int type, double f) {
	int bits = 8 * bytes_of(type), is_signed = type >= INT8;
	u64 largest = is_signed ? ((u64)1 << (bits - 1)) - 1 : ~(u64)0 >> (64 - bits);
	if (f != f)
		return 0;
	if (f >= (double)largest)
		return largest;
	if (is_signed)
		return f <= -(double)largest - 1 ? (u64)(-(i64)largest - 1) : (u64)(i64)f;
	return f <= 0 ? 0 : (u64)f;
}

DEVICE void write_number(int type, GLOBAL u8 *p, struct number x) {
	int n = bytes_of(type);
	if (type == BOOL) {
		*p = x.kind == 'i' ? x.i != 0 : x.kind == 'u' ? x.u != 0 : x.f != 0 || x.imaginary != 0;
		return;
	}
	if (type <= INT64) {
		store(p, n, x.kind == 'i' ? (u64)x.i : x.kind == 'u' ? x.u : to_integer(type, x.f));
		return;
	}
	if (type < FLOAT32) {
		float f = x.s;
		if (x.kind == 'f')
			f = to_odd(x.f);
		else if (x.kind == 'u')
			f = to_odd(odd_double(x.u));
		else if (x.kind == 'i')
			f = to_odd(x.i < 0 ? -odd_double(-(u64)x.i) : odd_double((u64)x.i));
		store(p, n, write_single(type, f));
		return;
	}
	if (type == FLOAT32 || type == COMPLEX64) {
		float f = x.kind == 'i' ? (float)x.i : x.kind == 'u' ? (float)x.u : x.kind == 'f' ? (float)x.f : x.s;
		store(p, 4, bits_of(f));
		if (type == COMPLEX64)
			store(p + 4, 4, bits_of((float)x.imaginary));
		return;
	}
	write_double(p, x.kind == 'i' ? (double)x.i : x.kind == 'u' ? (double)x.u : x.f);
	if (type == COMPLEX128)
		write_double(p + 8, x.imaginary);
}

struct layout {
	int to, from;
	i64 sizes[8], dst[8], src[8];
};

// The number of an element has 32 bits, as a division of 64 takes some hundred instructions. Dimensions that aren't there
// take none, and the outermost one no division: so elements that lie one after the other are found without any.
KERNEL void copy_elements(GLOBAL void *dst, GLOBAL const void *src, i64 n, struct layout l) {
	u32 i = INDEX;
	if (i >= n)
		return;
	GLOBAL u8 *to = (GLOBAL u8 *)dst;
	GLOBAL const u8 *from = (GLOBAL const u8 *)src;
#pragma unroll
	for (int k = 7; k >= 0; k--) {
		u32 size = (u32)l.sizes[k], at = i;
		if (size == 1)
			continue;
		i = 0;
		if (at >= size) {
			i = at / size;
			at -= i * size;
		}
		to += at * l.dst[k];
		from += at * l.src[k];
	}
	if (l.to != l.from) {
		write_number(l.to, to, read_number(l.from, from));
		return;
	}
	int size = bytes_of(l.to), part = size < 8 ? size : 8;
	for (int j = 0; j < size; j += part)
		store(to + j, part, load(from + j, part));
}
