#include "textflag.h"

// func sample(pcs *[frames]uintptr)
//
// The frame pointers of the goroutine's stack form a list: at R29 lies the caller's, above it the return address.
TEXT ·sample(SB), NOSPLIT|NOFRAME, $0-8
	MOVD pcs+0(FP), R0
	MOVD 8(g), R1 // the upper end of the stack: g.stack.hi
	SUB  $16, R1
	MOVD RSP, R2
	SUB  $16, R2  // the caller's frame record lies just below its stack pointer
	MOVD R29, R3
	MOVD $5, R4
	CMP  R2, R3
	BLO  end
	CMP  R1, R3
	BHI  end
	MOVD (R3), R3 // the first is the recorder's own caller

loop:
	CMP  R2, R3
	BLO  end
	CMP  R1, R3
	BHI  end
	MOVD 8(R3), R5
	MOVD R5, (R0)
	MOVD (R3), R3
	ADD  $8, R0
	SUB  $1, R4
	CBNZ R4, loop
	RET

end:
	MOVD ZR, (R0)
	RET

// STEP goes on to the next frame and its return address, as long as the path has them, too. R0 is the path, R3 the frame pointer.
#define STEP(frame, caller) \
	MOVD (R3), R3;         \
	MOVD frame(R0), R6;    \
	CMP  R6, R3;           \
	BNE  other;            \
	MOVD caller(R0), R5;   \
	CBZ  R5, same;         \
	MOVD 8(R3), R6;        \
	CMP  R6, R5;           \
	BNE  other

// func mark(p *path) (tick uint64)
//
// A frame pointer that equals one of the path leads to a frame: each was found in the one before, from the caller's own on.
TEXT ·mark(SB), NOSPLIT|NOFRAME, $0-16
	MRS  CNTVCT_EL0, R5
	MOVD R5, tick+8(FP)
	MOVD p+0(FP), R0
	MOVD R29, R3
	MOVD (R0), R6
	CMP  R6, R3
	BNE  other
	STEP(8, 48)
	STEP(16, 56)
	STEP(24, 64)
	STEP(32, 72)
	STEP(40, 80)

same:
	RET

other:
	MOVD 88(R0), R5
	ADD  $1, R5
	MOVD R5, 88(R0)
	MOVD 8(g), R1 // the upper end of the stack: g.stack.hi
	SUB  $16, R1
	MOVD RSP, R2
	SUB  $16, R2  // the caller's frame record lies just below its stack pointer
	MOVD R29, R3
	MOVD $5, R4
	MOVD ZR, (R0) // should the caller have none, it's never the same
	MOVD ZR, 48(R0)
	CMP  R2, R3
	BLO  out
	CMP  R1, R3
	BHI  out
	MOVD R3, (R0)

loop:
	MOVD (R3), R3
	MOVD R3, 8(R0)
	CMP  R2, R3
	BLO  end
	CMP  R1, R3
	BHI  end
	MOVD 8(R3), R5
	MOVD R5, 48(R0)
	ADD  $8, R0
	SUB  $1, R4
	CBNZ R4, loop
	RET

end:
	MOVD ZR, 48(R0)

out:
	RET

// func ticks() uint64
TEXT ·ticks(SB), NOSPLIT, $0-8
	MRS  CNTVCT_EL0, R0
	MOVD R0, ret+0(FP)
	RET

// func steadyTicks() bool
TEXT ·steadyTicks(SB), NOSPLIT, $0-1
	MOVD $1, R0 // the architecture demands it of the counter
	MOVB R0, ret+0(FP)
	RET
