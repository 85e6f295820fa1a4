package plan

import "fmt"

// Collective names what a plan achieves. The numeric values travel in
// fingerprints between ranks: append, never renumber.
type Collective uint8

// The collectives. In and Out below are the caller's buffers on each rank; n is
// the world size; block r of a buffer is its Counts[r] (or Count) elements that
// follow those of the blocks before it.
const (
	// Broadcast: Out of every rank = In of Root. Only Root has an In.
	Broadcast Collective = iota + 1
	// AllReduce: Out of every rank = In of rank 0 ⊕ ... ⊕ In of rank n-1, Count elements.
	AllReduce
	// Reduce: as AllReduce, but only Root has an Out.
	Reduce
	// AllGather: block r of Out = In of rank r.
	AllGather
	// ReduceScatter: Out of rank r = reduction over all ranks of block r of their In.
	ReduceScatter
	// AllToAll: block r of Out on rank s = block s of In on rank r.
	AllToAll
	// Gather: as AllGather, but only Root has an Out.
	Gather
	// Scatter: Out of rank r = block r of In of Root. Only Root has an In.
	Scatter
	// Barrier: no rank leaves before all have entered. No buffers.
	Barrier
	// Scan: Out of rank r = In of rank 0 ⊕ ... ⊕ In of rank r, Count elements.
	Scan
)

var collectiveNames = [...]string{"invalid", "broadcast", "all_reduce", "reduce", "all_gather",
	"reduce_scatter", "all_to_all", "gather", "scatter", "barrier", "scan"}

// Collectives returns all collectives, in order.
func Collectives() []Collective {
	all := make([]Collective, 0, len(collectiveNames)-1)
	for c := range collectiveNames {
		if c > 0 {
			all = append(all, Collective(c))
		}
	}
	return all
}

// valid reports whether there is such a collective.
func (c Collective) valid() bool { return c >= Broadcast && int(c) < len(collectiveNames) }

// String returns the collective's usual name, such as "all_reduce".
func (c Collective) String() string {
	if int(c) < len(collectiveNames) {
		return collectiveNames[c]
	}
	return fmt.Sprintf("collective(%d)", uint8(c))
}

// Reduces reports whether the collective combines elements of several ranks.
func (c Collective) Reduces() bool {
	return c == AllReduce || c == Reduce || c == ReduceScatter || c == Scan
}

// Rooted reports whether one rank has a part of its own.
func (c Collective) Rooted() bool {
	return c == Broadcast || c == Reduce || c == Gather || c == Scatter
}

// blocks reports whether a buffer of the collective has a block of each rank.
func (c Collective) blocks() bool { return c >= AllGather && c <= Scatter }

// Buf is one of the memories that a step refers to.
type Buf uint8

const (
	// In is the caller's input. No plan writes it, unless Request.InPlace makes
	// it the same memory as Out.
	In Buf = iota
	// Out is the caller's output.
	Out
	// Tmp is scratch of this rank alone: Plan.Tmp elements, undefined at the start.
	Tmp
	// Stage is scratch that every rank of the same host can load and store:
	// Plan.Stage elements on each rank, undefined at the start. It keeps its
	// contents until every rank of the host has finished the plan.
	Stage
)

var bufNames = [...]string{"in", "out", "tmp", "stage"}

func (b Buf) String() string { return bufNames[b&3] }

// Ref is a place: an element offset into a buffer of a rank. A Ref to another
// rank's In, Out or Stage is a one-sided access; it needs ranks that share a
// host, and for In and Out memory that was allocated shared.
type Ref struct {
	Buf  Buf
	Rank int32
	Off  int
}

// Kind says what a step does.
type Kind uint8

const (
	// Send posts Src[0] (N elements) to Peer. Between two ranks, messages are
	// received in the order in which they were sent. N may be 0: a token.
	Send Kind = iota + 1
	// Recv posts a receive of N elements from Peer into Dst[0].
	Recv
	// RecvReduce posts a receive of N elements from Peer; on completion
	// Dst[0] = Src[0] ⊕ received. Src[0] and Dst[0] are memory of this rank and may be equal.
	RecvReduce
	// Wait completes everything posted since the last Wait. Until then a posted
	// Send's source may not be written, nor a posted receive's memory touched.
	Wait
	// Copy copies N elements from Src[0] to every Dst.
	Copy
	// Fold sets every Dst to Src[0] ⊕ Src[1] ⊕ ..., in that order, N elements.
	// A Dst may equal a Src. It is one operation: half types round once, at its end.
	Fold
	// Notify raises this rank's phase to Phase (phases grow from 1): a rank that awaits it sees all
	// that this rank did before.
	Notify
	// Await blocks until Peer (or, with Peer == All, every other rank of this
	// host) has reached Phase in the same operation.
	Await
)

var kindNames = [...]string{"invalid", "send", "recv", "recv_reduce", "wait", "copy", "fold", "notify", "await"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// All, as the Peer of an Await, stands for every other rank on this rank's host.
const All = -1

// Step is one action of one rank.
type Step struct {
	Kind  Kind
	Final bool  // Fold, RecvReduce: these elements are now complete (an average divides them here)
	Peer  int32 // Send, Recv, RecvReduce, Await
	Phase uint32
	N     int // elements
	Dst   []Ref
	Src   []Ref
}

// Topology says which ranks share a host, as far as memory is concerned.
type Topology struct {
	// Host[r] is the number of rank r's host; hosts are numbered from 0 in the
	// order of their lowest rank. nil means that no two ranks share one.
	Host []int
}

// Request is what a generator is asked for: one rank's part of one collective.
// Apart from Rank (and, for an uneven all-to-all, its own counts) every rank
// passes the same values, so that all of them choose the same algorithm.
type Request struct {
	Collective Collective
	World      int
	Rank       int
	Root       int   // rooted collectives
	Count      int   // elements: of the whole for AllReduce, Reduce, Broadcast, Scan; of one block otherwise
	Counts     []int // AllGather, ReduceScatter, Gather, Scatter: uneven blocks; nil means Count each
	SendCounts []int // AllToAll, uneven: block sizes of this rank's In ...
	RecvCounts []int // ... and of its Out; nil means Count each
	ElemSize   int   // bytes
	// In and Out are the same memory; for block collectives the smaller one is this rank's (Gather, Scatter: Root's) block
	// of the larger.
	InPlace    bool
	Topo       *Topology
	StageBytes int // shared scratch that each rank offers; 0: no one-sided plan is possible
	ChunkBytes int // pipeline granularity; 0: the generator's choice
}

// Plan is the part of one rank: steps to run in order.
type Plan struct {
	Algorithm string
	Request   Request
	Steps     []Step
	Tmp       int // elements of private scratch
	Stage     int // elements of shared scratch on each rank
	// Mapped: the ranks refer to each other's In or Out, which must be memory that
	// all ranks of a host can map. It is the same on every rank.
	Mapped bool
}
