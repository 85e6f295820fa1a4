#include "textflag.h"

// func sample(pcs *[frames]uintptr) uint64
//
// The frame pointers of the goroutine's stack form a list: at R29 lies the caller's, above it the return address.
TEXT ·sample(SB), NOSPLIT|NOFRAME, $0-16
	MOVD pcs+0(FP), R0
	PRFM 48(R0), PSTL1KEEP // the next slot, both lines of it
	PRFM 112(R0), PSTL1KEEP
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
	B    clock

end:
	MOVD ZR, (R0)

clock:
	MRS  CNTVCT_EL0, R5
	MOVD R5, ret+8(FP)
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
