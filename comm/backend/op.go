package backend

import (
	"context"
	"fmt"
	"time"

	"github.com/chorus-comms/chorus/kern"
	"github.com/chorus-comms/chorus/tensor"
)

// Kind names an operation. The values travel in fingerprints between ranks:
// append, never renumber.
type Kind uint8

// The operations. The comment gives the Op fields that each uses besides the common ones.
const (
	Send                Kind = iota + 1 // In, Peer, Tag
	Recv                                // Out, Peer (or AnySource), Tag
	Broadcast                           // Out (root's is the source), Root
	AllReduce                           // In, Out (may be one), Reduce
	Reduce                              // In, Out (root only), Root, Reduce
	AllGather                           // In, Outs: one per rank, In's size
	AllGatherSingle                     // In, Out: n times In's size
	AllGatherV                          // In, Outs: one per rank, any sizes
	ReduceScatter                       // Ins: one per rank, Out's size; Out, Reduce
	ReduceScatterSingle                 // In: n times Out's size; Out, Reduce
	ReduceScatterV                      // Ins: one per rank, any sizes; Out, Reduce
	AllToAll                            // Ins, Outs: one per rank
	AllToAllSingle                      // In, Out: n equal blocks
	AllToAllVSingle                     // In, Out, InSplits, OutSplits (elements)
	Barrier                             //
	Scatter                             // Ins (root only): one per rank, Out's size; Out, Root
	Gather                              // In, Outs (root only): one per rank, In's size; Root
	GatherSingle                        // In, Out (root only): n times In's size; Root
	kinds
)

var kindNames = [kinds]string{"invalid", "send", "recv", "broadcast", "all_reduce", "reduce", "all_gather",
	"all_gather_single", "all_gather_v", "reduce_scatter", "reduce_scatter_single", "reduce_scatter_v",
	"all_to_all", "all_to_all_single", "all_to_all_v_single", "barrier", "scatter", "gather", "gather_single"}

// String returns the operation's usual name, such as "all_reduce".
func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return fmt.Sprintf("operation(%d)", uint8(k))
}

// PointToPoint reports whether only two ranks take part.
func (k Kind) PointToPoint() bool { return k == Send || k == Recv }

// Kinds returns all operations, in order.
func Kinds() []Kind {
	all := make([]Kind, 0, kinds-1)
	for k := Send; k < kinds; k++ {
		all = append(all, k)
	}
	return all
}

// AnySource, as the Peer of a Recv, accepts a message from every rank.
const AnySource = -1

// Reduction says how elements of several ranks are combined.
type Reduction struct {
	Kind ReduceKind
	// Factor multiplies this rank's input before a PremulSum; FactorTensor, a
	// one-element tensor of the data's dtype, takes its place if set.
	Factor       float64
	FactorTensor *tensor.Tensor
}

// ReduceKind names a reduction. The values travel between ranks.
type ReduceKind uint8

// The reductions, with torchcomms' meaning.
const (
	SumKind ReduceKind = iota + 1
	ProductKind
	MinKind
	MaxKind
	BAndKind
	BOrKind
	BXorKind
	AvgKind       // the sum divided by the world size; integers truncate toward zero
	PremulSumKind // the sum of factor times input
)

var reduceNames = [...]string{"none", "sum", "product", "min", "max", "band", "bor", "bxor", "avg", "premul_sum"}

// String returns the reduction's usual name, such as "sum".
func (k ReduceKind) String() string {
	if int(k) < len(reduceNames) {
		return reduceNames[k]
	}
	return fmt.Sprintf("reduction(%d)", uint8(k))
}

// Kernel returns the element-wise operation under the reduction.
func (k ReduceKind) Kernel() kern.Op {
	switch k {
	case ProductKind:
		return kern.Product
	case MinKind:
		return kern.Min
	case MaxKind:
		return kern.Max
	case BAndKind:
		return kern.BAnd
	case BOrKind:
		return kern.BOr
	case BXorKind:
		return kern.BXor
	default:
		return kern.Sum
	}
}

func (r Reduction) String() string { return r.Kind.String() }

// Op is one operation of one rank. The communicator owns it; a backend may use
// it until the operation is done.
//
// What most operations are told by comes first, in two cache lines.
type Op struct {
	Kind    Kind
	In      *tensor.Tensor
	Out     *tensor.Tensor
	Root    int
	Reduce  Reduction
	Timeout time.Duration // counts from the operation's start; never 0

	Ctx       context.Context // never nil
	Seq       uint64          // the collective's sequence number; set by the backend
	Again     bool            // it's the same as the one of the number before, but for its buffers, its context and its time; set by Submit
	Site      uint16          // where a program in another language calls it, as observe.Site numbers places; 0: in Go
	Algorithm string          // what carried it out, for recorders and benchmarks; set by the backend

	Hints map[string]string // per operation, on top of the communicator's; may be nil

	Ins, Outs           []*tensor.Tensor
	InSplits, OutSplits []int

	Peer int
	Tag  int
	From int // a Recv's sender; set by the backend

	// Backend's own, kept between Submit and Wait.
	State any
}

// First returns a tensor of the operation that tells its dtype, or nil.
func (o *Op) First() *tensor.Tensor {
	switch {
	case o.In != nil:
		return o.In
	case o.Out != nil:
		return o.Out
	case len(o.Ins) > 0:
		return o.Ins[0]
	case len(o.Outs) > 0:
		return o.Outs[0]
	}
	return nil
}
