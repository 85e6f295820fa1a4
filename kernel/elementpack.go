package kernel

import (
	"fmt"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/ops"
	"github.com/chorus-comms/chorus/kernel/text"
)

// packBytes is how much memory a thread of a GPU loads or stores with one instruction.
const packBytes = 16

// packedElements is how many elements, one after the other, a thread of a GPU loads and stores at a time: as many as 16
// bytes have of the largest type. It's [text.Spec].Extra[3] of an elementwise kernel. 0: one by one, where the addresses
// aren't aligned, or where computing takes longer than memory.
func packedElements(s *text.Spec, outs, ins []Operand) int32 {
	if text.IsUser(s.Op) || ops.IsSpecial(s.Op) || weightOf(s.Op, s.Compute) > 1 {
		return 0
	}
	most := 1
	each := func(f func(o *Operand)) {
		for k := range outs {
			f(&outs[k])
		}
		for k := range ins {
			if ins[k].Value == nil {
				f(&ins[k])
			}
		}
	}
	each(func(o *Operand) { most = max(most, o.Type.Size()) })
	n, aligned := packBytes/most, true
	each(func(o *Operand) { aligned = aligned && int(o.Ptr)%(n*o.Type.Size()) == 0 })
	if !aligned || n < 2 {
		return 0
	}
	return int32(n)
}

// packTypes writes the types of as many elements of each operand as a thread has at a time.
func (w *writer) packTypes(s text.Spec) {
	if s.Extra[3] == 0 || s.Vector {
		return
	}
	w.packs(s, func(o int, t dtype.DType) {
		w.Line("typedef struct ALIGNED(%d) { %s e[%d]; } packed%d;", int(s.Extra[3])*t.Size(), text.Stored(t), s.Extra[3], o)
	})
}

// packs calls f for each operand in memory.
func (w *writer) packs(s text.Spec, f func(o int, t dtype.DType)) {
	for o, t := range s.Types[:s.Outs+s.Ins] {
		if o < int(s.Outs) || s.Values>>(o-int(s.Outs))&1 == 0 {
			f(o, t)
		}
	}
}

// eachPack writes a block's loop over its elements, several of a thread at a time, and one over the last few.
func (w *writer) eachPack(s text.Spec, operands int, unsigned string, element func(packed bool)) {
	n := s.Extra[3]
	w.share(unsigned, fmt.Sprintf("THREADS * %d", n))
	w.Line("\tfor (I at = from + THREAD * %d; to - at >= %[1]d; at += THREADS * %[1]d) {", n)
	w.packs(s, func(o int, _ dtype.DType) {
		if k := o - int(s.Outs); k < 0 {
			w.Line("\tpacked%d pack%[1]d;", o)
		} else {
			w.Line("\tpacked%d pack%[1]d = *(GLOBAL const packed%[1]d *)(i%d + at);", o, k)
		}
	})
	w.Line("\tUNROLL")
	w.Line("\tfor (int u = 0; u < %d; u++) {", n)
	element(true)
	w.Line("\t}")
	for o := range int(s.Outs) {
		w.Line("\t*(GLOBAL packed%d *)(o%[1]d + at) = pack%[1]d;", o)
	}
	w.Line("\t}")
	w.Line("\tfor (I i = to - (to - from) %% %d + THREAD; i < to; i += THREADS) {", n)
	w.Offsets("i", "l", 0, operands)
	element(false)
	w.Line("\t}")
}
