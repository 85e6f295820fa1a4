package native

import (
	"slices"

	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/plan"
)

// program is a plan made ready to run: places are indexes into a table of base
// addresses plus byte offsets, and everything that can be known beforehand is.
type program struct {
	name       string
	steps      []step
	tmp        int    // bytes of private scratch
	recvTmp    int    // bytes for arriving data that is then reduced
	stage      int    // bytes of stage
	inSlots    bool   // the stage is beside the flags
	phaseBase  uint32 // added to the plan's phases
	needsSpace bool   // uses flags or stages
	twoSided   bool
	short      *shortProgram // what it comes down to; or nil
	part       *part         // the same
	prologue   int           // steps up to its first flag, if that comes so soon that none is needed for arriving; or 0
	touches    []bool        // which entries of the base table it refers to that are other ranks' In or Out; nil: none
	fills      int           // bytes of a stage that large copies fill
}

// remote reports whether the program refers to other ranks' In or Out.
func (p *program) remote() bool { return p.touches != nil }

type step struct {
	kind     plan.Kind
	final    bool
	fill     bool // much goes into a stage
	past     bool // goes to the caller, past the caches
	peer     int32
	phase    uint32
	n        int // elements
	bytes    int
	recvTmp  int
	needs    int // bytes of this rank's In and Out, from the first on, up to the last one that it touches
	settled  int // bytes of this rank's Out, from the first on, that no later step writes
	dst, src []ref
}

// ref is a place: entry of the base table and byte offset.
type ref struct {
	base int
	off  int
}

// baseOf is the index of a rank's buffer in the base table.
func baseOf(b plan.Buf, rank, world int) int { return int(b)*world + rank }

// compile translates a plan, whose first skip steps are left out. phaseBase keeps
// its phases above those that the executor uses itself.
func compile(p *plan.Plan, skip int, phaseBase uint32) *program {
	world, elem := p.Request.World, p.Request.ElemSize
	g := &program{name: p.Algorithm, tmp: p.Tmp * elem, stage: p.Stage * elem, phaseBase: phaseBase}
	convert := func(refs []plan.Ref) []ref {
		out := make([]ref, len(refs))
		for i, r := range refs {
			out[i] = ref{base: baseOf(r.Buf, int(r.Rank), world), off: r.Off * elem}
			if r.Buf == plan.Stage {
				g.needsSpace = true
			}
			if int(r.Rank) != p.Request.Rank && r.Buf <= plan.Out {
				if g.touches == nil {
					g.touches = make([]bool, int(plan.Out+1)*world)
				}
				g.touches[baseOf(r.Buf, int(r.Rank), world)] = true
			}
		}
		return out
	}
	recv, past := 0, outgrows(&p.Request)
	for _, s := range p.Steps[skip:] {
		t := step{kind: s.Kind, final: s.Final, peer: s.Peer, phase: s.Phase + phaseBase, n: s.N, bytes: s.N * elem,
			dst: convert(s.Dst), src: convert(s.Src)}
		switch s.Kind {
		case plan.Copy:
			if t.fill = s.Dst[0].Buf == plan.Stage && t.bytes >= storeThreshold; t.fill {
				g.fills += t.bytes
			}
			t.past = past && s.Dst[len(s.Dst)-1].Buf == plan.Out && t.bytes >= storeThreshold && t.bytes < copyBypasses
		case plan.Fold:
			t.fill = len(s.Dst) == 2 && s.Dst[0].Buf != plan.Stage && s.Dst[1].Buf == plan.Stage && t.bytes >= storeThreshold
		case plan.Send, plan.Recv, plan.RecvReduce:
			g.twoSided = true
			if s.Kind == plan.RecvReduce {
				t.recvTmp = recv
				recv += (t.bytes + 63) &^ 63
			}
			g.recvTmp = max(g.recvTmp, recv)
		case plan.Wait:
			recv = 0
		case plan.Notify, plan.Await:
			g.needsSpace = true
		}
		g.steps = append(g.steps, t)
	}
	g.places(p.Request.Rank, world)
	g.prologue = opens(g.steps)
	g.short, g.part = asShort(g.steps, p.Request.Rank, world), partly(g.steps, world)
	g.needsSpace = g.needsSpace || p.Stage > 0
	return g
}

const (
	// fitsCaches bounds the callers' memory that the ranks of a host touch in an operation whose results are kept in
	// the caches. It's three quarters of the last-level cache of the machine on which it was measured (EPYC, Zen 4: 32
	// MiB). All-gathers of 8 MiB, which touch 24 MiB, take 230 us when stores bypass the caches, and 360 us otherwise.
	// All-to-alls of 8 MiB, which touch 32 MiB, take 270 and 575 us. Those of 4 MiB, which touch 16 MiB, take as long
	// either way.
	fitsCaches = 24 << 20
	// copyBypasses is from how many bytes on kern.Copy bypasses the caches by itself, at the same speed or a little
	// faster.
	copyBypasses = 8 << 20
)

// outgrows reports whether an operation's results should bypass the caches, which they don't fit: an ordinary store
// fetches every line first, and writes it back to memory before any rank can read it here. All-gathers from 16 MiB on
// took 1.5 to 2.5 times as long with ordinary stores. That holds where every rank both fills its stage and writes much.
// Where one rank fills and others take, or the other way round, the fill is what takes the time, and bypassing made it
// 10 to 17 % slower.
func outgrows(q *plan.Request) bool {
	if q.Collective != plan.AllGather && q.Collective != plan.AllToAll {
		return false
	}
	in, out := q.Sizes()
	if q.InPlace {
		in, out = max(in, out), 0
	}
	return (in+out)*q.ElemSize*q.World/q.Topo.Hosts(q.World) >= fitsCaches // if the other ranks' sizes are like this one's
}

// opens returns how many steps a plan takes to raise its flag, if that is so soon that a flag of
// its own for arriving would only cost time; else 0.
func opens(s []step) int {
	n := 0
	if len(s) >= 2 && s[0].kind == plan.Copy && s[0].bytes <= smallCopy {
		n = 1
	}
	if len(s) > n && s[n].kind == plan.Notify {
		return n + 1
	}
	return 0
}

// smallCopy is how many bytes may be copied before a rank tells that it has arrived.
const smallCopy = 16 << 10

// opensWithSync reports whether every rank's plan begins with a synchronization
// of all: the executor's exchange of places, which is one, can then take its place.
func opensWithSync(alg plan.Algorithm, q plan.Request) bool {
	const most = 64 // ranks for which it's worth while to generate all plans
	if q.SendCounts != nil || q.World > most {
		return false
	}
	for q.Rank = range q.World {
		p, err := alg.Plan(q)
		if err != nil {
			return false
		}
		s := p.Steps
		if len(s) < 2 || s[0].Kind != plan.Notify || s[0].Phase != 1 ||
			s[1].Kind != plan.Await || s[1].Phase != 1 || s[1].Peer != plan.All {
			return false
		}
	}
	return true
}

// shape is what two operations must have in common to run the same programs.
type shape struct {
	kind    plan.Collective
	elem    int
	count   int
	root    int
	inPlace bool
	counts  uint64 // hash of the uneven counts; 0 if there are none
	tuned   *tuning
}

// compiled is what a group keeps for a shape.
type compiled struct {
	shape  shape
	req    plan.Request
	plain  *program      // runs on any memory
	apart  *program      // runs instead if the cores are far apart; nil if plain serves then, too
	mapped *program      // runs if all ranks' memory can be mapped; nil if there's none
	sizes  []sizes       // of every rank's buffers that the mapped program refers to; nil if there are none
	stage  int           // most bytes of the stage that either needs
	short  *shortProgram // of the plain one, if there's no other; or nil
	desc   fabric.Desc
	descOf base.Description // the operation that desc describes
	used   uint64           // when it was found last, by the clock of programs
}

// sizes are the bytes of a rank's buffers in an operation. 0: there's none, or it's none of this rank's business. Its
// owner may be through with the operation then, and have freed it.
type sizes struct{ in, out int }

// finish works out what the programs have in common.
func (c *compiled) finish() {
	for _, p := range []*program{c.plain, c.apart, c.mapped} {
		if p == nil {
			continue
		}
		if p.inSlots = p.stage <= fabric.InlineBytes && c.shape.tuned.prefer.slots != "off"; !p.inSlots {
			c.stage = max(c.stage, p.stage)
		}
	}
	if p := c.plain; p.short != nil && c.apart == nil && c.mapped == nil {
		if c.short = p.short; !p.inSlots {
			c.short.stage = p.stage
		}
	}
	if c.mapped == nil || !c.mapped.remote() {
		return
	}
	q := c.req
	for q.Rank = range q.World {
		in, out := q.Sizes()
		if !c.mapped.touches[baseOf(plan.In, q.Rank, q.World)] {
			in = 0
		}
		if !c.mapped.touches[baseOf(plan.Out, q.Rank, q.World)] {
			out = 0
		}
		c.sizes = append(c.sizes, sizes{in * q.ElemSize, out * q.ElemSize})
	}
}

func (c *compiled) sameCounts(q *plan.Request) bool {
	return slices.Equal(c.req.Counts, q.Counts) && slices.Equal(c.req.SendCounts, q.SendCounts) &&
		slices.Equal(c.req.RecvCounts, q.RecvCounts)
}
