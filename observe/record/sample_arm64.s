#include "textflag.h"

// func sample(pcs *[frames]uintptr)
//
// The frame pointers of the goroutine's stack form a list: at R29 lies the caller's, above it the return address.
TEXT ·sample(SB), NOSPLIT|NOFRAME, $0-8
	DMB  $0xa // what was stored before is seen before the addresses are
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

// STEP compares a return address of the path with what is in its frame. R0 is the path.
#define STEP(offset, return) \
	MOVWU offset(R0), R3;     \
	MOVWU return(R0), R5;     \
	ADD   R29, R3;            \
	MOVWU 8(R3), R6;          \
	CMP   R6, R5;             \
	BNE   other

// func mark(p *path, t *trail) (tick uint64)
//
// The frame pointers need not be compared but for the first two: a return address says in which function it is, and so how large that
// one's frame is, and where the next one begins.
TEXT ·mark(SB), NOSPLIT|NOFRAME, $0-24
	MRS   CNTVCT_EL0, R5
	MOVD  R5, tick+16(FP)
	MOVD  p+0(FP), R0
	MOVD  (R0), R6
	CMP   R29, R6
	BNE   other
	MOVWU 8(R0), R6
	ADD   R29, R6
	MOVD  (R29), R3
	CMP   R6, R3
	BNE   other
	STEP(8, 28)
	STEP(12, 32)
	STEP(16, 36)
	STEP(20, 40)
	STEP(24, 44)
	RET

other:
	MOVD 48(R0), R5
	ADD  $1, R5
	MOVD R5, 48(R0)
	MOVD t+8(FP), R0
	MOVD 8(g), R1    // the upper end of the stack: g.stack.hi
	SUB  $16, R1
	MOVD RSP, R2
	SUB  $16, R2     // the caller's frame record lies just below its stack pointer
	MOVD R29, R3
	MOVD $5, R4
	MOVD R29, (R0)
	CMP  R2, R3
	BLO  end
	CMP  R1, R3
	BHI  end

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
	ADD  $8, R0
	SUB  $1, R4
	CBNZ R4, end
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
