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
#define STEP(offset, return) \
	MOVL offset(DI), SI;      \
	MOVL return(DI), AX;      \
	CMPL AX, 8(BP)(SI*1);     \
	JNE  other

// func mark(p *path, t *trail) (tick uint64)
//
// The frame pointers need not be compared but for the first two: a return address says in which function it is, and so how large that
// one's frame is, and where the next one begins.
TEXT ·mark(SB), NOSPLIT|NOFRAME, $0-24
	PCALIGN $64 // where it lies changes what it costs by 5 ns
	RDTSC
	MOVQ p+0(FP), DI
	SHLQ $32, DX
	ORQ  AX, DX
	MOVQ DX, tick+16(FP)
	CMPQ BP, (DI)
	JNE  other
	MOVL 8(DI), SI
	ADDQ BP, SI
	CMPQ SI, (BP)
	JNE  other
	STEP(8, 28)
	STEP(12, 32)
	STEP(16, 36)
	STEP(20, 40)
	STEP(24, 44)
	RET

other:
	INCQ 48(DI)
	MOVQ t+8(FP), DI
	MOVQ (TLS), CX
	MOVQ 8(CX), CX  // the upper end of the stack: g.stack.hi
	SUBQ $16, CX
	MOVQ BP, SI
	MOVL $5, BX
	MOVQ BP, (DI)
	CMPQ SI, SP
	JLS  end
	CMPQ SI, CX
	JHI  end

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
