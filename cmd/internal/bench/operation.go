package bench

import (
	"context"
	"strings"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/tensor"
)

// operation is one thing that can be measured.
type operation struct {
	name           string
	reduces        bool
	blocks         bool // the buffer is one block per rank
	empty          bool // there is no buffer
	inPlace        bool // it has such a form
	outOfPlace     bool
	usuallyInPlace bool
	leastRanks     int
	factor         func(n float64) float64 // busbw by algbw
	prepare        func(*setup) round
}

// The factors of nccl-tests (doc/PERFORMANCE.md): the bytes that must cross a
// rank's link, by the size.
func once(float64) float64           { return 1 }
func allButOwn(n float64) float64    { return (n - 1) / n }
func thereAndBack(n float64) float64 { return 2 * (n - 1) / n }

var operations = []operation{
	{name: "all_reduce", reduces: true, inPlace: true, outOfPlace: true, usuallyInPlace: true, factor: thereAndBack,
		prepare: (*setup).allReduce},
	{name: "broadcast", inPlace: true, usuallyInPlace: true, factor: once, prepare: (*setup).broadcast},
	{name: "reduce", reduces: true, inPlace: true, outOfPlace: true, usuallyInPlace: true, factor: once,
		prepare: (*setup).reduce},
	{name: "all_gather", blocks: true, inPlace: true, outOfPlace: true, factor: allButOwn, prepare: (*setup).allGather},
	{name: "reduce_scatter", reduces: true, blocks: true, inPlace: true, outOfPlace: true, factor: allButOwn,
		prepare: (*setup).reduceScatter},
	{name: "all_to_all", blocks: true, outOfPlace: true, factor: allButOwn, prepare: (*setup).allToAll},
	{name: "gather", blocks: true, inPlace: true, outOfPlace: true, factor: allButOwn, prepare: (*setup).gather},
	{name: "scatter", blocks: true, outOfPlace: true, factor: allButOwn, prepare: (*setup).scatter},
	{name: "send_recv", outOfPlace: true, leastRanks: 2, factor: once, prepare: (*setup).sendRecv},
	{name: "barrier", empty: true, outOfPlace: true, factor: once, prepare: (*setup).barrier},
}

// Operations returns the names of what can be measured.
func Operations() []string {
	var names []string
	for _, op := range operations {
		names = append(names, op.name)
	}
	return names
}

// lookup finds an operation. all_gather_single and its like are other names of what is
// measured under the plain ones.
func lookup(name string) *operation {
	name = strings.TrimSuffix(strings.ReplaceAll(name, "-", "_"), "_single")
	for i := range operations {
		if operations[i].name == name {
			return &operations[i]
		}
	}
	return nil
}

// setup is what a row is made from.
type setup struct {
	ctx     context.Context
	c       *comm.Comm
	red     comm.Reduction
	root    int
	inPlace bool
	count   int            // elements
	a, b    *tensor.Tensor // buffers of at least count elements; nil for an operation without
}

// round is one row's operation, ready to run on this rank.
type round struct {
	call func() error
	// synchronize waits for what calls on a device have enqueued; nil on the host.
	synchronize func() error
	// ways is how many times the measured thing happens in a call.
	ways int
	// in is what this rank contributes, out what it gets; either may be nil.
	in, out           *tensor.Tensor
	inSpans, outSpans []span
	// pass runs the traffic of this rank's part once, over its own buffers; nil if it has none.
	pass func()
}

func (s *setup) block() int { return s.count / s.c.Size() }

// view returns n elements of a buffer. The arguments are this package's own, so an
// error would be its mistake.
func view(t *tensor.Tensor, at, n int) *tensor.Tensor { return tensor.Must(t.Narrow(0, at, n)) }

func (s *setup) whole(rank int) []span { return []span{{n: s.count, rank: rank}} }

// allBlocks is a buffer with a block of each rank.
func (s *setup) allBlocks() []span {
	spans := make([]span, s.c.Size())
	for r := range spans {
		spans[r] = span{at: r * s.block(), n: s.block(), rank: r}
	}
	return spans
}

// other is the output buffer: the input's own in place.
func (s *setup) other() *tensor.Tensor {
	if s.inPlace {
		return s.a
	}
	return s.b
}

func (s *setup) allReduce() round {
	in, out := view(s.a, 0, s.count), view(s.other(), 0, s.count)
	var opts []comm.Option
	if !s.inPlace {
		opts = []comm.Option{comm.Into(out)}
	}
	return round{in: in, inSpans: s.whole(s.c.Rank()), out: out, outSpans: s.whole(reduced),
		call: func() error { return s.c.AllReduce(s.ctx, in, s.red, opts...) },
		pass: s.foldPass(in, out, s.c.Size())}
}

func (s *setup) broadcast() round {
	t := view(s.a, 0, s.count)
	r := round{out: t, outSpans: s.whole(s.root),
		call: func() error { return s.c.Broadcast(s.ctx, t, s.root) }}
	if s.c.Rank() == s.root {
		r.in, r.inSpans = t, s.whole(s.root)
	} else {
		r.pass = copyPass(view(s.b, 0, s.count), t)
	}
	return r
}

func (s *setup) reduce() round {
	in, out := view(s.a, 0, s.count), view(s.other(), 0, s.count)
	var opts []comm.Option
	if !s.inPlace {
		opts = []comm.Option{comm.Into(out)}
	}
	r := round{in: in, inSpans: s.whole(s.c.Rank()),
		call: func() error { return s.c.Reduce(s.ctx, in, s.root, s.red, opts...) },
		pass: s.foldPass(in, out, 1)}
	if s.c.Rank() == s.root {
		r.out, r.outSpans = out, s.whole(reduced)
	}
	return r
}

func (s *setup) allGather() round {
	m, me := s.block(), s.c.Rank()
	out := view(s.other(), 0, s.count)
	in := view(s.a, only(s.inPlace, me*m), m)
	return round{in: in, inSpans: []span{{n: m, rank: me}}, out: out, outSpans: s.allBlocks(),
		call: func() error { return s.c.AllGatherSingle(s.ctx, out, in) },
		pass: copyPass(view(s.a, 0, s.count), view(s.b, 0, s.count))}
}

func (s *setup) reduceScatter() round {
	m, me := s.block(), s.c.Rank()
	in := view(s.a, 0, s.count)
	out := view(s.other(), only(s.inPlace, me*m), m)
	return round{in: in, inSpans: s.whole(me), out: out, outSpans: []span{{n: m, rank: reduced, from: me * m}},
		call: func() error { return s.c.ReduceScatterSingle(s.ctx, out, in, s.red) },
		pass: s.foldPass(in, out, 1)}
}

func (s *setup) allToAll() round {
	m, me := s.block(), s.c.Rank()
	in, out := view(s.a, 0, s.count), view(s.b, 0, s.count)
	spans := s.allBlocks()
	for r := range spans {
		spans[r].from = me * m
	}
	return round{in: in, inSpans: s.whole(me), out: out, outSpans: spans,
		call: func() error { return s.c.AllToAllSingle(s.ctx, out, in) },
		pass: copyPass(out, in)}
}

func (s *setup) gather() round {
	m, me := s.block(), s.c.Rank()
	root := me == s.root
	in := view(s.a, only(s.inPlace && root, me*m), m)
	r := round{in: in, inSpans: []span{{n: m, rank: me}}}
	if root {
		r.out, r.outSpans = view(s.other(), 0, s.count), s.allBlocks()
		r.pass = copyPass(view(s.a, 0, s.count), view(s.b, 0, s.count))
	}
	out := r.out
	r.call = func() error { return s.c.GatherSingle(s.ctx, out, in, s.root) }
	return r
}

func (s *setup) scatter() round {
	m, me := s.block(), s.c.Rank()
	out := view(s.b, 0, m)
	r := round{out: out, outSpans: []span{{n: m, rank: s.root, from: me * m}}}
	var ins []*tensor.Tensor
	if me == s.root {
		r.in, r.inSpans = view(s.a, 0, s.count), s.whole(me)
		for p := range s.c.Size() {
			ins = append(ins, view(s.a, p*m, m))
		}
		r.pass = copyPass(view(s.b, 0, s.count), view(s.a, 0, s.count))
	}
	r.call = func() error { return s.c.Scatter(s.ctx, out, ins, s.root) }
	return r
}

// sendRecv passes a message between each even rank and the next, there and back; of an odd
// number of ranks the last has nothing to do.
func (s *setup) sendRecv() round {
	me := s.c.Rank()
	peer := me ^ 1
	if peer >= s.c.Size() {
		return round{ways: 2, call: func() error { return nil }}
	}
	in, out := view(s.a, 0, s.count), view(s.b, 0, s.count)
	send := func() error { return s.c.Send(s.ctx, in, peer) }
	recv := func() error { return s.c.Recv(s.ctx, out, peer) }
	first, second := send, recv
	if me > peer {
		first, second = recv, send
	}
	return round{ways: 2, in: in, inSpans: s.whole(me), out: out, outSpans: s.whole(peer),
		pass: copyPass(out, in),
		call: func() error {
			if err := first(); err != nil {
				return err
			}
			return second()
		}}
}

func (s *setup) barrier() round {
	return round{call: func() error { return s.c.Barrier(s.ctx) }}
}
