#include "textflag.h"

// The reductions of arm64. Each holds a few vectors of the result in V0 to V3 while it goes through the sources, and stores them to
// every destination. The assembler lacks most vector arithmetic, so the instruction that combines comes as a number: the
// encoding of "op V0, V0, V0" (Arm Architecture Reference Manual, C7.2), to which ARITH adds the registers.

// ARITH is op Vd, Vn, Vm.
#define ARITH(op, d, n, m) WORD $(op + (m<<16) + (n<<5) + d)

// CONVERT is op Vd, Vn.
#define CONVERT(op, d, n) WORD $(op + (n<<5) + d)

#define FOLD(op) \
	ARITH(op, 0, 0, 4) \
	ARITH(op, 1, 1, 5) \
	ARITH(op, 2, 2, 6) \
	ARITH(op, 3, 3, 7)

// BEGIN loads the arguments: R0 and R1 the destinations and their number, R2 and R3 the sources, R4 the offset, R5 the bytes left.
#define BEGIN(shift) \
	MOVD dsts_base+0(FP), R0 \
	MOVD dsts_len+8(FP), R1 \
	MOVD srcs_base+24(FP), R2 \
	MOVD srcs_len+32(FP), R3 \
	MOVD off+48(FP), R4 \
	MOVD n+56(FP), R5 \
	LSL  $shift, R5, R5

// LOOP runs over stripes of some bytes: LOAD reads the first source into V0 to V3, COMBINE reads another from R6 and folds it in,
// STORE writes to R6.
#define LOOP(bytes, LOAD, COMBINE, PACK, STORE) \
stripe: \
	CMP  $bytes, R5 \
	BLT  done \
	MOVD (R2), R6 \
	ADD  R4, R6, R6 \
	LOAD \
	MOVD $1, R7 \
source: \
	MOVD (R2)(R7<<3), R6 \
	ADD  R4, R6, R6 \
	COMBINE \
	ADD  $1, R7, R7 \
	CMP  R3, R7 \
	BLT  source \
	PACK \
	MOVD $0, R7 \
dest: \
	MOVD (R0)(R7<<3), R6 \
	ADD  R4, R6, R6 \
	STORE \
	ADD  $1, R7, R7 \
	CMP  R1, R7 \
	BLT  dest \
	ADD  $bytes, R4, R4 \
	SUB  $bytes, R5, R5 \
	B    stripe \
done: \
	RET

// ONENAN replaces NaN, which isn't equal to itself, by the one that reductions give: V20, which NAN32 or NAN64 fills.
#define FCMEQ 0x4E20E400
#define FCMEQD 0x4E60E400
#define BIF 0x6EE01C00
#define NAN32 \
	MOVD $0x7fc00000, R8 \
	VDUP R8, V20.S4
#define NAN64 \
	MOVD $0x7ff8000000000000, R8 \
	VDUP R8, V20.D2
#define ONENAN(equal) \
	ARITH(equal, 12, 0, 0) \
	ARITH(BIF, 0, 20, 12) \
	ARITH(equal, 12, 1, 1) \
	ARITH(BIF, 1, 20, 12) \
	ARITH(equal, 12, 2, 2) \
	ARITH(BIF, 2, 20, 12) \
	ARITH(equal, 12, 3, 3) \
	ARITH(BIF, 3, 20, 12)

// PLAIN reduces elements that are computed with as they are, FLOAT and DOUBLE those that may be NaN.
#define PLAINLOAD VLD1 (R6), [V0.B16, V1.B16, V2.B16, V3.B16]
#define PLAINNEXT VLD1 (R6), [V4.B16, V5.B16, V6.B16, V7.B16]
#define PLAINSTORE VST1 [V0.B16, V1.B16, V2.B16, V3.B16], (R6)
#define PLAINCOMBINE(op) PLAINNEXT \
	FOLD(op)
#define PLAIN(name, shift, op) \
TEXT name(SB), NOSPLIT, $0-64 \
	BEGIN(shift) \
	LOOP(64, PLAINLOAD, PLAINCOMBINE(op), NOOP, PLAINSTORE)
#define FLOAT(name, op) \
TEXT name(SB), NOSPLIT, $0-64 \
	BEGIN(2) \
	NAN32 \
	LOOP(64, PLAINLOAD, PLAINCOMBINE(op), ONENAN(FCMEQ), PLAINSTORE)
#define DOUBLE(name, op) \
TEXT name(SB), NOSPLIT, $0-64 \
	BEGIN(3) \
	NAN64 \
	LOOP(64, PLAINLOAD, PLAINCOMBINE(op), ONENAN(FCMEQD), PLAINSTORE)

// HALF reduces float16 as float32: FCVTL and FCVTL2 widen the lower and the upper half of a register, FCVTN and FCVTN2 round.
#define FCVTL 0x0E217800
#define FCVTL2 0x4E217800
#define FCVTN 0x0E216800
#define FCVTN2 0x4E216800
#define HALFLOAD VLD1 (R6), [V8.B16, V9.B16] \
	CONVERT(FCVTL, 0, 8) \
	CONVERT(FCVTL2, 1, 8) \
	CONVERT(FCVTL, 2, 9) \
	CONVERT(FCVTL2, 3, 9)
#define HALFCOMBINE(op) VLD1 (R6), [V8.B16, V9.B16] \
	CONVERT(FCVTL, 4, 8) \
	CONVERT(FCVTL2, 5, 8) \
	CONVERT(FCVTL, 6, 9) \
	CONVERT(FCVTL2, 7, 9) \
	FOLD(op)
#define HALFPACK \
	ONENAN(FCMEQ) \
	CONVERT(FCVTN, 8, 0) \
	CONVERT(FCVTN2, 8, 1) \
	CONVERT(FCVTN, 9, 2) \
	CONVERT(FCVTN2, 9, 3)
#define HALFSTORE VST1 [V8.B16, V9.B16], (R6)
#define HALF(name, op) \
TEXT name(SB), NOSPLIT, $0-64 \
	BEGIN(1) \
	NAN32 \
	LOOP(32, HALFLOAD, HALFCOMBINE(op), HALFPACK, HALFSTORE)

// BFLOAT reduces bfloat16, the upper half of a float32, as float32: the elements at even places and those at odd places of a
// register become one register each. Rounding adds just under half a unit, or half of one before an odd digit; NaN is
// replaced instead. V16 is 0xffff0000, V17 0x7fff, V18 1 in every lane.
#define WIDEN(even, odd, from) \
	VSHL $16, from.S4, even.S4 \
	VAND V16.B16, from.B16, odd.B16
#define ROUND(v, number) \
	VUSHR $16, v.S4, V10.S4 \
	VAND  V18.B16, V10.B16, V10.B16 \
	VADD  V17.S4, V10.S4, V10.S4 \
	VADD  v.S4, V10.S4, V10.S4 \
	ARITH(FCMEQ, 12, number, number) \
	ARITH(BIF, 10, 20, 12) \
	VMOV  V10.B16, v.B16
#define BFLOATLOAD VLD1 (R6), [V8.B16, V9.B16] \
	WIDEN(V0, V1, V8) \
	WIDEN(V2, V3, V9)
#define BFLOATCOMBINE(op) VLD1 (R6), [V8.B16, V9.B16] \
	WIDEN(V4, V5, V8) \
	WIDEN(V6, V7, V9) \
	FOLD(op)
#define MERGE(even, odd, to) \
	VUSHR $16, even.S4, even.S4 \
	VAND  V16.B16, odd.B16, odd.B16 \
	VORR  odd.B16, even.B16, to.B16
#define BFLOATPACK \
	ROUND(V0, 0) \
	ROUND(V1, 1) \
	ROUND(V2, 2) \
	ROUND(V3, 3) \
	MERGE(V0, V1, V8) \
	MERGE(V2, V3, V9)
#define BFLOAT(name, op) \
TEXT name(SB), NOSPLIT, $0-64 \
	BEGIN(1) \
	MOVD $0xffff0000, R8 \
	VDUP R8, V16.S4 \
	MOVD $0x7fff, R8 \
	VDUP R8, V17.S4 \
	MOVD $1, R8 \
	VDUP R8, V18.S4 \
	NAN32 \
	LOOP(32, BFLOATLOAD, BFLOATCOMBINE(op), BFLOATPACK, HALFSTORE)

PLAIN(·reduceSum8NEON, 0, 0x4E208400)
PLAIN(·reduceSum16NEON, 1, 0x4E608400)
PLAIN(·reduceSum32NEON, 2, 0x4EA08400)
PLAIN(·reduceSum64NEON, 3, 0x4EE08400)
PLAIN(·reduceProduct8NEON, 0, 0x4E209C00)
PLAIN(·reduceProduct16NEON, 1, 0x4E609C00)
PLAIN(·reduceProduct32NEON, 2, 0x4EA09C00)
PLAIN(·reduceMinI8NEON, 0, 0x4E206C00)
PLAIN(·reduceMinU8NEON, 0, 0x6E206C00)
PLAIN(·reduceMinI16NEON, 1, 0x4E606C00)
PLAIN(·reduceMinU16NEON, 1, 0x6E606C00)
PLAIN(·reduceMinI32NEON, 2, 0x4EA06C00)
PLAIN(·reduceMinU32NEON, 2, 0x6EA06C00)
PLAIN(·reduceMaxI8NEON, 0, 0x4E206400)
PLAIN(·reduceMaxU8NEON, 0, 0x6E206400)
PLAIN(·reduceMaxI16NEON, 1, 0x4E606400)
PLAIN(·reduceMaxU16NEON, 1, 0x6E606400)
PLAIN(·reduceMaxI32NEON, 2, 0x4EA06400)
PLAIN(·reduceMaxU32NEON, 2, 0x6EA06400)
PLAIN(·reduceBAnd8NEON, 0, 0x4E201C00)
PLAIN(·reduceBOr8NEON, 0, 0x4EA01C00)
PLAIN(·reduceBXor8NEON, 0, 0x6E201C00)
FLOAT(·reduceSumF32NEON, 0x4E20D400)
DOUBLE(·reduceSumF64NEON, 0x4E60D400)
HALF(·reduceSumF16NEON, 0x4E20D400)
BFLOAT(·reduceSumBF16NEON, 0x4E20D400)
FLOAT(·reduceProductF32NEON, 0x6E20DC00)
DOUBLE(·reduceProductF64NEON, 0x6E60DC00)
HALF(·reduceProductF16NEON, 0x6E20DC00)
BFLOAT(·reduceProductBF16NEON, 0x6E20DC00)
FLOAT(·reduceMinF32NEON, 0x4EA0F400)
DOUBLE(·reduceMinF64NEON, 0x4EE0F400)
HALF(·reduceMinF16NEON, 0x4EA0F400)
BFLOAT(·reduceMinBF16NEON, 0x4EA0F400)
FLOAT(·reduceMaxF32NEON, 0x4E20F400)
DOUBLE(·reduceMaxF64NEON, 0x4E60F400)
HALF(·reduceMaxF16NEON, 0x4E20F400)
BFLOAT(·reduceMaxBF16NEON, 0x4E20F400)
