// The dialect for NVRTC, whose own headers for half precision may not be there.
DEVICE f32 from_f16(u16 x) {
	f32 y;
	asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
	return y;
}
DEVICE u16 to_f16(f32 x) {
	u16 y;
	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
	return y;
}
