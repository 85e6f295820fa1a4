// Numbers of 8 bits: 1 sign, 4 or 5 exponent and 3 or 2 fraction bits. Those whose names end in fn or fnuz have no
// infinity. The ones with uz have no negative zero either: its bits are NaN's, and exponents begin one lower.
DEVICE f32 from_f8(u32 x, u32 fraction, u32 bias) {
	u32 sign = (x & 0x80u) << 24, abs = x & 0x7fu;
	if (abs >> fraction == 0) // subnormal, but not as an f32
		return bits_f32(sign | f32_bits((f32)abs * bits_f32((128u - bias - fraction) << 23)));
	return bits_f32(sign | ((abs << (23u - fraction)) + ((127u - bias) << 23)));
}
DEVICE f32 f8_nan(u32 x) { return bits_f32((x & 0x80u) << 24 | 0x7fc00000u); }
DEVICE f32 from_f8e4m3fn(u8 x) { return (x & 0x7fu) == 0x7fu ? f8_nan(x) : from_f8(x, 3, 7); }
DEVICE f32 from_f8e4m3fnuz(u8 x) { return x == 0x80u ? bits_f32(0x7fc00000u) : from_f8(x, 3, 8); }
DEVICE f32 from_f8e5m2fnuz(u8 x) { return x == 0x80u ? bits_f32(0x7fc00000u) : from_f8(x, 2, 16); }
DEVICE f32 from_f8e5m2(u8 x) {
	if ((x & 0x7fu) > 0x7cu)
		return f8_nan(x);
	return (x & 0x7fu) == 0x7cu ? bits_f32((x & 0x80u) << 24 | 0x7f800000u) : from_f8(x, 2, 15);
}
// The nearest number's bits, ties to even. Beyond the largest number they go on.
DEVICE u32 to_f8(u32 abs, u32 fraction, u32 bias) {
	u32 drop = 23u - fraction;
	if (abs < (128u - bias) << 23) { // what is added makes the sum round in the right place
		u32 power = (151u - bias - fraction) << 23;
		return f32_bits(bits_f32(abs) + bits_f32(power)) - power;
	}
	return (abs - ((127u - bias) << 23) + (1u << (drop - 1u)) - 1u + (abs >> drop & 1u)) >> drop;
}
DEVICE u8 to_f8e4m3fn(f32 x) { // beyond 448 it's 448
	u32 b = f32_bits(x), sign = b >> 24 & 0x80u, abs = b & 0x7fffffffu;
	if (abs >= 0x43e00000u)
		return (u8)(sign | (abs > 0x7f800000u ? 0x7fu : 0x7eu));
	return (u8)(sign | to_f8(abs, 3, 7));
}
DEVICE u8 to_f8e5m2(f32 x) {
	u32 b = f32_bits(x), sign = b >> 24 & 0x80u, abs = b & 0x7fffffffu;
	if (abs >= 0x47800000u)
		return (u8)(sign | (abs > 0x7f800000u ? 0x7fu : 0x7cu));
	return (u8)(sign | to_f8(abs, 2, 15));
}
DEVICE u8 to_f8uz(f32 x, u32 fraction, u32 bias, u32 most) {
	u32 b = f32_bits(x), sign = b >> 24 & 0x80u, abs = b & 0x7fffffffu;
	abs = abs >= most ? 0x80u : to_f8(abs, fraction, bias);
	return (u8)(abs >= 0x80u ? 0x80u : abs == 0 ? 0 : sign | abs);
}
DEVICE u8 to_f8e4m3fnuz(f32 x) { return to_f8uz(x, 3, 8, 0x43800000u); }
DEVICE u8 to_f8e5m2fnuz(f32 x) { return to_f8uz(x, 2, 16, 0x47800000u); }
