// The dialect for hiprtc.
DEVICE f32 from_f16(u16 x) {
	union { u16 bits; _Float16 half; } y;
	y.bits = x;
	return (f32)y.half;
}
DEVICE u16 to_f16(f32 x) {
	union { u16 bits; _Float16 half; } y;
	y.half = (_Float16)x;
	return y.bits;
}
