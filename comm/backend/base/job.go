package base

import (
	"slices"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kern"
	"github.com/chorus-comms/chorus/plan"
	"github.com/chorus-comms/chorus/tensor"
)

// Job is a collective as plans see it: two flat buffers, and how to reduce.
type Job struct {
	DType    dtype.DType
	Elem     int     // bytes
	Kernel   kern.Op // combines elements
	Average  bool    // what is final is divided by the number of ranks
	In, Out  unsafe.Pointer
	InBytes  int
	OutBytes int

	outs []*tensor.Tensor // what Out is unpacked into
}

// collectives has for each operation its family's name as plans know it.
var collectives = func() (all [256]plan.Collective) {
	for _, k := range backend.Collectives() {
		all[k], _ = plan.ParseCollective(k.Operation().Family.String())
	}
	return all
}()

// Lower fills j and the rest of q, which has World and Rank and what the backend knows of hosts and stages. It touches
// no data: what lists and factors need is Prepare's.
func (j *Job) Lower(op *backend.Op, q *plan.Request) {
	row := op.Kind.Operation()
	*j = Job{Elem: 1}
	if first := op.First(); first != nil {
		j.DType = first.DType()
		j.Elem = j.DType.Size()
	}
	if op.In != nil {
		j.In, j.InBytes = op.In.Pointer(), op.In.NBytes()
	}
	if op.Out != nil {
		j.Out, j.OutBytes = op.Out.Pointer(), op.Out.NBytes()
	}
	q.Collective, q.Root, q.ElemSize = collectives[op.Kind], op.Root, j.Elem
	switch {
	case row.Into():
		q.Count, q.InPlace = op.In.NumEl(), j.In == j.Out
	case row.In == backend.Part:
		if q.Count = op.In.NumEl(); row.Uneven {
			q.Count, q.Counts = 0, counts(op.Outs)
		} else if row.Root && Uneven(op.Outs) {
			q.Counts = counts(op.Outs)
		}
		q.InPlace = j.OutBytes > 0 && j.In == unsafe.Add(j.Out, q.Rank*j.InBytes)
	case row.Out == backend.Part && row.In == backend.Nothing: // Out of the root is the source
		if q.Count, q.InPlace = op.Out.NumEl(), true; q.Rank == op.Root {
			j.In, j.InBytes = j.Out, j.OutBytes
		}
	case row.Out == backend.Part:
		if q.Count = op.Out.NumEl(); row.Uneven {
			q.Count, q.Counts = 0, counts(op.Ins)
		} else if row.Root && Uneven(op.Ins) {
			q.Counts = counts(op.Ins)
		}
		q.InPlace = j.InBytes > 0 && j.Out == unsafe.Add(j.In, q.Rank*j.OutBytes)
	case row.Splits():
		q.SendCounts, q.RecvCounts = op.InSplits, op.OutSplits
	case row.In == backend.List:
		q.SendCounts, q.RecvCounts = counts(op.Ins), counts(op.Outs)
	case row.In == backend.Whole:
		q.Count = op.In.NumEl() / q.World
	}
	if row.Reduces {
		j.Kernel = op.Reduce.Kind.Kernel()
		j.Average = op.Reduce.Kind == backend.AvgKind
		if op.Reduce.Kind == backend.PremulSumKind {
			q.InPlace = scalesIntoOutput(row)
		}
	}
}

// Uneven reports whether tensors differ in size: of a gather or scatter, where only the root knows, they must not.
func Uneven(ts []*tensor.Tensor) bool {
	return slices.ContainsFunc(ts, func(t *tensor.Tensor) bool { return t.NumEl() != ts[0].NumEl() })
}

func counts(ts []*tensor.Tensor) []int {
	c := make([]int, len(ts))
	for i, t := range ts {
		c[i] = t.NumEl()
	}
	return c
}

// Prepares reports whether Prepare has work with an operation.
func Prepares(op *backend.Op) bool {
	return op.Ins != nil || op.Outs != nil || op.Reduce.Kind == backend.PremulSumKind
}

// Prepare gives the job its flat buffers. A list of tensors becomes one buffer: the tensors themselves if they are
// contiguous, else a packed copy in s. An input that is to be scaled is scaled into another buffer. Unpack does what is
// left after the operation.
func (j *Job) Prepare(op *backend.Op, s *Scratch) (err error) {
	packed := false
	if op.Ins != nil {
		if j.In, j.InBytes, packed, err = flat(op.Ins, s); err != nil {
			return err
		}
		if packed {
			off := 0
			for _, t := range op.Ins {
				kern.Copy(unsafe.Add(j.In, off), t.Pointer(), t.NBytes())
				off += t.NBytes()
			}
		}
	}
	if op.Outs != nil {
		if j.Out, j.OutBytes, packed, err = flat(op.Outs, s); err != nil {
			return err
		}
		if packed {
			j.outs = op.Outs
		}
	}
	if op.Reduce.Kind == backend.PremulSumKind && j.InBytes > 0 {
		return j.premultiply(op, s)
	}
	return nil
}

// flat returns the memory of a list, or as much of s.
func flat(ts []*tensor.Tensor, s *Scratch) (p unsafe.Pointer, bytes int, packed bool, err error) {
	p, bytes, ok := adjacent(ts)
	if !ok {
		p, err = s.Take(bytes)
	}
	return p, bytes, !ok, err
}

// adjacent reports whether the tensors are views that lie one after the other in one storage, and how many bytes they
// are together.
func adjacent(ts []*tensor.Tensor) (start unsafe.Pointer, total int, ok bool) {
	ok = true
	var first *tensor.Tensor
	for _, t := range ts {
		n := t.NBytes()
		if n == 0 {
			continue
		}
		if first == nil {
			first, start = t, t.Pointer()
		} else if !t.SharesStorage(first) || uintptr(t.Pointer()) != uintptr(start)+uintptr(total) {
			ok = false
		}
		total += n
	}
	return start, total, ok
}

// scalesIntoOutput reports whether every rank has an output of its input's size, into which a factor's product fits.
func scalesIntoOutput(row *backend.Operation) bool { return row.Into() && !row.RootOut }

// premultiply scales this rank's input into memory that isn't the caller's input.
func (j *Job) premultiply(op *backend.Op, s *Scratch) (err error) {
	factor := op.Reduce.Factor
	if t := op.Reduce.FactorTensor; t != nil {
		factor = t.At(make([]int, t.Dim())...)
	}
	scaled := j.Out
	if !scalesIntoOutput(op.Kind.Operation()) {
		if scaled, err = s.Take(j.InBytes); err != nil {
			return err
		}
	}
	kern.Scale(j.DType, scaled, j.In, j.InBytes/j.Elem, factor)
	j.In = scaled
	return nil
}

// Unpack empties the output into the tensors that it stands for, and forgets them.
func (j *Job) Unpack() {
	if j.outs != nil {
		j.unpack()
	}
}

func (j *Job) unpack() {
	off := 0
	for _, t := range j.outs {
		kern.Copy(t.Pointer(), unsafe.Add(j.Out, off), t.NBytes())
		off += t.NBytes()
	}
	j.outs = nil
}

// Alone carries out a collective in a world of one.
func Alone(op *backend.Op, s *Scratch) error {
	var j Job
	j.Lower(op, &plan.Request{World: 1})
	s.Reset()
	if err := j.Prepare(op, s); err != nil {
		return err
	}
	if j.In != j.Out {
		kern.Copy(j.Out, j.In, j.InBytes)
	}
	j.Unpack()
	return nil
}
