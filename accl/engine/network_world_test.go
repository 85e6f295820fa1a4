package engine

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// setup is how the engines of a test are set up.
type setup struct {
	protocol              abi.Protocol
	buffers, bufferSize   int
	eager, rendezvous     int // bytes
	fanIn, gatherCount    int
	bcastRanks            int
	reduceRanks, reduceTo int
	maxSegment            int
	direct                int
	apart                 bool // engines don't reach each other's memory
	wrap                  func(rank int, n Network) Network
}

// counted is a network that counts the addresses which its engine offers.
type counted struct {
	Network
	offers *atomic.Int32
}

func (c counted) Send(session uint32, h *abi.Header, payload []byte) error {
	if h.MsgType == abi.RendezvousAddress {
		c.offers.Add(1)
	}
	return c.Network.Send(session, h, payload)
}

// apart is a network whose engines only send.
type apart struct{ Network }

func (s setup) String() string {
	return fmt.Sprintf("%v/eager=%d/spare=%d", s.protocol, s.eager, s.rendezvous)
}

// usual is what the driver sets up.
var usual = setup{protocol: abi.RDMA, buffers: 16, bufferSize: 1024, eager: 1024, rendezvous: 32768, fanIn: 2,
	gatherCount: 32768, bcastRanks: 3, reduceRanks: 4, reduceTo: 8192}

// world is some engines in one network.
type world struct {
	t       *testing.T
	engines []*Engine
	callers []*Controller
	comm    uint32
	configs map[abi.Types]uint32
	free    uint32 // exchange memory
	setup   setup
}

func newWorld(t *testing.T, n int, s setup) *world {
	w := &world{t: t, setup: s, configs: map[abi.Types]uint32{}}
	net := NewNetwork()
	for r := range n {
		port := net.Port(uint32(r))
		if s.apart {
			port = apart{port}
		}
		if s.wrap != nil {
			port = s.wrap(r, port)
		}
		e := New(Config{Session: uint32(r), Protocol: s.protocol, Network: port})
		net.Attach(uint32(r), e)
		w.engines, w.callers = append(w.engines, e), append(w.callers, e.Controller())
		t.Cleanup(e.Close)
	}
	ranks := make([]int, n)
	for r, e := range w.engines {
		ranks[r] = r
		for i := range s.buffers {
			d := abi.RXDescriptor{Addr: e.Memory.Map(Alloc(s.bufferSize), false)}
			w.put(e, abi.RXDescriptorAt(i), d.Words())
		}
		e.Write(abi.RXBufferSize, uint32(s.bufferSize))
		e.Write(abi.NumRXBuffers, uint32(s.buffers))
		for i := range abi.NumSpares {
			a := e.Memory.Map(Alloc(s.rendezvous), false)
			e.Write(uint32(abi.SpareBuffers+8*i), uint32(a))
			e.Write(uint32(abi.SpareBuffers+8*i+4), uint32(a>>32))
		}
		for at, v := range map[uint32]int{abi.GatherFlatMaxFanIn: s.fanIn, abi.GatherFlatMaxCount: s.gatherCount,
			abi.DirectMaxRanks: s.direct, abi.BcastFlatMaxRanks: s.bcastRanks, abi.ReduceFlatMaxRanks: s.reduceRanks,
			abi.ReduceFlatMaxCount: s.reduceTo} {
			e.Write(at, uint32(v))
		}
	}
	w.free = abi.RXDescriptorAt(s.buffers)
	w.comm = w.newComm(ranks, 0)
	order, configs := withBytes()
	for _, t := range order {
		words := configs[t].Words()
		for _, e := range w.engines {
			e.Write(w.free, 0)
			for i, v := range words {
				e.Write(w.free+uint32(4*i), v)
			}
		}
		w.configs[t] = w.free
		w.free += uint32(4 * len(words))
	}
	w.must(w.all(func(int) abi.Call {
		return abi.Call{Function: uint32(abi.SetMaxEagerSize), Count: uint32(s.eager)}
	}))
	w.must(w.all(func(int) abi.Call {
		return abi.Call{Function: uint32(abi.SetMaxRendezvousSize), Count: uint32(s.rendezvous)}
	}))
	w.must(w.all(func(int) abi.Call { return abi.Call{Function: uint32(abi.Enable)} }))
	return w
}

func (w *world) put(e *Engine, at uint32, words [abi.RXWords]uint32) {
	for i, v := range words {
		e.Write(at+uint32(4*i), v)
	}
}

// newComm makes a communicator of some ranks; number keeps those apart that have the same.
func (w *world) newComm(ranks []int, number uint32) uint32 {
	at := w.free
	for local, me := range ranks {
		c := abi.Communicator{Local: local}
		for _, r := range ranks {
			c.Ranks = append(c.Ranks, abi.Rank{IP: 0x7F000001, Port: 5500 + number, Session: uint32(r),
				MaxSegmentSize: uint32(w.setup.maxSegment)})
		}
		for i, v := range c.Words() {
			w.engines[me].Write(at+uint32(4*i), v)
		}
	}
	w.free += uint32(4 * (abi.CommHead + abi.RankWords*len(ranks)))
	return at
}

// awaitWait waits until a call of a rank's engine waits for a message of another rank's.
func (w *world) awaitWait(rank int, kind abi.MsgType, from int) {
	w.t.Helper()
	testutil.Eventually(w.t, func() bool {
		return slices.ContainsFunc(w.engines[rank].Records(), func(r Record) bool {
			return r.Waits != nil && r.Waits.Kind == kind && r.Waits.Rank == from
		})
	}, "rank %d waits for rank %d", rank, from)
}

// all starts a call on each rank, and returns their statuses.
func (w *world) all(call func(rank int) abi.Call) []abi.Status {
	w.t.Helper()
	calls := make([]*Call, len(w.engines))
	for r := range calls {
		calls[r] = w.callers[r].Start(call(r))
	}
	return w.wait(calls...)
}

func (w *world) wait(calls ...*Call) []abi.Status {
	w.t.Helper()
	limit := time.After(20 * time.Second)
	status := make([]abi.Status, len(calls))
	for r, c := range calls {
		select {
		case <-c.Done():
			status[r] = c.Wait()
		case <-limit:
			w.t.Fatalf("call %d hangs: %v", r, c.Scenario)
		}
	}
	return status
}

func (w *world) must(status []abi.Status) {
	w.t.Helper()
	for r, s := range status {
		if s != 0 {
			w.t.Fatalf("rank %d: %v", r, s)
		}
	}
}

// buffer is memory of an engine.
type buffer struct {
	addr  uint64
	bytes []byte
}

func (w *world) buffer(rank, bytes int, host bool) buffer {
	b := Alloc(bytes)
	return buffer{w.engines[rank].Memory.Map(b, host), b}
}

// element codes of numbers in buffers.
func put(t abi.DataType, b []byte, i int, x float64) {
	le := binary.LittleEndian
	switch t {
	case abi.Float16:
		le.PutUint16(b[2*i:], uint16(dtype.F16FromFloat64(x)))
	case abi.Float32:
		le.PutUint32(b[4*i:], math.Float32bits(float32(x)))
	case abi.Float64:
		le.PutUint64(b[8*i:], math.Float64bits(x))
	case abi.Int32:
		le.PutUint32(b[4*i:], uint32(int32(x)))
	case abi.Int64:
		le.PutUint64(b[8*i:], uint64(int64(x)))
	default:
		b[i] = byte(int8(x))
	}
}

func get(t abi.DataType, b []byte, i int) float64 {
	le := binary.LittleEndian
	switch t {
	case abi.Float16:
		return dtype.F16(le.Uint16(b[2*i:])).Float64()
	case abi.Float32:
		return float64(math.Float32frombits(le.Uint32(b[4*i:])))
	case abi.Float64:
		return math.Float64frombits(le.Uint64(b[8*i:]))
	case abi.Int32:
		return float64(int32(le.Uint32(b[4*i:])))
	case abi.Int64:
		return float64(int64(le.Uint64(b[8*i:])))
	}
	return float64(int8(b[i]))
}

// value is element i of block b of a rank: sums over few ranks are exact in every type.
func value(rank, b, i int) float64 { return float64((7*rank+3*b+i)%16 - 5) }

// job is a collective to test.
type job struct {
	scenario  abi.Scenario
	types     abi.Types
	count     int
	root      int
	function  abi.ReduceFunction
	flags     abi.CompressionFlags
	host      bool
	inPlace   bool
	inStream  bool
	outStream bool
}

// blocks returns how many blocks a rank puts in and gets.
func (j job) blocks(me, n int) (ins, outs int) {
	switch j.scenario {
	case abi.Bcast:
		return 1, 1
	case abi.Scatter:
		if me == j.root {
			return n, 1
		}
		return 0, 1
	case abi.Gather:
		if me == j.root {
			return 1, n
		}
		return 1, 0
	case abi.Reduce:
		if me == j.root {
			return 1, 1
		}
		return 1, 0
	case abi.Allgather:
		return 1, n
	case abi.ReduceScatter:
		return n, 1
	case abi.Alltoall:
		return n, n
	}
	return 1, 1
}

// want is element i of block b of what a rank gets.
func (j job) want(me, n, b, i int) float64 {
	reduce := func(block int) float64 {
		x := value(0, block, i)
		for r := 1; r < n; r++ {
			if y := value(r, block, i); j.function == abi.Max {
				x = max(x, y)
			} else {
				x += y
			}
		}
		return x
	}
	switch j.scenario {
	case abi.Bcast:
		return value(j.root, 0, i)
	case abi.Scatter:
		return value(j.root, me, i)
	case abi.Gather, abi.Allgather:
		return value(b, 0, i)
	case abi.ReduceScatter:
		return reduce(me)
	case abi.Alltoall:
		return value(b, me, i)
	}
	return reduce(0)
}

// run carries a job out on all ranks and checks the results, and that inputs are as they were.
func (w *world) run(j job) {
	w.t.Helper()
	n := len(w.engines)
	ins, outs := make([]buffer, n), make([]buffer, n)
	inType, outType := j.types.Uncompressed, j.types.Uncompressed
	if j.flags&abi.Op0Compressed != 0 {
		inType = j.types.Compressed
	}
	if j.flags&abi.ResCompressed != 0 {
		outType = j.types.Compressed
	}
	if j.scenario == abi.Bcast {
		outType = inType
	}
	status := w.all(func(r int) abi.Call {
		nin, nout := j.blocks(r, n)
		ins[r], outs[r] = w.buffer(r, nin*j.count*inType.Size(), j.host), w.buffer(r, nout*j.count*outType.Size(), j.host)
		for b := range nin {
			for i := range j.count {
				if j.scenario != abi.Bcast || r == j.root {
					put(inType, ins[r].bytes, b*j.count+i, value(r, b, i))
				}
			}
		}
		c := abi.Call{Scenario: j.scenario, Count: uint32(j.count), Comm: w.comm, Root: uint32(j.root),
			Function: uint32(j.function), Tag: abi.TagAny, ArithConfig: w.configs[j.types], Compression: j.flags,
			Addr: [3]uint64{ins[r].addr, 0, outs[r].addr}}
		switch {
		case j.scenario == abi.Bcast:
			outs[r] = ins[r]
		case j.inPlace && nin == nout:
			outs[r] = ins[r]
			c.Addr[2] = c.Addr[0]
		}
		if j.host {
			c.Host = abi.Op0Host | abi.ResHost
		}
		if j.inStream {
			c.Stream |= abi.Op0Stream
			if j.scenario != abi.Bcast || r == j.root {
				w.engines[r].FromKernel().Push(ins[r].bytes)
			}
		}
		if j.outStream {
			c.Stream |= abi.ResStream
		}
		return c
	})
	for r, s := range status {
		if s != 0 {
			w.t.Fatalf("%v of %+v: rank %d: %v", w.setup, j, r, s)
		}
		nin, nout := j.blocks(r, n)
		if j.outStream && nout > 0 && (j.scenario != abi.Bcast || r != j.root) {
			if !w.engines[r].ToKernel(abi.TagAny).pull(outs[r].bytes, w.t.Context().Done()) {
				w.t.Fatal("nothing in the stream")
			}
		}
		for k := range nout * j.count {
			b, i := k/j.count, k%j.count
			if x, want := get(outType, outs[r].bytes, k), j.want(r, n, b, i); x != want {
				w.t.Fatalf("%v of %+v: rank %d block %d element %d is %v, want %v", w.setup, j, r, b, i, x, want)
			}
		}
		if j.inPlace || j.scenario == abi.Bcast {
			continue
		}
		for k := range nin * j.count {
			b, i := k/j.count, k%j.count
			if x := get(inType, ins[r].bytes, k); x != value(r, b, i) {
				w.t.Fatalf("%+v: rank %d's input has changed: block %d element %d is %v", j, r, b, i, x)
			}
		}
	}
}

var collectives = []abi.Scenario{abi.Bcast, abi.Scatter, abi.Gather, abi.Reduce, abi.Allgather, abi.Allreduce,
	abi.ReduceScatter, abi.Alltoall}

func withBytes() ([]abi.Types, map[abi.Types]abi.ArithConfig) {
	order, configs := abi.DefaultArithConfigs()
	t := abi.Types{Uncompressed: abi.Int8, Compressed: abi.Int8}
	configs[t] = abi.Bytes
	return append(order, t), configs
}

// random returns a job for n ranks.
func random(rng *rand.Rand, n int) job {
	order, configs := withBytes()
	j := job{scenario: collectives[rng.IntN(len(collectives))], types: order[rng.IntN(len(order))], root: rng.IntN(n),
		function: abi.ReduceFunction(rng.IntN(2)), host: rng.IntN(3) == 0, inPlace: rng.IntN(3) == 0}
	j.count = []int{1, 2, rng.IntN(8), rng.IntN(300), rng.IntN(3000)}[rng.IntN(5)]
	if j.types.Uncompressed != j.types.Compressed {
		j.flags = abi.CompressionFlags(rng.IntN(16)) &^ abi.Op1Compressed
		if small := j.flags & (abi.Op0Compressed | abi.ResCompressed); j.inPlace || j.scenario == abi.Bcast {
			if j.flags &^= abi.Op0Compressed | abi.ResCompressed; small != 0 {
				j.flags |= abi.Op0Compressed | abi.ResCompressed
			}
		}
	}
	if j.scenario == abi.Alltoall {
		j.inPlace = false
	}
	if len(configs[j.types].Functions) == 0 {
		switch j.scenario {
		case abi.Reduce, abi.Allreduce, abi.ReduceScatter:
			j.scenario = abi.Allgather
		}
	}
	if rng.IntN(4) == 0 && !j.inPlace {
		j.inStream, j.outStream = rng.IntN(2) == 0, rng.IntN(2) == 0
	}
	return j
}
