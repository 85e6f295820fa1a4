package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
)

// ForeachFamily does the same to the elements of many tensors in one run.
const ForeachFamily Family = 41

func init() { register(ForeachFamily, "list", foreachSource) }

// The forms of a kernel of lists.
const (
	listElements    = iota // an operation of [Ops]
	listStep               // one of listSteps
	foreachParts           // a reduction of each block's elements to an accumulator
	foreachJoin            // of a tensor's accumulators to its result
	listScaleUpdate        // of one element, for loss scaling
)

// Options of a kernel of lists, in Spec.Extra[1].
const (
	listCount  = 1 << iota // tensors have numbers of steps
	listLR                 // the learning rate is in memory
	listScale              // so is what gradients are divided by, or multiplied by
	listFound              // so is whether one of them isn't finite
	listShared             // input 0 has one element, for all tensors; then likewise the next inputs
)

// foreachChunk is how many elements of a tensor a block has. listBytes is how many bytes the pointers and numbers of
// tensors take at most. Every device of OpenCL takes 1024 bytes of arguments.
const foreachChunk, listBytes, mostSlots = 1 << 13, 880, 32

// slots is how many tensors a run has at most. Their addresses are arguments, since not every device of OpenCL can have
// addresses in memory.
func (s Spec) slots() int {
	each := 12
	for k := range int(s.Outs + s.Ins) {
		if !s.shared(k) {
			each += 8
		}
	}
	if s.Extra[1]&listCount != 0 {
		each += 8
	}
	for k := range s.Extra[0] {
		if s.Extra[2]>>k&1 != 0 {
			each += numberBytes(s)
		}
	}
	n := mostSlots
	for n*each > listBytes {
		n /= 2
	}
	return n
}

// shared reports whether an operand has one element for all tensors.
func (s Spec) shared(operand int) bool {
	in := operand - int(s.Outs)
	return s.Form == listElements && in >= 0 && s.Extra[1]>>in&listShared != 0
}

// numberBytes is the size of a call's number.
func numberBytes(s Spec) int {
	if s.Compute.IsComplex() || s.Compute.IsFloating() {
		return s.Compute.Size()
	}
	return 8
}

// foreachRun is a run that is gathered.
type foreachRun struct {
	spec    Spec
	n       int
	ptrs    [MaxOperands][mostSlots]device.Ptr
	steps   [mostSlots]device.Ptr
	counts  [mostSlots]int
	numbers [3][mostSlots]*Number // Extra[0] of them; those of Extra[2] one a tensor, the others one for all
}

func listBlocks(count int) int { return (count + foreachChunk - 1) / foreachChunk }

// blocks is how many the run's tensors have.
func (l *foreachRun) blocks() int {
	n := 0
	for _, count := range l.counts[:l.n] {
		n += listBlocks(count)
	}
	return n
}

// flush adds the run, if there is one.
func (p *Plan) flush(l *foreachRun) *Call {
	if l.n == 0 {
		return nil
	}
	s, slots, blocks := l.spec, l.spec.slots(), l.blocks()
	for _, n := range l.counts[:l.n] {
		s.Wide = s.Wide || wide(n)
	}
	if s.Form == foreachJoin {
		blocks = l.n
	}
	c := p.blocks(s, device.Dim{X: blocks, Y: 1, Z: 1})
	pointers := func(of *[mostSlots]device.Ptr, n int) {
		for j := range n {
			if j < l.n {
				c.Args.Pointer(of[j])
			} else {
				c.Args.Pointer(0)
			}
		}
	}
	for k := range int(s.Outs + s.Ins) {
		if s.shared(k) {
			pointers(&l.ptrs[k], 1)
		} else {
			pointers(&l.ptrs[k], slots)
		}
	}
	if s.Extra[1]&listCount != 0 {
		pointers(&l.steps, slots)
	}
	var buf [mostSlots * 12]byte
	b := buf[:0]
	clear(l.counts[l.n:])
	for _, n := range l.counts[:slots] {
		b = binary.NativeEndian.AppendUint64(b, uint64(n))
	}
	for _, n := range l.counts[:slots] {
		b = binary.NativeEndian.AppendUint32(b, uint32(listBlocks(n)))
	}
	c.Args.Bytes(b, 8)
	for k := range s.Extra[0] {
		n := 1
		if s.Extra[2]>>k&1 != 0 {
			n = slots
		}
		for j := range n {
			l.numbers[k][min(j, l.n-1)].add(&c.Args, s.Compute)
		}
	}
	l.n = 0
	return c
}

// take makes room for a tensor in the run, which has operands of one list of types.
func (p *Plan) take(l *foreachRun, s *Spec) (slot int) {
	if l.n > 0 && (l.spec.Types != s.Types || l.n == l.spec.slots()) {
		p.flush(l)
	}
	l.spec = *s
	l.n++
	return l.n - 1
}

// Foreach adds an operation of [Ops] on each tensor of lists: outs[k][j] is result k of tensor j, and ins[k][j] its
// input k. A list of inputs may have one tensor of one element, which is for all. numbers[k] is number k of the
// operation, one for all tensors or one each. Sizes are as for [Plan.Elementwise]. Tensors whose elements lie one after
// the other, in the same order in all operands, are many in one run.
func (p *Plan) Foreach(op string, compute dtype.DType, outs, ins [][]Operand, numbers ...[]*Number) error {
	s := Spec{Family: ForeachFamily, Op: op, Compute: compute, Block: threads, Form: listElements, Outs: uint8(len(outs)),
		Ins: uint8(len(ins)), Extra: [4]int32{int32(len(numbers))}}
	if len(outs) == 0 || len(outs) > 2 || len(ins) > 3 || len(numbers) > 3 || IsUser(op) {
		return fmt.Errorf("kernel: foreach %s with %d results, %d inputs and %d numbers", opName(op), len(outs), len(ins),
			len(numbers))
	}
	check := s
	check.Family, check.Form, check.Extra = ElementwiseFamily, uint8(len(numbers)), [4]int32{}
	if err := elementwiseCheck(check); err != nil {
		return err
	}
	n := len(outs[0])
	for k := range outs {
		if len(outs[k]) != n {
			return fmt.Errorf("kernel: foreach %s: %d tensors of result %d, and %d of the first", op, len(outs[k]), k, n)
		}
	}
	for k := range ins {
		if len(ins[k]) == 1 && n != 0 && ins[k][0].Value == nil && ins[k][0].Count() == 1 {
			s.Extra[1] |= listShared << k
		} else if len(ins[k]) != n {
			return fmt.Errorf("kernel: foreach %s: %d tensors of input %d, and %d results", op, len(ins[k]), k, n)
		}
	}
	for k := range numbers {
		if len(numbers[k]) != 1 {
			s.Extra[2] |= 1 << k
			if len(numbers[k]) != n {
				return fmt.Errorf("kernel: foreach %s: %d numbers %d, and %d results", op, len(numbers[k]), k, n)
			}
		}
	}
	l := &p.list
	*l = foreachRun{spec: s}
	var operands [5]Operand
	var values [3]*Number
	for j := range n {
		all := operands[:len(outs)+len(ins)]
		for k := range outs {
			all[k] = outs[k][j]
		}
		for k := range ins {
			all[len(outs)+k] = ins[k][min(j, len(ins[k])-1)]
		}
		for k := range numbers {
			values[k] = numbers[k][min(j, len(numbers[k])-1)]
		}
		dense, err := p.listed(&s, all)
		if err != nil {
			return fmt.Errorf("kernel: foreach %s, tensor %d: %w", op, j, err)
		}
		if !dense {
			if err := p.Elementwise(op, compute, all[:len(outs)], all[len(outs):], values[:len(numbers)]...); err != nil {
				return err
			}
			continue
		}
		if p.space.count == 0 {
			continue
		}
		slot := p.take(l, &s)
		l.counts[slot] = p.space.count
		for k := range all {
			l.ptrs[k][slot] = all[k].Ptr
		}
		for k := range numbers {
			l.numbers[k][slot] = values[k]
		}
	}
	p.flush(l)
	return nil
}

// listed checks a tensor's operands, sets their types in the spec, and reports whether their elements lie one after the
// other, in the same order.
func (p *Plan) listed(s *Spec, operands []Operand) (dense bool, err error) {
	if err := p.space.init(operands[0].Sizes); err != nil {
		return false, err
	}
	shared := uint32(0)
	for k := range operands {
		o := &operands[k]
		if err := o.check("an operand"); err != nil {
			return false, err
		}
		if o.Value != nil {
			return false, errors.New("a number instead of a tensor")
		}
		if o.Count() != p.space.count && k < int(s.Outs) {
			return false, fmt.Errorf("results of sizes %v and %v", operands[0].Sizes, o.Sizes)
		}
		s.Types[k] = o.Type
		if s.shared(k) {
			shared |= 1 << k
		}
		if err := p.space.add(o); err != nil {
			return false, err
		}
	}
	p.space.join()
	return p.space.dense(shared), nil
}

// foreachSource writes a kernel of lists.
func foreachSource(s Spec) (Source, error) {
	var w writer
	w.begin(s)
	var err error
	switch s.Form {
	case listElements:
		err = w.listElements(s)
	case listStep:
		err = w.listStep(s)
	case listScaleUpdate:
		w.scaleUpdate(s)
	default:
		err = w.foreachReductionText(s)
	}
	if err != nil {
		return Source{}, err
	}
	return w.done()
}

func (w *writer) listElements(s Spec) error {
	o, ok := OpNamed(s.Op)
	if !ok || o.expression(s.Compute) == "" || o.Integers > 0 {
		return fmt.Errorf("kernel: there is no %s of %v for lists", s.Op, s.Compute)
	}
	w.listParams(s)
	w.function("list_" + s.Op)
	w.listPlace(s)
	for k := range s.Extra[0] {
		w.line("\tT s%d = %s;", k, computed(s.Compute, fmt.Sprintf("number%d", k)))
	}
	in := func(k int, place string) {
		w.line("\t\tT %c = %s;", 'a'+k, converted(s.Compute, s.ins()[k], fmt.Sprintf("i%d[%s]", k, place)))
	}
	for k := range int(s.Ins) {
		if s.shared(int(s.Outs) + k) {
			in(k, "0")
		}
	}
	w.line("\tfor (I i = from + THREAD; i < to; i += THREADS) {")
	for k := range int(s.Ins) {
		if !s.shared(int(s.Outs) + k) {
			in(k, "i")
		}
	}
	for k, e := range strings.Split(o.expression(s.Compute), ";") {
		e = strings.TrimSpace(e)
		if !s.Compute.IsComplex() {
			e = "(T)(" + e + ")"
		}
		w.line("\t\tT r%d = %s;", k, e)
	}
	for k, t := range s.outs() {
		w.line("\t\to%d[i] = %s;", k, narrowed(t, s.Compute, fmt.Sprintf("r%d", k)))
	}
	w.line("\t}")
	return nil
}

// operandName is an operand's name in a kernel, and its C type.
func (s Spec) operandName(k int) (name, kind string) {
	if in := k - int(s.Outs); in >= 0 {
		return fmt.Sprintf("i%d", in), "GLOBAL const " + stored(s.Types[k]) + " *"
	}
	return fmt.Sprintf("o%d", k), "GLOBAL " + stored(s.Types[k]) + " *"
}

// listParams adds the parameters of tensors, as [Plan.flush] fills them.
func (w *writer) listParams(s Spec) {
	slots := s.slots()
	w.line("typedef struct { i64 n[%d]; u32 blocks[%[1]d]; } tensors;", slots)
	for k := range int(s.Outs + s.Ins) {
		name, kind := s.operandName(k)
		if s.shared(k) {
			w.param("%s%s", kind, name)
			continue
		}
		for j := range slots {
			w.param("%s%s_%d", kind, name, j)
		}
	}
	if s.Extra[1]&listCount != 0 {
		for j := range slots {
			w.param("GLOBAL const f32 *steps_%d", j)
		}
	}
	w.param("tensors l")
	for k := range s.Extra[0] {
		if s.Extra[2]>>k&1 == 0 {
			w.param("%s number%d", number(s.Compute), k)
			continue
		}
		for j := range slots {
			w.param("%s number%d_%d", number(s.Compute), k, j)
		}
	}
}

// listPlace declares the block's tensor t with pointers to its operands, and the block's elements, from and to.
func (w *writer) listPlace(s Spec) {
	w.line("\tint t = 0;")
	if s.Form == foreachJoin {
		w.line("\tt = (int)BLOCK;")
	} else {
		w.line("\tu32 chunk = (u32)BLOCK;")
		w.line("\twhile (chunk >= l.blocks[t])")
		w.line("\t\tchunk -= l.blocks[t++];")
		w.line("\tI n = (I)l.n[t], from = (I)chunk * %d, to = n - from < %[1]d ? n : from + %[1]d;", foreachChunk)
	}
	var names []string
	declare := func(kind, name string) {
		w.line("\t%s%s = %[2]s_0;", kind, name)
		names = append(names, name)
	}
	for k := range int(s.Outs + s.Ins) {
		if !s.shared(k) {
			name, kind := s.operandName(k)
			declare(kind, name)
		}
	}
	if s.Extra[1]&listCount != 0 {
		declare("GLOBAL const f32 *", "steps")
	}
	for k := range s.Extra[0] {
		if s.Extra[2]>>k&1 != 0 {
			declare(number(s.Compute)+" ", fmt.Sprintf("number%d", k))
		}
	}
	w.line("\tswitch (t) {")
	for j := range s.slots() {
		w.line("\tcase %d:", j)
		for _, name := range names {
			w.line("\t\t%s = %[1]s_%d;", name, j)
		}
		w.line("\t\tbreak;")
	}
	w.line("\t}")
}
