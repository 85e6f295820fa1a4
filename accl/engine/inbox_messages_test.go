package engine

import (
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// traced is a call of all ranks whose messages are compared with those of ACCL's firmware.
type traced struct {
	scenario abi.Scenario
	setup    setup
	ranks    int
	counts   []int // of the calls, one after the other
	root     int   // of a send, the receiver
	flags    abi.CompressionFlags
	function abi.ReduceFunction
	put      bool // a send to a stream
}

func (x traced) String() string {
	way := fmt.Sprintf("%v, messages of %d bytes", x.setup.protocol, x.setup.maxSegment)
	if x.flags != 0 {
		way += ", float16 on the wire"
	}
	if x.put {
		way += ", to a stream"
	}
	if x.setup.bcastRanks < x.ranks {
		way += ", trees"
	}
	what := x.scenario.String()
	if x.scenario == abi.Send {
		what += fmt.Sprintf(" from rank 0 to %d", x.root)
	} else if rooted(x.scenario) {
		what += fmt.Sprintf(" with root %d", x.root)
	}
	return fmt.Sprintf("%s of %d elements, %d ranks, %s", what, x.counts, x.ranks, way)
}

// small has RX buffers of 64 elements, of which one fits two messages but not evenly.
var small = setup{protocol: abi.UDP, buffers: 16, bufferSize: 256, maxSegment: 192, eager: 256, rendezvous: 1 << 16,
	fanIn: 2, gatherCount: 64, bcastRanks: 4, reduceRanks: 4}

// rooted reports whether a scenario has one.
func rooted(s abi.Scenario) bool {
	return slices.Contains([]abi.Scenario{abi.Send, abi.Bcast, abi.Scatter, abi.Gather, abi.Reduce}, s)
}

// traces are calls of every kind, on 2, 3 and 4 ranks: eager with counts that divide and don't divide into chunks and
// segments, and messages that divide and don't divide an RX buffer; by rendezvous flat and along trees, also where the
// firmware would write behind its spare buffers. No all-reduce has an empty chunk, for which the firmware waits.
func traces() (all []traced) {
	scenarios := append(slices.Clone(collectives), abi.Send, abi.Barrier)
	s := small
	add := func(s setup, ranks, count int, flags abi.CompressionFlags, f abi.ReduceFunction, not ...abi.Scenario) {
		for _, scenario := range scenarios {
			roots := 1
			if rooted(scenario) {
				roots = ranks
			}
			for root := range roots {
				if !slices.Contains(not, scenario) && !(scenario == abi.Send && root == 0) {
					all = append(all, traced{scenario: scenario, setup: s, ranks: ranks, counts: []int{count, count}, root: root,
						flags: flags, function: f})
					if s.protocol == abi.RDMA { // the first one is eager
						all[len(all)-1].counts[0] = 7
					}
				}
			}
		}
	}
	for ranks := 2; ranks <= 4; ranks++ {
		for _, count := range testutil.Pick([]int{7, 100}, []int{7, 60, 100, 126}) {
			for _, most := range []int{256, 192, 64} {
				s.maxSegment, s.protocol = most, abi.UDP
				add(s, ranks, count, 0, abi.Sum, abi.Alltoall, abi.Barrier)
				add(s, ranks, count, abi.EthCompressed, abi.Max, abi.Alltoall, abi.Barrier)
				if most == 192 {
					add(s, ranks, count, abi.EthCompressed|abi.Op0Compressed|abi.ResCompressed, abi.Max, abi.Alltoall, abi.Barrier)
				}
			}
			s.protocol, s.maxSegment = abi.RDMA, 256
			tree, cramped := s, s
			tree.bcastRanks, tree.reduceRanks = 1, 1
			cramped.rendezvous, cramped.fanIn = 300, 3
			add(s, ranks, count, 0, abi.Sum)
			add(tree, ranks, count, 0, abi.Sum)
			add(cramped, ranks, count, 0, abi.Sum)
		}
	}
	for _, most := range []int{256, 192, 64} {
		for _, flags := range []abi.CompressionFlags{0, abi.EthCompressed} {
			s.protocol, s.maxSegment = abi.RDMA, most
			all = append(all, traced{scenario: abi.Send, setup: s, ranks: 2, counts: []int{100, 7}, root: 1, flags: flags,
				put: true})
		}
	}
	return all
}

// expected are the messages of a rank, call after call.
func (x traced) expected(me int) []message {
	f := reference{ranks: x.ranks, me: me, root: x.root, tag: 5, buffer: x.setup.bufferSize,
		maxSegment: x.setup.maxSegment, eager: x.setup.eager, rdma: x.setup.protocol == abi.RDMA, compressed: x.flags != 0,
		put: x.put, bcastRanks: x.setup.bcastRanks, reduceRanks: x.setup.reduceRanks, reduceTo: x.setup.reduceTo,
		outbound: make([]uint32, x.ranks)}
	for _, f.count = range x.counts {
		if f.root = x.root; x.of(me) == abi.Recv {
			f.root = 0
		}
		f.call(x.of(me))
	}
	return f.sent
}

// of is the scenario of a rank's call: of a send, the root receives what rank 0 sends.
func (x traced) of(rank int) abi.Scenario {
	switch {
	case x.scenario != abi.Send || rank == 0:
		return x.scenario
	case rank == x.root && !x.put:
		return abi.Recv
	}
	return abi.Nop
}

// tracer is a network that writes down what its engine sends.
type tracer struct {
	Network
	x    traced
	rank int
	sent *[]message
	*offers
}

// offers are the addresses that ranks have last offered each other: of the receiver, to the sender.
type offers struct {
	mu   sync.Mutex
	addr map[[2]int]uint64
}

func (o *offers) put(receiver, sender int, addr uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.addr[[2]int{receiver, sender}] = addr
}

func (o *offers) behind(receiver, sender int, addr uint64) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return int(addr - o.addr[[2]int{receiver, sender}])
}

func (n tracer) Send(session uint32, h *abi.Header, payload []byte) error {
	m := message{src: int(h.Src), dst: int(session), kind: h.MsgType, tag: h.Tag, seq: h.Seq, size: int(h.Count),
		stream: h.Stream}
	if h.MsgType == abi.Eager && len(payload) != int(h.Count) {
		return fmt.Errorf("a header of %d bytes before %d", h.Count, len(payload))
	}
	switch h.MsgType {
	case abi.RendezvousAddress:
		n.put(n.rank, m.dst, h.Addr)
	case abi.RendezvousDone:
		m.at = n.behind(m.dst, n.rank, h.Addr)
	}
	m.content = n.x.read(payload)
	*n.sent = append(*n.sent, m)
	return n.Network.Send(session, h, payload)
}

func (n tracer) Write(session uint32, addr uint64, host bool, data []byte) error {
	*n.sent = append(*n.sent, message{src: n.rank, dst: int(session), kind: abi.RendezvousData, size: len(data),
		at: n.behind(int(session), n.rank, addr), content: n.x.read(data)})
	return n.Network.Write(session, addr, host, data)
}

// element is what a rank has as an element: it says which, and in a sum, which ranks' it holds.
func (x traced) element(rank, i int) float64 {
	if x.function == abi.Max { // float16 has no more bits
		return float64(i)
	}
	return float64(i<<x.ranks | 1<<rank)
}

// read returns which elements a payload has; none if they aren't those of element, one after the other.
func (x traced) read(payload []byte) (c content) {
	t := abi.Float32
	if x.flags != 0 {
		t = abi.Float16
	}
	c.n = len(payload) / t.Size()
	for i := range c.n {
		v, ranks := int(get(t, payload, i)), uint(0)
		if x.function == abi.Sum {
			ranks = uint(v) & (1<<x.ranks - 1)
			v = v >> x.ranks / max(1, bits.OnesCount(ranks))
		}
		if i == 0 {
			c.first, c.ranks = v, ranks
		}
		if v != c.first+i || ranks != c.ranks {
			return content{first: -1, n: c.n}
		}
	}
	return c
}

// trace carries the calls out, and returns what each rank has sent.
func (x traced) trace(t *testing.T) [][]message {
	sent := make([][]message, x.ranks)
	o := &offers{addr: map[[2]int]uint64{}}
	x.setup.wrap = func(rank int, n Network) Network { return tracer{n, x, rank, &sent[rank], o} }
	w := newWorld(t, x.ranks, x.setup)
	types, kind := f32, [2]abi.DataType{abi.Float32, abi.Float32}
	if x.flags != 0 {
		types.Compressed = abi.Float16
	}
	for i, f := range []abi.CompressionFlags{abi.Op0Compressed, abi.ResCompressed} {
		if x.flags&f != 0 {
			kind[i] = abi.Float16
		}
	}
	for _, count := range x.counts {
		w.must(w.all(func(r int) abi.Call {
			n := x.ranks * count
			in, out := w.buffer(r, n*kind[0].Size(), false), w.buffer(r, n*kind[1].Size(), false)
			for i := range n {
				put(kind[0], in.bytes, i, x.element(r, i))
			}
			c := abi.Call{Scenario: x.of(r), Count: uint32(count), Comm: w.comm, Root: uint32(x.root),
				Function: uint32(x.function), Tag: 5, ArithConfig: w.configs[types], Compression: x.flags,
				Addr: [3]uint64{in.addr, 0, out.addr}}
			if c.Scenario == abi.Recv {
				c.Root = 0
			}
			if x.put {
				c.Stream = abi.ResStream
			}
			return c
		}))
	}
	return sent
}

// text lists messages, those to each rank in their order: those of different ranks may be answered in any.
func text(x traced, sent []message) string {
	sent = slices.Clone(sent)
	if x.setup.protocol == abi.RDMA {
		slices.SortStableFunc(sent, func(a, b message) int { return a.dst - b.dst })
	}
	var b strings.Builder
	for _, m := range sent {
		if x.function == abi.Max {
			m.content.ranks = 0
		}
		fmt.Fprintln(&b, m)
	}
	return b.String()
}

// TestMessages compares what engines send with what ACCL's firmware sends: types, ranks, tags, numbers, lengths, and
// which elements of which ranks are in each.
func TestMessages(t *testing.T) {
	for _, x := range traces() {
		for r, sent := range x.trace(t) {
			want := x.expected(r)
			if got, want := text(x, sent), text(x, want); got != want {
				t.Errorf("%v: rank %d sends\n%swhere ACCL's firmware sends\n%s", x, r, got, want)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// TestGoldenMessages compares a few of the calls with testdata/messages.txt, which has the places in the firmware that
// each follows from.
func TestGoldenMessages(t *testing.T) {
	var b, model strings.Builder
	for _, g := range []struct {
		scenario abi.Scenario
		ranks    int
		way      string
		lines    string
	}{
		{abi.Send, 3, "eager", "send 620-638, recv 681-699, dma_mover.cpp 299-322"},
		{abi.Bcast, 3, "eager", "broadcast 933-963"},
		{abi.Scatter, 3, "eager", "scatter 1088-1100"},
		{abi.Gather, 3, "eager", "gather 1262-1287"},
		{abi.Allgather, 3, "eager", "allgather 1435-1497"},
		{abi.Reduce, 3, "eager", "reduce 1731-1742"},
		{abi.ReduceScatter, 3, "eager", "reduce_scatter 1798-1845"},
		{abi.Allreduce, 3, "eager", "allreduce 1898-2071"},
		{abi.Send, 3, "float16", "send 614-637: segments by 620, bytes by dma_mover.cpp 493 and 637"},
		{abi.Bcast, 3, "float16", "broadcast 933-963"},
		{abi.Reduce, 3, "float16", "reduce 1731-1742, fused_recv_reduce_send 775-786"},
		{abi.Allreduce, 3, "float16", "allreduce 1898-2071"},
		{abi.Send, 3, "flat", "send 593-610, recv 669-675, rdma_sq_handler.cpp 99-126"},
		{abi.Bcast, 3, "flat", "broadcast 871-919"},
		{abi.Scatter, 3, "flat", "scatter 1018-1078"},
		{abi.Gather, 3, "flat", "gather 1160-1203"},
		{abi.Allgather, 3, "flat", "allgather 1336-1396"},
		{abi.Reduce, 3, "flat", "reduce 1544-1601"},
		{abi.ReduceScatter, 3, "flat", "reduce_scatter 1775 and 1781"},
		{abi.Allreduce, 3, "flat", "allreduce 1881 and 1887"},
		{abi.Alltoall, 3, "flat", "all_to_all 2140-2204"},
		{abi.Barrier, 3, "flat", "barrier 2100-2115"},
		{abi.Bcast, 4, "tree", "broadcast 837-866"},
		{abi.Reduce, 4, "tree", "reduce 1645-1727"},
	} {
		x := traced{scenario: g.scenario, setup: small, ranks: g.ranks, counts: []int{70}}
		if rooted(g.scenario) {
			x.root = 1
		}
		switch g.way {
		case "float16":
			x.flags, x.function = abi.EthCompressed, abi.Max
		case "tree":
			x.setup.bcastRanks, x.setup.reduceRanks = 1, 1
			fallthrough
		case "flat":
			x.setup.protocol = abi.RDMA
		}
		for _, w := range []*strings.Builder{&b, &model} {
			fmt.Fprintf(w, "\n%v\n(%s)\n", x, g.lines)
		}
		for r, sent := range x.trace(t) {
			b.WriteString(text(x, sent))
			model.WriteString(text(x, x.expected(r)))
		}
	}
	want, err := os.ReadFile("testdata/messages.txt")
	if err != nil || b.String() != string(want) || model.String() != string(want) {
		t.Errorf("%v: engines send\n%s", err, b.String())
	}
}
