package mybackend

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kern"
	"github.com/chorus-comms/chorus/tensor"
)

// bytesOf returns a tensor's memory. Tensors that reach a backend are contiguous.
func bytesOf(t *tensor.Tensor) []byte {
	if t == nil || t.NBytes() == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(t.Pointer()), t.NBytes())
}

// contribution makes this rank's part of a collective. Its Data may be the caller's own memory.
func contribution(op *backend.Op, rank, world int) *message {
	m := &message{Kind: part, Spec: spec{Op: op.Kind, Root: op.Root, Reduce: op.Reduce.Kind}}
	elem := 1
	if t := op.First(); t != nil {
		m.Spec.DType = t.DType()
		elem = t.DType().Size()
	}
	equal := func(total int) []int {
		sizes := make([]int, world)
		for r := range sizes {
			sizes[r] = total / world
		}
		return sizes
	}
	count := 0
	var counts []int // of the operations with uneven blocks that all ranks know
	switch op.Kind {
	case backend.Barrier:
	case backend.Broadcast:
		count = op.Out.NumEl()
		if rank == op.Root {
			m.Data = bytesOf(op.Out)
		}
	case backend.AllReduce, backend.Reduce, backend.AllGather, backend.AllGatherSingle, backend.Gather, backend.GatherSingle:
		count = op.In.NumEl()
		m.Data = bytesOf(op.In)
	case backend.AllGatherV:
		m.Data = bytesOf(op.In)
		counts = numbers(op.Outs, 1)
	case backend.ReduceScatterSingle:
		count = op.Out.NumEl()
		m.Data, m.Sizes = bytesOf(op.In), equal(op.In.NBytes())
	case backend.ReduceScatter:
		count = op.Out.NumEl()
		m.Data, m.Sizes = join(op.Ins), numbers(op.Ins, elem)
	case backend.ReduceScatterV:
		counts = numbers(op.Ins, 1)
		m.Data, m.Sizes = join(op.Ins), numbers(op.Ins, elem)
	case backend.AllToAllSingle:
		count = op.In.NumEl()
		m.Data, m.Sizes = bytesOf(op.In), equal(op.In.NBytes())
		m.Expected = m.Sizes
	case backend.AllToAll:
		m.Data, m.Sizes, m.Expected = join(op.Ins), numbers(op.Ins, elem), numbers(op.Outs, elem)
	case backend.AllToAllVSingle:
		m.Data = bytesOf(op.In)
		for r := range world {
			m.Sizes = append(m.Sizes, op.InSplits[r]*elem)
			m.Expected = append(m.Expected, op.OutSplits[r]*elem)
		}
	case backend.Scatter:
		count = op.Out.NumEl()
		if rank == op.Root {
			m.Data, m.Sizes = join(op.Ins), numbers(op.Ins, elem)
		}
	}
	if op.Reduce.Kind == backend.PremulSumKind && len(m.Data) > 0 {
		m.Data = scaled(op, m.Spec.DType, m.Data)
	}
	m.Desc = describe(m.Spec, count, counts)
	return m
}

// describe says in words what all ranks must have in common.
func describe(s spec, count int, counts []int) string {
	if s.Op == backend.Barrier {
		return s.Op.String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%v(%v", s.Op, s.DType)
	switch {
	case counts != nil:
		fmt.Fprintf(&b, "%v", counts)
	case s.Op != backend.AllToAll && s.Op != backend.AllToAllVSingle:
		fmt.Fprintf(&b, "[%d]", count)
	}
	if s.Reduce != 0 {
		fmt.Fprintf(&b, ", %v", s.Reduce)
	}
	switch s.Op {
	case backend.Broadcast, backend.Reduce, backend.Scatter, backend.Gather, backend.GatherSingle:
		fmt.Fprintf(&b, ", root %d", s.Root)
	}
	return b.String() + ")"
}

func numbers(ts []*tensor.Tensor, each int) []int {
	n := make([]int, len(ts))
	for i, t := range ts {
		n[i] = t.NumEl() * each
	}
	return n
}

func join(ts []*tensor.Tensor) []byte {
	var all []byte
	for _, t := range ts {
		all = append(all, bytesOf(t)...)
	}
	return all
}

func scaled(op *backend.Op, dt dtype.DType, data []byte) []byte {
	factor := op.Reduce.Factor
	if t := op.Reduce.FactorTensor; t != nil {
		factor = t.At(make([]int, t.Dim())...)
	}
	out := make([]byte, len(data))
	kern.Scale(dt, unsafe.Pointer(&out[0]), unsafe.Pointer(&data[0]), len(data)/dt.Size(), factor)
	return out
}

// combine computes what each rank gets of a collective. The sizes come from
// the ranks, so they are checked.
func combine(parts []*message) ([][]byte, *failure) {
	n := len(parts)
	s := parts[0].Spec
	out := make([][]byte, n)
	blocks := make([][][]byte, n)
	for r, p := range parts {
		b, ok := cut(p)
		if !ok || p.Sizes != nil && len(p.Sizes) != n || p.Expected != nil && len(p.Expected) != n || s.Root < 0 || s.Root >= n {
			return nil, &failure{Text: fmt.Sprintf("rank %d sent a part that makes no sense", r)}
		}
		blocks[r] = b
	}
	for r := range out {
		switch s.Op {
		case backend.Broadcast:
			out[r] = parts[s.Root].Data
		case backend.AllGather, backend.AllGatherSingle, backend.AllGatherV, backend.Gather, backend.GatherSingle:
			if s.Op != backend.Gather && s.Op != backend.GatherSingle || r == s.Root {
				for _, p := range parts {
					out[r] = append(out[r], p.Data...)
				}
			}
		case backend.Scatter:
			if blocks[s.Root] == nil {
				return nil, &failure{Text: fmt.Sprintf("rank %d, the root, sent no blocks", s.Root)}
			}
			out[r] = blocks[s.Root][r]
		case backend.AllToAll, backend.AllToAllSingle, backend.AllToAllVSingle:
			for from, p := range parts {
				if p.Sizes == nil || parts[r].Expected == nil || p.Sizes[r] != parts[r].Expected[from] {
					return nil, &failure{Is: isMismatch, RankA: from, RankB: r,
						OpA: fmt.Sprintf("%v with %v bytes for each rank", s.Op, p.Sizes),
						OpB: fmt.Sprintf("%v with %v bytes from each rank", s.Op, parts[r].Expected)}
				}
				out[r] = append(out[r], blocks[from][r]...)
			}
		}
	}
	if s.Reduce == 0 {
		return out, nil
	}
	sum, f := reduce(parts)
	if f != nil {
		return nil, f
	}
	switch s.Op {
	case backend.Reduce:
		out[s.Root] = sum
	case backend.AllReduce:
		for r := range out {
			out[r] = sum
		}
	default: // reduce-scatter
		whole, ok := cut(&message{Data: sum, Sizes: parts[0].Sizes})
		if !ok || whole == nil {
			return nil, &failure{Text: "rank 0 sent no blocks"}
		}
		copy(out, whole)
	}
	return out, nil
}

// cut divides a part's data into its blocks; nil if it has none.
func cut(p *message) ([][]byte, bool) {
	if p.Sizes == nil {
		return nil, true
	}
	blocks := make([][]byte, len(p.Sizes))
	rest := p.Data
	for i, n := range p.Sizes {
		if n < 0 || n > len(rest) {
			return nil, false
		}
		blocks[i], rest = rest[:n], rest[n:]
	}
	return blocks, true
}

// reduce folds the ranks' data in the order of the ranks.
func reduce(parts []*message) ([]byte, *failure) {
	s, size := parts[0].Spec, len(parts[0].Data)
	elem := s.DType.Size()
	for r, p := range parts {
		if len(p.Data) != size || elem == 0 || size%elem != 0 || !kern.Supports(s.Reduce.Kernel(), s.DType) {
			return nil, &failure{Text: fmt.Sprintf("rank %d sent %d bytes to reduce, rank 0 %d", r, len(p.Data), size)}
		}
	}
	if size == 0 {
		return nil, nil
	}
	out := make([]byte, size+16)[:size] // not so small that Go would not align it
	srcs := make([]unsafe.Pointer, len(parts))
	for r, p := range parts {
		srcs[r] = unsafe.Pointer(&p.Data[0])
		if uintptr(srcs[r])%8 != 0 {
			aligned := make([]byte, size+16)[:size]
			copy(aligned, p.Data)
			srcs[r] = unsafe.Pointer(&aligned[0])
		}
	}
	n := size / elem
	kern.Reduce(s.Reduce.Kernel(), s.DType, []unsafe.Pointer{unsafe.Pointer(&out[0])}, srcs, n)
	if s.Reduce == backend.AvgKind {
		kern.Average(s.DType, unsafe.Pointer(&out[0]), n, len(parts))
	}
	return out, nil
}

// deliver copies a result to where the operation wants it.
func deliver(op *backend.Op, rank int, data []byte) error {
	switch op.Kind {
	case backend.Barrier:
		return nil
	case backend.Broadcast:
		if rank == op.Root {
			return nil
		}
	}
	outs := op.Outs
	if op.Out != nil {
		outs = []*tensor.Tensor{op.Out}
	}
	total := 0
	for _, t := range outs {
		total += t.NBytes()
	}
	if op.Kind != backend.AllToAllVSingle && total != len(data) || len(data) > total { // a V may fill a part of its output
		return fmt.Errorf("the hub sent %d bytes where %d are expected", len(data), total)
	}
	for _, t := range outs {
		data = data[copy(bytesOf(t), data):]
	}
	return nil
}
