#include "textflag.h"

// func sample(pcs *[frames]uintptr) uint64
//
// The frame pointers of the goroutine's stack form a list: at BP lies the caller's BP, above it the return address.
TEXT ·sample(SB), NOSPLIT|NOFRAME, $0-16
	MOVQ pcs+0(FP), DI
	PREFETCHT0 48(DI) // the next slot, both lines of it
	PREFETCHT0 112(DI)
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
	JMP  clock

end:
	MOVQ $0, (DI)

clock:
	RDTSC
	SHLQ $32, DX
	ORQ  DX, AX
	MOVQ AX, ret+8(FP)
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
