package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/ops"
	"github.com/chorus-comms/chorus/kernel/text"
)

// ForeachFamily does the same to the elements of many tensors in one run.
const ForeachFamily text.Family = 41

func init() { text.Register(ForeachFamily, "list", foreachSource) }

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

	listOffsets = 1 << 10 // of a device whose pointers are offsets
)

// foreachChunk is how many elements of a tensor a block has. listBytes is how many bytes the pointers and numbers of
// tensors take at most. Every device of OpenCL takes 1024 bytes of arguments.
const foreachChunk, listBytes, mostSlots = 1 << 13, 880, 32

// slotsOf is how many tensors a run has at most. Their addresses are arguments, since not every device of OpenCL can
// have addresses in memory.
func slotsOf(s text.Spec) int {
	each, pointer := 12, 8
	if s.Extra[1]&listOffsets != 0 {
		pointer = 16
	}
	for k := range int(s.Outs + s.Ins) {
		if !isShared(s, k) {
			each += pointer
		}
	}
	if s.Extra[1]&listCount != 0 {
		each += pointer
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

// isShared reports whether an operand has one element for all tensors.
func isShared(s text.Spec, operand int) bool {
	in := operand - int(s.Outs)
	return s.Form == listElements && in >= 0 && s.Extra[1]>>in&listShared != 0
}

// numberBytes is the size of a call's number.
func numberBytes(s text.Spec) int {
	if s.Compute.IsComplex() || s.Compute.IsFloating() {
		return s.Compute.Size()
	}
	return 8
}

// foreachRun is a run that is gathered.
type foreachRun struct {
	spec    text.Spec
	n       int
	ptrs    [text.MaxOperands][mostSlots]device.Ptr
	steps   [mostSlots]device.Ptr
	counts  [mostSlots]int
	numbers [3][mostSlots]*Number // Extra[0] of them; those of Extra[2] one a tensor, the others one for all
}

// listOf begins a run of a spec.
func (p *Plan) listOf(s *text.Spec) *foreachRun {
	if p.Offsets {
		s.Extra[1] |= listOffsets
	}
	p.list = foreachRun{spec: *s}
	return &p.list
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
func (p *Plan) flush(l *foreachRun) *loader.Call {
	if l.n == 0 {
		return nil
	}
	s, slots, blocks := l.spec, slotsOf(l.spec), l.blocks()
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
		if isShared(s, k) {
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
func (p *Plan) take(l *foreachRun, s *text.Spec) (slot int) {
	if l.n > 0 && (l.spec.Types != s.Types || l.n == slotsOf(l.spec)) {
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
	s := text.Spec{Family: ForeachFamily, Op: op, Compute: compute, Block: threads, Form: listElements,
		Outs: uint8(len(outs)),
		Ins:  uint8(len(ins)), Extra: [4]int32{int32(len(numbers))}}
	if len(outs) == 0 || len(outs) > 2 || len(ins) > 3 || len(numbers) > 3 || text.IsUser(op) {
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
	l := p.listOf(&s)
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
func (p *Plan) listed(s *text.Spec, operands []Operand) (dense bool, err error) {
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
		if isShared(*s, k) {
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
func foreachSource(s text.Spec) (text.Source, error) {
	var w writer
	w.Begin(s)
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
		return text.Source{}, err
	}
	return w.Done()
}

func (w *writer) listElements(s text.Spec) error {
	o, ok := ops.Named(s.Op)
	if !ok || o.Expression(s.Compute) == "" || o.Integers > 0 {
		return fmt.Errorf("kernel: there is no %s of %v for lists", s.Op, s.Compute)
	}
	w.listParams(s)
	w.Function("list_" + s.Op)
	w.listPlace(s)
	for k := range s.Extra[0] {
		w.Line("\tT s%d = %s;", k, text.Computed(s.Compute, fmt.Sprintf("number%d", k)))
	}
	in := func(k int, place string) {
		w.Line("\t\tT %c = %s;", 'a'+k, text.Converted(s.Compute, s.Inputs()[k], fmt.Sprintf("i%d[%s]", k, place)))
	}
	for k := range int(s.Ins) {
		if isShared(s, int(s.Outs)+k) {
			in(k, "0")
		}
	}
	w.Line("\tfor (I i = from + THREAD; i < to; i += THREADS) {")
	for k := range int(s.Ins) {
		if !isShared(s, int(s.Outs)+k) {
			in(k, "i")
		}
	}
	for k, e := range strings.Split(o.Expression(s.Compute), ";") {
		e = strings.TrimSpace(e)
		if !s.Compute.IsComplex() {
			e = "(T)(" + e + ")"
		}
		w.Line("\t\tT r%d = %s;", k, e)
	}
	for k, t := range s.Results() {
		w.Line("\t\to%d[i] = %s;", k, text.Narrowed(t, s.Compute, fmt.Sprintf("r%d", k)))
	}
	w.Line("\t}")
	return nil
}

// operandName is an operand's name in a kernel, and its C type.
func operandName(s text.Spec, k int) (name, kind string) {
	if in := k - int(s.Outs); in >= 0 {
		return fmt.Sprintf("i%d", in), "GLOBAL const " + text.Stored(s.Types[k]) + " *"
	}
	return fmt.Sprintf("o%d", k), "GLOBAL " + text.Stored(s.Types[k]) + " *"
}

// listParams adds the parameters of tensors, as [Plan.flush] fills them.
func (w *writer) listParams(s text.Spec) {
	slots := slotsOf(s)
	w.Line("typedef struct { i64 n[%d]; u32 blocks[%[1]d]; } tensors;", slots)
	for k := range int(s.Outs + s.Ins) {
		name, kind := operandName(s, k)
		if isShared(s, k) {
			w.Param("%s%s", kind, name)
			continue
		}
		for j := range slots {
			w.Param("%s%s_%d", kind, name, j)
		}
	}
	if s.Extra[1]&listCount != 0 {
		for j := range slots {
			w.Param("GLOBAL const f32 *steps_%d", j)
		}
	}
	w.Param("tensors l")
	for k := range s.Extra[0] {
		if s.Extra[2]>>k&1 == 0 {
			w.Param("%s number%d", text.Number(s.Compute), k)
			continue
		}
		for j := range slots {
			w.Param("%s number%d_%d", text.Number(s.Compute), k, j)
		}
	}
}

// listPlace declares the block's tensor t with pointers to its operands, and the block's elements, from and to.
func (w *writer) listPlace(s text.Spec) {
	w.Line("\tint t = 0;")
	if s.Form == foreachJoin {
		w.Line("\tt = (int)BLOCK;")
	} else {
		w.Line("\tu32 chunk = (u32)BLOCK;")
		w.Line("\twhile (chunk >= l.blocks[t])")
		w.Line("\t\tchunk -= l.blocks[t++];")
		w.Line("\tI n = (I)l.n[t], from = (I)chunk * %d, to = n - from < %[1]d ? n : from + %[1]d;", foreachChunk)
	}
	var names []string
	declare := func(kind, name string) {
		w.Line("\t%s%s = %[2]s_0;", kind, name)
		names = append(names, name)
	}
	for k := range int(s.Outs + s.Ins) {
		if !isShared(s, k) {
			name, kind := operandName(s, k)
			declare(kind, name)
		}
	}
	if s.Extra[1]&listCount != 0 {
		declare("GLOBAL const f32 *", "steps")
	}
	for k := range s.Extra[0] {
		if s.Extra[2]>>k&1 != 0 {
			declare(text.Number(s.Compute)+" ", fmt.Sprintf("number%d", k))
		}
	}
	w.Line("\tswitch (t) {")
	for j := range slotsOf(s) {
		w.Line("\tcase %d:", j)
		for _, name := range names {
			w.Line("\t\t%s = %[1]s_%d;", name, j)
		}
		w.Line("\t\tbreak;")
	}
	w.Line("\t}")
}
