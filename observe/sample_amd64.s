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

// STEP compares a return address of the path with what is in its frame. DI is the path.
#define STEP(frame, caller) \
	MOVQ frame(DI), SI;  \
	MOVQ caller(DI), AX; \
	CMPQ AX, 8(SI);      \
	JNE  other

// func mark(p *path) (tick uint64)
//
// The frame pointers need not be compared but for the first two: a return address says in which function it is, and so how large that
// one's frame is, and where the next one begins.
TEXT ·mark(SB), NOSPLIT|NOFRAME, $0-16
	PCALIGN $64 // where it lies changes what it costs by 5 ns
	RDTSC
	MOVQ p+0(FP), DI
	SHLQ $32, DX
	ORQ  AX, DX
	MOVQ DX, tick+8(FP)
	CMPQ BP, (DI)
	JNE  other
	MOVQ (BP), SI
	CMPQ SI, 8(DI)
	JNE  other
	STEP(8, 48)
	STEP(16, 56)
	STEP(24, 64)
	STEP(32, 72)
	STEP(40, 80)
	RET

other:
	INCQ 88(DI)
	LEAQ 96(DI), R8 // no frame
	MOVQ (TLS), CX
	MOVQ 8(CX), CX  // the upper end of the stack: g.stack.hi
	SUBQ $16, CX
	MOVQ BP, SI
	MOVL $5, BX
	MOVQ $0, (DI)   // should the caller have none, it's never the same
	CMPQ SI, SP
	JLS  end
	CMPQ SI, CX
	JHI  end
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
	MOVQ R8, 8(DI)
	MOVQ $0, 48(DI)
	ADDQ $8, DI
	DECL BX
	JNZ  end
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
