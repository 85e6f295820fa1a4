#include "textflag.h"

// func PrefetchWrite(p *uint64)
TEXT ·PrefetchWrite(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	BYTE $0x0f; BYTE $0x0d; BYTE $0x08 // PREFETCHW (AX); does nothing where the processor hasn't got it
	RET

// func Prefetch(p *uint64)
TEXT ·Prefetch(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	PREFETCHT0 (AX)
	RET
