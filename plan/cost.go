package plan

// Closed forms for the two-sided algorithms in the usual model of a latency and
// a time per byte (Hockney, 1994; Thakur, Rabenseifner and Gropp, 2005), and for
// direct plans. A plan without a closed form is priced step by step.

// detour is what bytes cost more when partners are not neighbours, because
// several messages then cross the same link.
const detour = 1.25

// detour is what bytes to partners at a distance cost: two ranks are neighbors anyway.
func (t costTerms) detour() float64 {
	if t.n <= 2 {
		return 1
	}
	return detour
}

// costTerms gathers what the formulas need.
type costTerms struct {
	LinkCost
	n, levels float64 // ranks, ceil(log2 n)
	bytes     float64 // of the whole for vectors, of the mean block otherwise
	reduce    float64 // seconds per byte
	copy      float64
	uneven    bool // the world is no power of two
}

func newTerms(q Request, m Machine) costTerms {
	crowd := m.crowd(q)
	t := costTerms{LinkCost: m.link(q), n: float64(q.World), levels: float64(rounds(q.World)),
		bytes: float64(q.Count * q.ElemSize), reduce: crowd / m.Reduce, copy: crowd / m.Copy}
	if q.Counts != nil {
		t.bytes = float64(q.layout().total(q.World)*q.ElemSize) / t.n
	}
	t.uneven = q.World&(q.World-1) != 0
	return t
}

func (t costTerms) perByte() float64 { return 1 / t.Bandwidth }

func costRing(q Request, m Machine) float64 {
	t := newTerms(q, m)
	return (t.n - 1) * t.time(t.bytes)
}

func costRingReduceScatter(q Request, m Machine) float64 {
	t := newTerms(q, m)
	return (t.n - 1) * (t.time(t.bytes) + t.bytes*t.reduce)
}

func costRingAllReduce(q Request, m Machine) float64 {
	t := newTerms(q, m)
	part := t.bytes / t.n
	return (t.n - 1) * (2*t.time(part) + part*t.reduce)
}

func costDoublingAllReduce(q Request, m Machine) float64 {
	t := newTerms(q, m)
	steps := t.levels
	if t.uneven {
		steps++ // one level less in the core, two messages for those outside it
	}
	return steps * (t.time(t.bytes*t.detour()) + t.bytes*t.reduce)
}

func costRabenseifner(q Request, m Machine) float64 {
	t := newTerms(q, m)
	cost := 2*t.levels*t.Latency + 2*t.bytes*t.detour()*t.perByte() + t.bytes*t.reduce
	if t.uneven {
		cost += 2*t.bytes*t.perByte() + t.bytes*t.reduce
	}
	return cost
}

func costHalving(q Request, m Machine) float64 {
	t := newTerms(q, m)
	total := t.bytes * t.n
	cost := t.levels*t.Latency + total*(detour*t.perByte()+t.reduce)
	if t.uneven {
		cost += t.Latency + total*(t.perByte()+t.reduce)
	}
	return cost
}

func costDoublingAllGather(q Request, m Machine) float64 {
	t := newTerms(q, m)
	cost := t.levels*t.Latency + t.n*t.bytes*t.detour()*t.perByte()
	if t.uneven {
		cost += t.Latency + t.n*t.bytes*t.perByte()
	}
	return cost
}

func costBruckAllGather(q Request, m Machine) float64 {
	t := newTerms(q, m)
	return t.levels*(t.Latency+t.Overhead) + t.n*t.bytes*t.detour()*t.perByte()
}

func costBruckAllToAll(q Request, m Machine) float64 {
	t := newTerms(q, m)
	moved := t.n / 2 * t.bytes
	return t.levels*(t.time(moved*detour)+2*moved*t.copy) + 2*t.n*t.bytes*t.copy
}

// costPairwise must not look at the counts of this rank, which others don't know:
// uneven all-to-alls are priced by Count alone.
func costPairwise(q Request, m Machine) float64 {
	t := newTerms(q, m)
	return (t.n - 1) * t.time(t.bytes*t.detour())
}

// costTwoLevelAllToAll prices a rank of the host on which it takes longest: messages to one host, or to all if blocks
// are put together, are under way at the same time.
func costTwoLevelAllToAll(q Request, m Machine) float64 {
	t := newTerms(q, m)
	hosts, cost := q.Topo.groups(q.World), 0.0
	for h, ranks := range hosts {
		local := float64(len(ranks))
		away := t.n - local
		if !q.packs() {
			one := float64(len(hosts)-1)*t.Latency + 2*away*t.Overhead + away*t.bytes*t.detour()*t.perByte()
			if _, chunks := q.sharesOf(q.Count, len(ranks)); len(ranks) > 1 {
				one += float64(chunks)*m.sync(q) + 2*local*t.bytes*t.copy
			}
			cost = max(cost, one)
			continue
		}
		sent := 0.0 // messages of a carrier
		for g, others := range hosts {
			if g != h {
				sent += float64((len(others) + len(ranks) - 1) / len(ranks))
			}
		}
		one := min(1, away)*t.Latency + (sent+float64(len(hosts)-1))*t.Overhead + max(sent*local,
			away)*t.bytes*t.detour()*t.perByte()
		if len(ranks) > 1 {
			one += m.sync(q) + (t.n+sent*local)*t.bytes*t.copy
		}
		cost = max(cost, one)
	}
	return cost
}

func costPairwiseReduceScatter(q Request, m Machine) float64 {
	t := newTerms(q, m)
	return (t.n - 1) * (t.time(t.bytes*t.detour()) + t.bytes*t.reduce)
}

func costLinear(q Request, m Machine) float64 {
	t := newTerms(q, m)
	return t.Latency + (t.n-1)*(t.Overhead+t.bytes*t.perByte())
}

func costDissemination(q Request, m Machine) float64 {
	t := newTerms(q, m)
	return t.levels * t.Latency
}

// costTree prices a pipeline of pieces down a tree of the given degree.
func costTree(degree int) func(Request, Machine) float64 {
	return func(q Request, m Machine) float64 { return treeCost(q, m, degree, false) }
}

// costTreeReduce prices a pipeline of pieces up a tree.
func costTreeReduce(degree int) func(Request, Machine) float64 {
	return func(q Request, m Machine) float64 { return treeCost(q, m, degree, true) }
}

// treeCost lets the first piece pass all levels and then one piece after the
// other pass the root, which has fan children on each level. Children reduce one
// after the other, while one piece is sent to all of them at once.
func treeCost(q Request, m Machine, degree int, reduces bool) float64 {
	t := newTerms(q, m)
	levels, fan := float64(depth(q.World, degree)), float64(degree-1)
	top := levels * fan
	if degree == 0 {
		fan, top = 1, 1
	}
	piece := float64(min(q.Count, q.piece(q.Count)) * q.ElemSize)
	pieces := 1.0
	if piece > 0 {
		pieces = t.bytes / piece
	}
	if reduces {
		one := t.time(piece) + piece*t.reduce
		return levels*fan*one + (pieces-1)*top*one
	}
	return levels*(t.Latency+(fan-1)*t.Overhead+fan*piece*t.perByte()) + (pieces-1)*(t.Overhead+top*piece*t.perByte())
}

func costTreeGather(degree int) func(Request, Machine) float64 {
	return func(q Request, m Machine) float64 {
		t := newTerms(q, m)
		levels := float64(depth(q.World, degree))
		fan := float64(degree - 1)
		return levels*(t.Latency+(fan-1)*t.Overhead) + t.n*t.bytes*(t.perByte()+t.copy)
	}
}

// costDirectReduce: two synchronizations; reading n parts and writing n or one. As everywhere, two reads and a write of
// a byte are one of Reduce's.
func costDirectReduce(q Request, m Machine) float64 {
	t := newTerms(q, m)
	total := t.bytes
	switch q.Collective {
	case Reduce:
		total *= (t.n + 1) / 3 / t.n
	case ReduceScatter: // bytes are a block's, which is a rank's part
		total *= (t.n + 1) / 3
	}
	return 2*m.sync(q) + total*t.reduce
}

// costDirectCopy: two synchronizations and the copies of the busiest rank, or of the root's memory where the others
// share it. A broadcast in which the root copies a part costs no less than the largest in which it doesn't, though it
// may be over sooner: more bytes never cost less.
func costDirectCopy(q Request, m Machine) float64 {
	t := newTerms(q, m)
	total := t.bytes
	switch q.Collective {
	case AllGather, AllToAll:
		total *= t.n
	case Broadcast:
		first, _ := q.rootShare()
		total = max(float64(first*q.ElemSize), min(total, t.n*rootCopies))
	}
	return 2*m.sync(q) + total*t.copy
}
