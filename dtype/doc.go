// Package dtype says what an element is: its size, its name, its number in headers and its Go type.
//
// The type at the centre is [DType], one byte that names an element type. Its numeric values are part of the wire
// format: they travel in message headers and fingerprints and stand in saved plans. A value is therefore never reused
// or renumbered; new types get new numbers at the end.
//
//	dt, err := dtype.Parse("bf16")      // dtype.BFloat16; also "bfloat16", "torch.bfloat16", "BF16"
//	bytes := n * dt.Size()
//	dtype.Of[float32]()                 // dtype.Float32
//	dtype.BF16FromFloat32(1.5).Float32()
//
// Go has no 16- and 8-bit floating-point numbers, so the package brings [F16], [BF16], [F8E4M3FN] and [F8E5M2]: their
// bits as named integers, with conversions from and to float32 and float64.
//
// Invariants:
//   - Widening to float32 or float64 is exact. NaN stays NaN; its payload is not specified.
//   - Narrowing rounds once, to nearest, ties to even, also from float64 (there is no detour through a rounded
//     float32).
//   - What is too large becomes infinite in F16, BF16 and F8E5M2. F8E4M3FN has no infinity: what is beyond 448, its
//     largest number, becomes 448, and so do infinities, while NaN stays NaN. So does PyTorch 2.13; older versions gave
//     NaN.
package dtype
