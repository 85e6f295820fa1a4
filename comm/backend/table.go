package backend

import "fmt"

// Kind names an operation. It's a row of the table, and travels between ranks: append, never renumber.
type Kind uint8

// The operations.
const (
	Send Kind = iota + 1
	Recv
	Broadcast
	AllReduce
	Reduce
	AllGather
	AllGatherSingle
	AllGatherV
	ReduceScatter
	ReduceScatterSingle
	ReduceScatterV
	AllToAll
	AllToAllSingle
	AllToAllVSingle
	Barrier
	Scatter
	Gather
	GatherSingle
	Scan
	kinds
)

// Operation is a row of the table of operations: what validation, the backends, the C header, the Python module,
// profilers, reports and the conformance suites know of one.
type Operation struct {
	Name   string // "all_reduce"; CHORUS_ALL_REDUCE in C
	Family Kind   // the plainest form of the same collective, whose name is that of its plans
	// A rank's input and output: Op.In or Op.Ins, Op.Out or Op.Outs.
	In, Out Side
	// Only the root puts something in, or gets something.
	RootIn, RootOut bool
	Root            bool // one rank has a part of its own: Op.Root
	Peer            bool // a message: Op.Peer and Op.Tag
	Reduces         bool // elements of several ranks are combined: Op.Reduce
	Prefix          bool // of those, only the ranks up to one's own: its results differ from the others'
	// Blocks may differ in size; in one tensor Op.InSplits and Op.OutSplits say how. A root's list may come to a backend
	// with blocks of several sizes all the same, as only the root knows: all ranks must fail then, if it has no such form.
	Uneven bool
}

// Side is the form of what a rank puts in, or gets.
type Side uint8

// The sides. Blocks are one per rank, in the order of the ranks.
const (
	Nothing Side = iota
	Part         // one tensor, this rank's block
	Whole        // one tensor, the blocks of all ranks
	List         // a tensor for each block
)

// operations is the table.
var operations = [kinds]Operation{
	{Name: "invalid"},
	Send:                {Name: "send", In: Part, Peer: true},
	Recv:                {Name: "recv", Out: Part, Peer: true},
	Broadcast:           {Name: "broadcast", Out: Part, Root: true}, // Out of the root is the source
	AllReduce:           {Name: "all_reduce", In: Part, Out: Part, Reduces: true},
	Reduce:              {Name: "reduce", In: Part, Out: Part, RootOut: true, Root: true, Reduces: true},
	AllGather:           {Name: "all_gather", In: Part, Out: List},
	AllGatherSingle:     {Name: "all_gather_single", Family: AllGather, In: Part, Out: Whole},
	AllGatherV:          {Name: "all_gather_v", Family: AllGather, In: Part, Out: List, Uneven: true},
	ReduceScatter:       {Name: "reduce_scatter", In: List, Out: Part, Reduces: true},
	ReduceScatterSingle: {Name: "reduce_scatter_single", Family: ReduceScatter, In: Whole, Out: Part, Reduces: true},
	ReduceScatterV: {Name: "reduce_scatter_v", Family: ReduceScatter, In: List, Out: Part, Reduces: true,
		Uneven: true},
	AllToAll:        {Name: "all_to_all", In: List, Out: List, Uneven: true},
	AllToAllSingle:  {Name: "all_to_all_single", Family: AllToAll, In: Whole, Out: Whole},
	AllToAllVSingle: {Name: "all_to_all_v_single", Family: AllToAll, In: Whole, Out: Whole, Uneven: true},
	Barrier:         {Name: "barrier"},
	Scatter:         {Name: "scatter", In: List, Out: Part, RootIn: true, Root: true},
	Gather:          {Name: "gather", In: Part, Out: List, RootOut: true, Root: true},
	GatherSingle:    {Name: "gather_single", Family: Gather, In: Part, Out: Whole, RootOut: true, Root: true},
	Scan:            {Name: "scan", In: Part, Out: Part, Reduces: true, Prefix: true},
}

func init() {
	for k := Send; k < kinds; k++ {
		if operations[k].Family == 0 {
			operations[k].Family = k
		}
	}
}

// Valid reports whether there is such an operation.
func (k Kind) Valid() bool { return k-1 < kinds-1 }

// Operation returns the operation's row of the table, which must not be changed; an empty one if there is no such
// operation.
func (k Kind) Operation() *Operation {
	if k < kinds {
		return &operations[k]
	}
	return &operations[0]
}

// String returns the operation's usual name, such as "all_reduce".
func (k Kind) String() string {
	if k < kinds {
		return operations[k].Name
	}
	return fmt.Sprintf("operation(%d)", uint8(k))
}

// KindNamed returns the operation of this name; 0, of which [Kind.Operation] is an empty row, if there is none.
func KindNamed(name string) Kind {
	for k := Send; k < kinds; k++ {
		if operations[k].Name == name {
			return k
		}
	}
	return 0
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

// Collectives returns the operations that all ranks take part in, in order.
func Collectives() []Kind { return Kinds()[Recv:] }

// Takes reports whether rank me puts something in.
func (o *Operation) Takes(me, root int) bool { return o.In != Nothing && (!o.RootIn || me == root) }

// Gives reports whether rank me gets something.
func (o *Operation) Gives(me, root int) bool { return o.Out != Nothing && (!o.RootOut || me == root) }

// SameSizes reports whether all ranks of a collective put in as many elements, and whether they get as many.
func (o *Operation) SameSizes() (in, out bool) {
	exchange := o.In >= Whole && o.Out >= Whole
	in = o.In != Nothing && !o.RootIn && !(o.Uneven && (o.In == Part || exchange))
	return in, o.Out != Nothing && !o.RootOut && !(o.Uneven && (o.Out == Part || exchange))
}

// Splits reports whether the sizes of the blocks are in Op.InSplits and Op.OutSplits.
func (o *Operation) Splits() bool { return o.Uneven && o.In == Whole }

// Into reports whether the output may be the input, or another tensor of its size.
func (o *Operation) Into() bool { return o.In == Part && o.Out == Part }

// Admits reports whether the operation combines elements by a reduction, on types that it's defined on. Averages divide
// by the world size, which isn't how many a prefix has.
func (o *Operation) Admits(r ReduceKind) bool { return o.Reduces && !(o.Prefix && r == AvgKind) }

// Blocks returns the sizes of the blocks that rank me of n puts in and gets: size(from, to) is that of what rank from
// has for rank to. For operations other than all-to-alls, where all ranks know all sizes, only size(r, r) is asked for.
// Nil stands for nothing.
func (o *Operation) Blocks(me, n, root int, size func(from, to int) int) (ins, outs []int) {
	exchange := o.In >= Whole && o.Out >= Whole
	blocks := func(s Side, from bool) []int {
		if s == Part {
			return []int{size(me, me)}
		}
		sizes := make([]int, n)
		for r := range sizes {
			switch {
			case !exchange:
				sizes[r] = size(r, r)
			case from:
				sizes[r] = size(r, me)
			default:
				sizes[r] = size(me, r)
			}
		}
		return sizes
	}
	if o.Takes(me, root) {
		ins = blocks(o.In, false)
	}
	if o.Gives(me, root) {
		outs = blocks(o.Out, true)
	}
	return ins, outs
}

// Sources says what a collective is: block b of what rank me of n gets is this block of what each of the ranks from
// first to end-1 puts in, combined if it's several.
func (o *Operation) Sources(me, n, root, b int) (first, end, block int) {
	if o.In >= Whole {
		block = me
	}
	switch {
	case o.Prefix:
		return 0, me + 1, block
	case o.Reduces:
		return 0, n, block
	case o.Out >= Whole:
		return b, b + 1, block
	}
	return root, root + 1, block
}
