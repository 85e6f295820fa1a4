package glootest

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// An Operation is one of a group: of the world, or of the group that the last step of kind "new_group" made of Ranks.
type Operation struct {
	Kind  string `json:"kind"`
	Op    string `json:"op"` // reduction, or ""
	DType string `json:"dtype"`
	Count int    `json:"count"` // elements of a rank's block
	Root  int    `json:"root"`  // modulo the group's size
	Tag   int    `json:"tag"`   // of the messages of kind "any"
	NaN   bool   `json:"nan"`   // inputs of float32 and float64 have some
	Async bool   `json:"async"` // the next step begins before this one has ended
	Ranks []int  `json:"ranks"`
}

// Kinds are the kinds of steps that are collectives, those that reduce first.
var Kinds = []string{"all_reduce", "reduce", "reduce_scatter", "reduce_scatter_single", "broadcast", "all_gather",
	"all_gather_single", "all_to_all", "all_to_all_single", "all_to_all_v_single", "gather", "scatter", "barrier"}

// Reduces tells whether steps of a kind have a reduction.
func Reduces(kind string) bool { return slices.Index(Kinds, kind) < 4 && slices.Contains(Kinds, kind) }

// Messages are the kinds of steps that are messages between ranks.
var Messages = []string{"ring", "any"}

var reductions = map[string]comm.Reduction{"sum": comm.Sum, "product": comm.Product, "min": comm.Min, "max": comm.Max,
	"band": comm.BAnd, "bor": comm.BOr, "bxor": comm.BXor, "avg": comm.Avg}

// DTypes are the element types of PyTorch's Gloo.
var DTypes = []string{"float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool",
	"complex64", "complex128"}

// Ops are the reductions that PyTorch's Gloo has for a type.
func Ops(dt string) []string {
	all := []string{"sum", "product", "min", "max"}
	switch t := Parse(dt); {
	case t.IsComplex():
		return []string{"sum", "avg"}
	case t.IsFloating():
		return append(all, "avg")
	}
	return append(all, "band", "bor", "bxor")
}

// In reports whether a version of PyTorch has a step: 1.13 (113), 2.6 (206) or a later one.
func (s Operation) In(version int) bool {
	old, complex := version < 200, strings.HasPrefix(s.DType, "complex")
	switch {
	case complex && (old || s.Kind == "gather"):
		return false
	case version > 206:
		return true
	case s.Kind == "reduce_scatter" || s.Kind == "all_to_all" || s.Op == "avg":
		return false
	case complex && (s.Kind == "reduce" || s.Kind == "broadcast" || s.Kind == "reduce_scatter_single"):
		return false
	case s.Kind == "reduce_scatter_single": // a sum, whatever was asked for
		return !old && s.Op == "sum"
	case old && s.Kind == "all_gather" && s.Count == 0: // it divides by that
		return false
	}
	return !old || s.Kind != "all_gather_single" && s.DType != "bfloat16" && s.DType != "bool"
}

// Parse returns the type with a name.
func Parse(name string) dtype.DType {
	for _, dt := range dtype.All() {
		if dt.String() == name {
			return dt
		}
	}
	panic("no dtype " + name)
}

// Value is element i of a rank's input, before it's rounded to dt.
func Value(dt dtype.DType, rank, i int, nan bool) float64 {
	k := (i*7919 + rank*104729) % 251
	switch dt {
	case dtype.Float32, dtype.Float64:
		if nan && i%29 == 5*rank+3 {
			return math.Float64frombits(0x7ff8 << 48) // PyTorch's
		}
		return float64(k-125) / 997
	case dtype.Float16, dtype.BFloat16:
		return float64((k%120+8)*(1-2*(k%2))) / 16
	case dtype.Bool:
		return float64(min(1, k%3))
	case dtype.Uint8:
		return float64(k)
	case dtype.Int64:
		return float64((k - 125) * 400)
	}
	return float64(k - 125)
}

// period is after how many elements an input begins again.
const period = 251 * 29

// input is what a rank begins with.
type input struct {
	dt   dtype.DType
	rank int
	nan  bool
}

var inputs sync.Map // the first period of each input, a *tensor.Tensor

// once returns the first period of an input.
func once(of input) *tensor.Tensor {
	if t, ok := inputs.Load(of); ok {
		return t.(*tensor.Tensor)
	}
	dt, n := of.dt, period
	switch dt { // two numbers each
	case dtype.Complex64:
		dt, n = dtype.Float32, 2*n
	case dtype.Complex128:
		dt, n = dtype.Float64, 2*n
	}
	v := make([]float64, n)
	for i := range v {
		v[i] = Value(dt, of.rank, i, of.nan)
	}
	t := tensor.Must(tensor.Empty(dt, n))
	if err := t.CopyFrom(tensor.Of(v)); err != nil {
		panic(err)
	}
	if dt != of.dt {
		t = tensor.Must(t.As(of.dt, period))
	}
	inputs.Store(of, t)
	return t
}

func split(count, sender, receiver int) int { return count * (sender + 2*receiver + 1) / 16 }

// Run carries a step out on a rank in Go, or begins it, and returns what it gets. Tensors come from empty.
func (s Operation) Run(ctx context.Context, c *comm.Comm, empty func(dt dtype.DType, n int) *tensor.Tensor,
	opts ...comm.Option) (outs []*tensor.Tensor, err error) {
	n, me, root, dt := c.Size(), c.Rank(), s.Root%c.Size(), Parse(s.DType)
	red := reductions[s.Op]
	out := func(k int) *tensor.Tensor {
		outs = append(outs, empty(dt, k))
		return outs[len(outs)-1]
	}
	list := func() []*tensor.Tensor {
		for range n {
			out(s.Count)
		}
		return outs
	}
	of := func(k int) *tensor.Tensor {
		t := empty(dt, k)
		for off := 0; off < k; off += period {
			n := min(period, k-off)
			part := tensor.Must(t.Narrow(0, off, n))
			if err := part.CopyFrom(tensor.Must(once(input{dt, me, s.NaN}).Narrow(0, 0, n))); err != nil {
				panic(err)
			}
		}
		return t
	}
	cut := func(t *tensor.Tensor) (parts []*tensor.Tensor) {
		for r := range n {
			parts = append(parts, tensor.Must(t.Narrow(0, r*s.Count, s.Count)))
		}
		return parts
	}
	one := func(t *tensor.Tensor) []*tensor.Tensor { return []*tensor.Tensor{t} }
	switch s.Kind {
	case "all_reduce":
		x := of(s.Count)
		outs, err = one(x), c.AllReduce(ctx, x, red, opts...)
	case "reduce":
		x := of(s.Count)
		if me == root {
			outs = one(x)
		}
		err = c.Reduce(ctx, x, root, red, opts...)
	case "broadcast":
		x := of(s.Count)
		outs, err = one(x), c.Broadcast(ctx, x, root, opts...)
	case "all_gather":
		err = c.AllGather(ctx, list(), of(s.Count), opts...)
	case "all_gather_single":
		err = c.AllGatherSingle(ctx, out(n*s.Count), of(s.Count), opts...)
	case "reduce_scatter_single":
		err = c.ReduceScatterSingle(ctx, out(s.Count), of(n*s.Count), red, opts...)
	case "reduce_scatter":
		err = c.ReduceScatter(ctx, out(s.Count), cut(of(n*s.Count)), red, opts...)
	case "all_to_all_single":
		err = c.AllToAllSingle(ctx, out(n*s.Count), of(n*s.Count), opts...)
	case "all_to_all":
		err = c.AllToAll(ctx, list(), cut(of(n*s.Count)), opts...)
	case "all_to_all_v_single":
		sent, got, sending, getting := make([]int, n), make([]int, n), 0, 0
		for r := range n {
			sent[r], got[r] = split(s.Count, me, r), split(s.Count, r, me)
			sending, getting = sending+sent[r], getting+got[r]
		}
		err = c.AllToAllVSingle(ctx, out(getting), of(sending), got, sent, opts...)
	case "gather":
		if me == root {
			list()
		}
		err = c.Gather(ctx, outs, of(s.Count), root, opts...)
	case "scatter":
		var in []*tensor.Tensor
		if me == root {
			in = cut(of(n * s.Count))
		}
		err = c.Scatter(ctx, out(s.Count), in, root, opts...)
	case "barrier":
		err = c.Barrier(ctx, opts...)
	case "ring": // everybody sends to the next rank, and receives from the one before
		var w comm.Work
		if err := c.Send(ctx, of(s.Count), (me+1)%n, comm.Tag(7), comm.Async(&w)); err != nil {
			return nil, err
		}
		err = errors.Join(c.Recv(ctx, out(s.Count), (me+n-1)%n, comm.Tag(7)), w.Wait(ctx))
	case "any": // all ranks send to the root, which receives from any
		if me != root {
			return nil, c.Send(ctx, of(s.Count), root, comm.Tag(s.Tag))
		}
		from := make([]*tensor.Tensor, n)
		for range n - 1 {
			t, who := empty(dt, s.Count), -1
			if err := c.Recv(ctx, t, comm.AnySource, comm.Tag(s.Tag), comm.From(&who)); err != nil {
				return nil, err
			}
			from[who] = t
		}
		outs = slices.DeleteFunc(from, func(t *tensor.Tensor) bool { return t == nil })
	default:
		err = fmt.Errorf("no such kind: %s", s.Kind)
	}
	return outs, err
}

// Play runs the steps on a rank in Go, and returns the checksum of what it got in each of those that it took part in.
func Play(ctx context.Context, world *comm.Comm, steps []Operation) (sums []byte, err error) {
	empty := func(dt dtype.DType, n int) *tensor.Tensor { return tensor.Must(tensor.Empty(dt, n)) }
	group := world
	type begun struct {
		w    *comm.Work // nil: it has ended
		outs []*tensor.Tensor
	}
	var pending []begun
	collect := func() error {
		for _, b := range pending {
			if b.w != nil {
				if err := b.w.Wait(ctx); err != nil {
					return err
				}
			}
			sum := crc32.NewIEEE()
			for _, t := range b.outs {
				raw, err := t.Bytes()
				if err != nil {
					return err
				}
				sum.Write(raw)
			}
			sums = binary.LittleEndian.AppendUint32(sums, sum.Sum32())
		}
		pending = nil
		return nil
	}
	leave := func() error {
		if group == world || group == nil {
			return nil
		}
		return group.Finalize(ctx)
	}
	step := func(s Operation) (err error) {
		switch {
		case s.Kind == "new_group":
			if err := errors.Join(collect(), leave()); err != nil {
				return err
			}
			if group = world; s.Ranks == nil {
				return nil
			}
			mine := s.Ranks
			if !slices.Contains(mine, world.Rank()) {
				mine = nil
			}
			group, err = world.Split(ctx, mine)
			return err
		case group == nil:
			return nil
		case slices.Contains(Messages, s.Kind):
			outs, err := s.Run(ctx, group, empty)
			pending = append(pending, begun{nil, outs})
			return err
		}
		w := new(comm.Work)
		outs, err := s.Run(ctx, group, empty, comm.Async(w))
		pending = append(pending, begun{w, outs})
		return err
	}
	for i, s := range steps {
		err := step(s)
		if err == nil && !s.Async {
			err = collect()
		}
		if err != nil {
			return sums, fmt.Errorf("step %d, %+v: %w", i, s, err)
		}
	}
	return sums, errors.Join(collect(), leave())
}

// Write puts steps where ranks of PyTorch find them.
func Write(dir string, steps []Operation) error {
	b, err := json.Marshal(steps)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "steps.json"), b, 0o644)
}
