package plan

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// line is the unit in which one-sided plans share memory between ranks: two
// ranks never write the same cache line of a vector that one of them cut.
const line = 64

// No buffer is larger than maxBytes, no element than maxElem: sums and products
// of sizes stay far from overflow.
const (
	maxBytes = 1 << 56
	maxElem  = 1 << 20
)

// Validate reports what is wrong with the request itself, whichever algorithm
// it is for.
func (q Request) Validate() error {
	switch {
	case !q.Collective.valid():
		return fmt.Errorf("plan: unknown collective %d", q.Collective)
	case q.World < 1:
		return fmt.Errorf("plan: world of %d ranks", q.World)
	case q.Rank < 0 || q.Rank >= q.World:
		return fmt.Errorf("plan: rank %d is not in a world of %d", q.Rank, q.World)
	case q.Collective.Rooted() && (q.Root < 0 || q.Root >= q.World):
		return fmt.Errorf("plan: root %d is not in a world of %d", q.Root, q.World)
	case q.Count < 0:
		return fmt.Errorf("plan: negative count %d", q.Count)
	case q.World > math.MaxInt32 || q.ElemSize > maxElem || q.Count > maxBytes/(q.World*max(1, q.ElemSize)):
		return fmt.Errorf("plan: %d elements of %d bytes for each of %d ranks are beyond all memory", q.Count, q.ElemSize,
			q.World)
	case q.StageBytes < 0 || q.ChunkBytes < 0:
		return errors.New("plan: negative stage or chunk size")
	case q.ElemSize < 1 && q.Collective != Barrier:
		return fmt.Errorf("plan: element size %d", q.ElemSize)
	}
	exchange := q.Collective == AllToAll
	for _, list := range []struct {
		name   string
		counts []int
		has    bool // the collective has such counts
	}{{"Counts", q.Counts, q.Collective.blocks() && !exchange}, {"SendCounts", q.SendCounts, exchange}, {"RecvCounts",
		q.RecvCounts, exchange}} {
		if list.counts != nil && !list.has {
			return fmt.Errorf("plan: %s has no %s", q.Collective, list.name)
		}
		if err := q.checkCounts(list.name, list.counts); err != nil {
			return err
		}
	}
	if exchange {
		if (q.SendCounts == nil) != (q.RecvCounts == nil) {
			return errors.New("plan: SendCounts and RecvCounts come together")
		}
		if q.SendCounts != nil && q.SendCounts[q.Rank] != q.RecvCounts[q.Rank] {
			return fmt.Errorf("plan: rank %d sends %d elements to itself and receives %d", q.Rank, q.SendCounts[q.Rank],
				q.RecvCounts[q.Rank])
		}
		if q.InPlace && !slices.Equal(q.SendCounts, q.RecvCounts) {
			return errors.New("plan: an all_to_all in place needs SendCounts equal to RecvCounts")
		}
	}
	return q.Topo.validate(q.World)
}

func (q Request) checkCounts(name string, counts []int) error {
	if counts == nil {
		return nil
	}
	if len(counts) != q.World {
		return fmt.Errorf("plan: %d %s for a world of %d", len(counts), name, q.World)
	}
	// As if all were as large: some plans have a place of that size for each.
	most := maxBytes / (q.World * max(1, q.ElemSize))
	for r, n := range counts {
		if n < 0 || n > most {
			return fmt.Errorf("plan: %s[%d] is %d", name, r, n)
		}
	}
	return nil
}

// Sizes returns how many elements the In and the Out of q.Rank have.
func (q Request) Sizes() (in, out int) { return q.sizes(q.Rank) }

func (q Request) sizes(rank int) (in, out int) {
	root := rank == q.Root
	switch q.Collective {
	case Broadcast:
		return only(root, q.Count), q.Count
	case AllReduce, Scan:
		return q.Count, q.Count
	case Reduce:
		return q.Count, only(root, q.Count)
	case AllGather:
		l := q.layout()
		return l.size(rank), l.total(q.World)
	case ReduceScatter:
		l := q.layout()
		return l.total(q.World), l.size(rank)
	case AllToAll:
		return newLayout(q.SendCounts, q.Count).total(q.World), newLayout(q.RecvCounts, q.Count).total(q.World)
	case Gather:
		l := q.layout()
		return l.size(rank), only(root, l.total(q.World))
	case Scatter:
		l := q.layout()
		return only(root, l.total(q.World)), l.size(rank)
	}
	return 0, 0
}

func only(yes bool, n int) int {
	if yes {
		return n
	}
	return 0
}

// home returns the place that r names once In and Out are the same memory: the
// larger buffer of an operation in place stands for both.
func (q Request) home(r Ref) Ref {
	if !q.InPlace || r.Buf > Out {
		return r
	}
	rank := int(r.Rank)
	if q.Collective.Rooted() && rank != q.Root {
		return r
	}
	switch q.Collective {
	case AllReduce, AllToAll, Broadcast, Reduce, Scan:
		r.Buf = Out
	case AllGather, Gather:
		if r.Buf == In {
			r.Buf, r.Off = Out, r.Off+q.layout().off(rank)
		}
	case ReduceScatter, Scatter:
		if r.Buf == Out {
			r.Buf, r.Off = In, r.Off+q.layout().off(rank)
		}
	}
	return r
}

// layout says where the blocks of a buffer lie, one block per rank.
type layout struct {
	each int
	offs []int // prefix sums of uneven blocks; nil: each elements apiece
}

func newLayout(counts []int, each int) layout {
	if counts == nil {
		return layout{each: each}
	}
	offs := make([]int, len(counts)+1)
	for r, n := range counts {
		offs[r+1] = offs[r] + n
	}
	return layout{offs: offs}
}

func (q Request) layout() layout { return newLayout(q.Counts, q.Count) }

func (l layout) off(r int) int {
	if l.offs != nil {
		return l.offs[r]
	}
	return r * l.each
}

func (l layout) size(r int) int      { return l.off(r+1) - l.off(r) }
func (l layout) total(world int) int { return l.off(world) }
func (l layout) span(lo, hi int) int { return l.off(hi) - l.off(lo) }
func (l layout) largest(world int) int {
	if l.offs == nil {
		return l.each
	}
	most := 0
	for r := range world {
		most = max(most, l.size(r))
	}
	return most
}

// cut divides n elements into parts of nearly equal size whose borders are
// multiples of align, and returns where part i starts and how long it is. The
// first parts are the larger ones.
func cut(n, parts, i, align int) (off, size int) {
	lines := (n + align - 1) / align
	lo := min(n, (lines*i+parts-1)/parts*align)
	hi := min(n, (lines*(i+1)+parts-1)/parts*align)
	return lo, hi - lo
}

// perLine returns how many elements fill a cache line; 1 if none divides it.
func (q Request) perLine() int {
	if q.ElemSize > 0 && line%q.ElemSize == 0 {
		return line / q.ElemSize
	}
	return 1
}

// elems returns the elements of one pipeline step of q.ChunkBytes, or of def
// bytes if the caller left the choice: at least one, whole cache lines if more.
func (q Request) elems(def int) int {
	if q.ChunkBytes > 0 {
		def = q.ChunkBytes
	}
	n := max(1, def/max(1, q.ElemSize))
	if per := q.perLine(); n > per {
		n -= n % per
	}
	return n
}

// piece returns the elements of each pipeline piece of a two-sided message of n
// elements; if the choice is ours, there are at most maxPieces, which bounds the
// length of a plan.
func (q Request) piece(n int) int {
	if q.ChunkBytes > 0 {
		return q.elems(0)
	}
	return q.elems(max(wireChunk, (n/maxPieces+1)*q.ElemSize))
}

const (
	// wireChunk is the default piece of a two-sided message. It's large enough that on TCP a
	// message's fixed cost is small beside that of its bytes. It's small enough to stay in a core's
	// cache between its arrival and its reduction.
	wireChunk = 2048 << 10
	maxPieces = 64
)
