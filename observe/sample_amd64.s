#include "textflag.h"

// func sample(pcs *[frames]uintptr)
//
// The frame pointers of the goroutine's stack form a list: at BP lies the caller's BP, above it the return address.
TEXT ·sample(SB), NOSPLIT|NOFRAME, $0-8
	MOVQ pcs+0(FP), DI
	MOVQ (TLS), CX
	MOVQ 8(CX), CX // the upper end of the stack: g.stack.hi
	SUBQ $16, CX
	MOVQ BP, SI
	MOVL $5, BX
	CMPQ SI, SP
	JLS  end
	CMPQ SI, CX
	JHI  end
	MOVQ (SI), SI  // the first is the recorder's own caller

loop:
	CMPQ SI, SP
	JLS  end
	CMPQ SI, CX
	JHI  end
	MOVQ 8(SI), AX
	MOVQ AX, (DI)
	MOVQ (SI), SI
	ADDQ $8, DI
	DECL BX
	JNZ  loop
	RET

end:
	MOVQ $0, (DI)
	RET

// STEP goes on to the next frame and its return address, as long as the path has them, too. DI is the path, SI the frame pointer.
#define STEP(frame, caller) \
	MOVQ (SI), SI;       \
	CMPQ SI, frame(DI);  \
	JNE  other;          \
	MOVQ caller(DI), AX; \
	TESTQ AX, AX;        \
	JEQ  same;           \
	CMPQ AX, 8(SI);      \
	JNE  other

// func mark(p *path) (tick uint64)
//
// A frame pointer that equals one of the path leads to a frame: each was found in the one before, from the caller's own on.
TEXT ·mark(SB), NOSPLIT|NOFRAME, $0-16
	PCALIGN $64 // where it lies changes what it costs by 5 ns
	RDTSC
	MOVQ p+0(FP), DI
	SHLQ $32, DX
	ORQ  AX, DX
	MOVQ DX, tick+8(FP)
	MOVQ BP, SI
	CMPQ SI, (DI)
	JNE  other
	STEP(8, 48)
	STEP(16, 56)
	STEP(24, 64)
	STEP(32, 72)
	STEP(40, 80)

same:
	RET

other:
	INCQ 88(DI)
	MOVQ (TLS), CX
	MOVQ 8(CX), CX // the upper end of the stack: g.stack.hi
	SUBQ $16, CX
	MOVQ BP, SI
	MOVL $5, BX
	MOVQ $0, (DI)  // should the caller have none, it's never the same
	MOVQ $0, 48(DI)
	CMPQ SI, SP
	JLS  out
	CMPQ SI, CX
	JHI  out
	MOVQ SI, (DI)

loop:
	MOVQ (SI), SI
	MOVQ SI, 8(DI)
	CMPQ SI, SP
	JLS  end
	CMPQ SI, CX
	JHI  end
	MOVQ 8(SI), AX
	MOVQ AX, 48(DI)
	ADDQ $8, DI
	DECL BX
	JNZ  loop
	RET

end:
	MOVQ $0, 48(DI)

out:
	RET

// func ticks() uint64
TEXT ·ticks(SB), NOSPLIT, $0-8
	RDTSC
	SHLQ $32, DX
	ORQ  DX, AX
	MOVQ AX, ret+0(FP)
	RET

// func steadyTicks() bool
TEXT ·steadyTicks(SB), NOSPLIT, $0-1
	MOVB $0, ret+0(FP)
	MOVL $0x80000000, AX
	CPUID
	CMPL AX, $0x80000007
	JCS  no
	MOVL $0x80000007, AX
	CPUID
	SHRL $8, DX    // EDX bit 8: the counter runs at one rate in all states
	ANDL $1, DX
	MOVB DX, ret+0(FP)

no:
	RET
