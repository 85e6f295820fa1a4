package engine

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/accl/abi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var f32 = abi.Types{Uncompressed: abi.Float32, Compressed: abi.Float32}

// variants are engines that take other ways.
func variants() []setup {
	udp, tree, small, direct := usual, usual, usual, usual
	direct.direct, direct.apart = 8, true
	reaching := direct
	reaching.apart = false
	udp.protocol, udp.maxSegment = abi.UDP, 512
	tree.bcastRanks, tree.reduceRanks, tree.reduceTo, tree.gatherCount, tree.eager = 1, 1, 0, 64, 1024
	small.rendezvous, small.buffers = 2048, 2
	return []setup{usual, udp, tree, small, direct, reaching}
}

// TestCollectives compares random collectives with their definitions.
func TestCollectives(t *testing.T) {
	for v, s := range variants() {
		for n := 1; n <= 6; n++ {
			t.Run(fmt.Sprintf("%d/ranks=%d", v, n), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, n, s)
				rng := rand.New(rand.NewPCG(uint64(v), uint64(n)))
				for range 150 {
					w.run(random(rng, n))
				}
			})
		}
	}
}

// TestTinyAllreduce has fewer elements than ranks: chunks are empty then, and no rank may wait for them.
func TestTinyAllreduce(t *testing.T) {
	for n := 2; n <= 5; n++ {
		for count := 1; count <= 2*n; count++ {
			newWorld(t, n, usual).run(job{scenario: abi.Allreduce, types: f32, count: count})
		}
	}
}

// TestSegmentsOfLastRoot broadcasts several eager segments from the last rank.
func TestSegmentsOfLastRoot(t *testing.T) {
	s := usual
	s.eager, s.rendezvous = 1<<20, 1<<21
	for n := 2; n <= 4; n++ {
		newWorld(t, n, s).run(job{scenario: abi.Bcast, types: f32, count: 1000, root: n - 1})
	}
}

// TestSpareBuffersHold reduces what is far larger than the spare buffers.
func TestSpareBuffersHold(t *testing.T) {
	s := usual
	s.rendezvous = 4096
	w := newWorld(t, 4, s)
	for _, scenario := range []abi.Scenario{abi.Reduce, abi.Allreduce, abi.ReduceScatter} {
		w.run(job{scenario: scenario, types: f32, count: 5000, root: 2})
	}
	s.direct, s.apart = 4, true
	w = newWorld(t, 4, s)
	for _, count := range []int{257, 5000, 12_345} {
		w.run(job{scenario: abi.Allreduce, types: f32, count: count})
	}
}

// TestGatherAtAnyRoot gathers by rendezvous with every root and fan-in.
func TestGatherAtAnyRoot(t *testing.T) {
	for fan := 1; fan <= 4; fan++ {
		s := usual
		s.fanIn, s.gatherCount = fan, 100
		w := newWorld(t, 4, s)
		for root := range 4 {
			w.run(job{scenario: abi.Gather, types: f32, count: 1000, root: root})
		}
	}
}

// TestFanIn has a root gather from ranks that aren't there yet: it lets as many of them write at once as the registers
// say.
func TestFanIn(t *testing.T) {
	for _, x := range []struct{ fan, count, want int }{{1, 100, 1}, {2, 100, 2}, {2, 1 << 20, 4}} {
		s := usual
		var offers atomic.Int32
		s.fanIn, s.gatherCount = x.fan, x.count
		s.wrap = func(_ int, n Network) Network { return counted{n, &offers} }
		w := newWorld(t, 5, s)
		gather := func(r int) abi.Call {
			return abi.Call{Scenario: abi.Gather, Count: 1000, Comm: w.comm, Root: 1, Tag: abi.TagAny,
				ArithConfig: w.configs[f32],
				Addr:        [3]uint64{w.buffer(r, 4000, false).addr, 0, w.buffer(r, 20_000, false).addr}}
		}
		calls := []*Call{w.callers[1].Start(gather(1))}
		w.awaitWait(1, abi.RendezvousDone, 0) // the first block, when it has offered what it may
		if got := int(offers.Load()); got != x.want {
			t.Errorf("fan-in %d for more than %d bytes: %d may write at once", x.fan, x.count, got)
		}
		for _, r := range []int{0, 2, 3, 4} {
			calls = append(calls, w.callers[r].Start(gather(r)))
		}
		w.must(w.wait(calls...))
	}
}

// TestSameBits has ranks come to reductions by rendezvous in any order: sums that round have the same bits each time.
func TestSameBits(t *testing.T) {
	flat, tree, direct := usual, usual, usual
	flat.reduceTo, tree.reduceRanks, tree.reduceTo, direct.direct = 1<<20, 1, 0, 8
	const n, count = 5, 1000
	rng := rand.New(rand.NewPCG(3, 4))
	for _, s := range []setup{flat, tree, direct} {
		for _, scenario := range []abi.Scenario{abi.Reduce, abi.Allreduce, abi.ReduceScatter} {
			var first []byte
			for range 10 {
				w := newWorld(t, n, s)
				calls, outs := make([]*Call, n), make([]buffer, n)
				for _, r := range rng.Perm(n) {
					in := w.buffer(r, 4*n*count, false)
					outs[r] = w.buffer(r, 4*count, false)
					for i := range n * count {
						put(abi.Float32, in.bytes, i, 1/float64(1+(r*7919+i*31)%1000))
					}
					calls[r] = w.callers[r].Start(abi.Call{Scenario: scenario, Count: count, Comm: w.comm, Root: 2,
						Tag: abi.TagAny, ArithConfig: w.configs[f32], Addr: [3]uint64{in.addr, 0, outs[r].addr}})
					time.Sleep(time.Duration(rng.IntN(200)) * time.Microsecond)
				}
				w.must(w.wait(calls...))
				if first == nil {
					first = outs[2].bytes
				} else if !slices.Equal(first, outs[2].bytes) {
					t.Fatalf("%v: other bits than the first time", scenario)
				}
			}
		}
	}
}

// TestUnreachable gives one rank of a direct all-reduce memory that isn't there, or another count: all ranks hear of
// it.
func TestUnreachable(t *testing.T) {
	s := usual
	s.direct = 4
	for _, change := range []func(c *abi.Call){func(c *abi.Call) { c.Addr[0] = 1 << 40 },
		func(c *abi.Call) { c.Count = 1200 }, func(c *abi.Call) { c.Function = 7 }} {
		w := newWorld(t, 3, s)
		status := w.all(func(r int) abi.Call {
			b := w.buffer(r, 4*2000, false)
			c := abi.Call{Scenario: abi.Allreduce, Count: 1000, Comm: w.comm, Tag: abi.TagAny, ArithConfig: w.configs[f32],
				Addr: [3]uint64{b.addr, 0, b.addr}}
			if r == 1 {
				change(&c)
			}
			return c
		})
		for r, s := range status {
			if s == 0 {
				t.Errorf("rank %d has heard nothing: %v", r, status)
			}
		}
	}
}

// pair is a send of rank 0 to rank 1, and its receive.
func (w *world) pair(count, recvCount int, sendTag, recvTag uint32) (send, recv abi.Call, in, out buffer) {
	in, out = w.buffer(0, 4*count, false), w.buffer(1, 4*recvCount, false)
	for i := range count {
		put(abi.Float32, in.bytes, i, float64(i))
	}
	send = abi.Call{Scenario: abi.Send, Count: uint32(count), Comm: w.comm, Root: 1, Tag: sendTag,
		ArithConfig: w.configs[f32], Addr: [3]uint64{in.addr}}
	recv = abi.Call{Scenario: abi.Recv, Count: uint32(recvCount), Comm: w.comm, Root: 0, Tag: recvTag,
		ArithConfig: w.configs[f32], Addr: [3]uint64{0, 0, out.addr}}
	return send, recv, in, out
}

// TestTags pairs tags, each of which may be any, eager and by rendezvous.
func TestTags(t *testing.T) {
	for _, count := range []int{10, 1000} {
		for _, tags := range [][2]uint32{{7, 7}, {abi.TagAny, 7}, {7, abi.TagAny}, {abi.TagAny, abi.TagAny}} {
			w := newWorld(t, 2, usual)
			send, recv, in, out := w.pair(count, count, tags[0], tags[1])
			w.must(w.wait(w.callers[1].Start(recv), w.callers[0].Start(send)))
			if !slices.Equal(in.bytes, out.bytes) {
				t.Errorf("tags %v, %d elements: other data", tags, count)
			}
		}
	}
}

// TestWrongTag gives a receive an error whose rank's next message has another tag, and keeps the message.
func TestWrongTag(t *testing.T) {
	w := newWorld(t, 2, usual)
	send, recv, in, out := w.pair(10, 10, 7, 8)
	w.must(w.wait(w.callers[0].Start(send)))
	if s := w.callers[1].Start(recv).Wait(); s != abi.DequeueBufferTagMismatch {
		t.Errorf("a receive of another tag: %v", s)
	}
	recv.Tag = 7
	w.must(w.wait(w.callers[1].Start(recv)))
	if !slices.Equal(in.bytes, out.bytes) {
		t.Error("other data")
	}
}

// TestUnequalCounts demands an error of both sides of a rendezvous, and of the receiver of eager messages.
func TestUnequalCounts(t *testing.T) {
	w := newWorld(t, 2, usual)
	send, recv, _, _ := w.pair(20, 10, 1, 1)
	s := w.wait(w.callers[0].Start(send), w.callers[1].Start(recv))
	if s[0] != 0 || s[1]&abi.DMANotExpectedBTT == 0 {
		t.Errorf("eager: %v", s)
	}
	for _, counts := range [][2]int{{1000, 900}, {900, 1000}} {
		send, recv, _, _ = w.pair(counts[0], counts[1], 1, 1)
		s = w.wait(w.callers[0].Start(send), w.callers[1].Start(recv))
		if s[0]&abi.DMANotExpectedBTT == 0 || s[1]&abi.DMANotExpectedBTT == 0 {
			t.Errorf("rendezvous of %v: %v", counts, s)
		}
	}
}

// TestEverybodySendsFirst needs the retry queue: a send that waits lets the receive behind it begin.
func TestEverybodySendsFirst(t *testing.T) {
	const n, count = 3, 1000
	w := newWorld(t, n, usual)
	var calls []*Call
	outs := make([]buffer, n)
	for r := range n {
		in := w.buffer(r, 4*count, false)
		outs[r] = w.buffer(r, 4*count, false)
		for i := range count {
			put(abi.Float32, in.bytes, i, value(r, 0, i))
		}
		c := abi.Call{Scenario: abi.Send, Count: count, Comm: w.comm, Root: uint32((r + 1) % n), Tag: 3,
			ArithConfig: w.configs[f32], Addr: [3]uint64{in.addr, 0, outs[r].addr}}
		calls = append(calls, w.callers[r].Start(c))
		c.Scenario, c.Root = abi.Recv, uint32((r+n-1)%n)
		calls = append(calls, w.callers[r].Start(c))
	}
	w.must(w.wait(calls...))
	for r := range n {
		for i := range count {
			if x := get(abi.Float32, outs[r].bytes, i); x != value((r+n-1)%n, 0, i) {
				t.Fatalf("rank %d element %d is %v", r, i, x)
			}
		}
	}
}

// TestControllersOverlap runs reductions on two communicators of the same ranks, begun in another order on each rank.
func TestControllersOverlap(t *testing.T) {
	const n, count = 3, 4000
	for _, s := range variants() {
		w := newWorld(t, n, s)
		comms := []uint32{w.comm, w.newComm([]int{0, 1, 2}, 1), w.newComm([]int{2, 0, 1}, 0)}
		var calls []*Call
		outs := make([]buffer, 0, n*len(comms))
		for r := range n {
			for k := range comms {
				in, out := w.buffer(r, 4*count, false), w.buffer(r, 4*count, false)
				for i := range count {
					put(abi.Float32, in.bytes, i, value(r, (k+r)%len(comms), i))
				}
				outs = append(outs, out)
				calls = append(calls, w.engines[r].Controller().Start(abi.Call{Scenario: abi.Allreduce, Count: count,
					Comm: comms[(k+r)%len(comms)], Tag: abi.TagAny, ArithConfig: w.configs[f32],
					Addr: [3]uint64{in.addr, 0, out.addr}}))
			}
		}
		w.must(w.wait(calls...))
		for at, out := range outs {
			r, k := at/len(comms), at%len(comms)
			for i := range count {
				want := 0.0
				for q := range n {
					want += value(q, (k+r)%len(comms), i)
				}
				if x := get(abi.Float32, out.bytes, i); x != want {
					t.Fatalf("%v: rank %d element %d is %v, want %v", s, r, i, x, want)
				}
			}
		}
	}
}

// TestBarrier demands that no rank passes before all have come.
func TestBarrier(t *testing.T) {
	for _, s := range variants() {
		w := newWorld(t, 4, s)
		call := abi.Call{Scenario: abi.Barrier, Comm: w.comm}
		for late := range 4 {
			var early []*Call
			for r := range 4 {
				if r != late {
					early = append(early, w.callers[r].Start(call))
				}
			}
			for r := range 4 {
				switch {
				case r == late:
				case r == 0:
					w.awaitWait(r, abi.RendezvousAddress, late)
				default:
					w.awaitWait(r, abi.RendezvousAddress, 0)
				}
			}
			for _, c := range early {
				select {
				case <-c.Done():
					t.Fatal("a rank has passed before all have come")
				default:
				}
			}
			w.must(w.wait(append(early, w.callers[late].Start(call))...))
		}
	}
}

// TestLocal copies and combines, with either type of each operand.
func TestLocal(t *testing.T) {
	const count = 100
	w := newWorld(t, 1, usual)
	types := abi.Types{Uncompressed: abi.Float32, Compressed: abi.Float16}
	for flags := range abi.CompressionFlags(8) {
		kind := func(f abi.CompressionFlags) abi.DataType {
			if flags&f != 0 {
				return abi.Float16
			}
			return abi.Float32
		}
		a, b, res := w.buffer(0, 4*count, false), w.buffer(0, 4*count, true), w.buffer(0, 4*count, false)
		for i := range count {
			put(kind(abi.Op0Compressed), a.bytes, i, value(0, 0, i))
			put(kind(abi.Op1Compressed), b.bytes, i, value(1, 0, i))
		}
		c := abi.Call{Scenario: abi.Combine, Count: count, ArithConfig: w.configs[types], Compression: flags,
			Host: abi.Op1Host, Addr: [3]uint64{a.addr, b.addr, res.addr}}
		w.must(w.wait(w.callers[0].Start(c)))
		for i := range count {
			if x := get(kind(abi.ResCompressed), res.bytes, i); x != value(0, 0, i)+value(1, 0, i) {
				t.Fatalf("flags %d: sum %d is %v", flags, i, x)
			}
		}
		c.Scenario = abi.Copy
		w.must(w.wait(w.callers[0].Start(c)))
		for i := range count {
			if x := get(kind(abi.ResCompressed), res.bytes, i); x != value(0, 0, i) {
				t.Fatalf("flags %d: copy %d is %v", flags, i, x)
			}
		}
	}
}

// TestStreamPut puts memory into the stream of another rank's kernel, which goes on to memory there.
func TestStreamPut(t *testing.T) {
	w := newWorld(t, 2, usual)
	send, _, in, _ := w.pair(1000, 1, 9, 0)
	send.Stream = abi.ResStream
	w.must(w.wait(w.callers[0].Start(send)))
	got := make([]byte, len(in.bytes))
	if err := w.engines[1].ToKernel(9).Pull(t.Context(), got); err != nil || !slices.Equal(got, in.bytes) {
		t.Fatal("other data", err)
	}
	if seq := w.engines[0].exch.load(w.comm + 4*(abi.CommHead+abi.RankWords+abi.OutboundWord)); seq != 0 {
		t.Errorf("a stream put has taken the number of a message: %d", seq)
	}
	e := New(Config{Loopback: true})
	defer e.Close()
	e.out.push(1, in.bytes)
	if err := e.FromKernel().Pull(t.Context(), got); err != nil || !slices.Equal(got, in.bytes) {
		t.Fatal("no loopback", err)
	}
}

// TestNumbers holds the numbers of messages and the RX descriptors to what went on.
func TestNumbers(t *testing.T) {
	w := newWorld(t, 2, usual)
	send, recv, _, _ := w.pair(600, 600, 5, 5) // three segments
	send.Compression, recv.Compression = abi.Op0Compressed, abi.ResCompressed
	w.must(w.wait(w.callers[0].Start(send)))
	d := w.engines[1].inbox.descriptor(2)
	if d.Status != abi.RXReserved || d.Tag != 5 || d.Len != 2400-2*1024 || d.Src != 0 || d.Seq != 2 {
		t.Errorf("RX buffer 2 is %+v", d)
	}
	w.must(w.wait(w.callers[1].Start(recv)))
	if d := w.engines[1].inbox.descriptor(2); d.Status != abi.RXEnqueued {
		t.Errorf("RX buffer 2 is %+v", d)
	}
	out, in := w.engines[0].communicator(w.comm).Ranks[1].Outbound, w.engines[1].communicator(w.comm).Ranks[0].Inbound
	if out != 3 || in != 3 {
		t.Errorf("numbers are %d and %d", out, in)
	}
}

// TestConfig holds the engine to the errors of its firmware.
func TestConfig(t *testing.T) {
	w := newWorld(t, 1, usual)
	call := func(f abi.ConfigFunction, count uint32) abi.Status {
		s := w.callers[0].Start(abi.Call{Function: uint32(f), Count: count}).Wait()
		if v, _ := w.engines[0].Read(abi.ReturnValue); v != uint32(s) {
			t.Errorf("the return value is %#x after %v", v, s)
		}
		return s
	}
	for _, c := range []struct {
		f     abi.ConfigFunction
		count uint32
		want  abi.Status
	}{{abi.SetMaxEagerSize, 100, 0x10000}, {abi.SetMaxEagerSize, 2048, 0}, {abi.SetMaxRendezvousSize, 2048, 0x20000},
		{abi.SetMaxRendezvousSize, 4096, 0}, {5, 0, 0x4000}, {abi.SetTimeout, 1000000, 0}} {
		if s := call(c.f, c.count); s != c.want {
			t.Errorf("%+v: %#x", c, uint32(s))
		}
	}
	w.engines[0].Write(abi.ConfigReady, 1)
	call(abi.Reset, 0)
	if v, _ := w.engines[0].Read(abi.ConfigReady); v != 0 {
		t.Error("ready after a reset")
	}
	if _, err := w.engines[0].Read(abi.ExchangeSize); err == nil {
		t.Error("a word behind exchange memory")
	}
	if err := w.engines[0].Write(2, 1); err == nil {
		t.Error("a word across two")
	}
}

// TestReset drops what waits, on one side of a rendezvous and of an eager message, and drops calls one by one.
func TestReset(t *testing.T) {
	w := newWorld(t, 2, usual)
	send, recv, _, _ := w.pair(1000, 10, 1, 1)
	first, second := w.callers[0].Start(send), w.callers[0].Start(send)
	waits := w.callers[1].Start(recv)
	w.callers[0].Start(abi.Call{Function: uint32(abi.Reset)}).Wait()
	if s := w.wait(first, second); s[0] != abi.NotReady || s[1] != abi.NotReady {
		t.Errorf("calls that a reset dropped: %v", s)
	}
	eager := recv
	eager.Count = 4
	before, behind := w.callers[1].Start(eager), w.callers[1].Start(eager)
	for _, c := range []*Call{behind, before, waits} { // one that is queued, whatever is before it; and one by rendezvous
		c.Drop()
		if s := w.wait(c); s[0] != abi.NotReady {
			t.Errorf("a call that was dropped: %v", s)
		}
	}
	w.engines[0].Close()
	if s := w.wait(w.callers[0].Start(abi.Call{Scenario: abi.Nop})); s[0] != abi.NotReady {
		t.Errorf("a call of a closed engine: %v", s)
	}
}

// TestErrors holds calls that make no sense to their bits.
func TestErrors(t *testing.T) {
	w := newWorld(t, 2, usual)
	send, _, in, _ := w.pair(10, 10, 1, 1)
	for name, c := range map[string]struct {
		change func(c *abi.Call)
		want   abi.Status
	}{
		"scenario":     {func(c *abi.Call) { c.Scenario = 99 }, abi.CollectiveNotImplemented},
		"root":         {func(c *abi.Call) { c.Root = 2 }, abi.CollectiveNotImplemented},
		"communicator": {func(c *abi.Call) { c.Comm = 0x1F00 }, abi.CollectiveNotImplemented},
		"nowhere":      {func(c *abi.Call) { c.Comm = 1 << 30 }, abi.CollectiveNotImplemented},
		"path":         {func(c *abi.Call) { c.ArithConfig = 3 }, abi.Arith},
		"memory":       {func(c *abi.Call) { c.Addr[0] = 1 << 40 }, abi.DMADecode},
		"end":          {func(c *abi.Call) { c.Addr[0] += 4 }, abi.DMADecode},
		"space":        {func(c *abi.Call) { c.Host = abi.Op0Host }, abi.DMADecode},
		"stream":       {func(c *abi.Call) { c.Stream, c.Count = abi.Op0Stream, 1<<32-1 }, abi.DMASize},
		"function": {func(c *abi.Call) {
			c.Scenario, c.Function, c.Addr[1], c.Addr[2] = abi.Combine, 2, c.Addr[0], c.Addr[0]
		}, abi.Arith},
	} {
		call := send
		c.change(&call)
		if s := w.wait(w.callers[0].Start(call))[0]; s != c.want {
			t.Errorf("%s: %v, want %v", name, s, c.want)
		}
	}
	w.engines[0].Memory.Unmap(in.addr, false)
	if s := w.wait(w.callers[0].Start(send))[0]; s != abi.DMADecode {
		t.Errorf("memory that was taken away: %v", s)
	}
}

// FuzzCall gives engines any words: they give a status or wait, and are closed then.
func FuzzCall(f *testing.F) {
	f.Add(uint32(10), uint32(5), uint32(0x1c8), uint32(1), uint32(0), uint32(0x200), uint32(0xf), uint32(0x303),
		uint64(4096))
	for s := range uint32(16) {
		f.Add(s, uint32(100), uint32(0x1c8), uint32(0), uint32(1), uint32(0x1fc), uint32(0), s%3, uint64(4096))
	}
	f.Fuzz(func(t *testing.T, scenario, count, comm, root, function, path, flags, streams uint32, addr uint64) {
		w := newWorld(t, 2, usual)
		in := w.buffer(0, 1<<12, false)
		words := [abi.CallWords]uint32{scenario, count, comm, root, function, 1, path, flags, streams}
		c := abi.ParseCall(words)
		c.Addr = [3]uint64{addr, in.addr, in.addr}
		call := w.callers[0].Start(c)
		select {
		case <-call.Done():
		case <-time.After(20 * time.Millisecond):
			call.Drop()
		}
		call.Wait()
		if !strings.Contains(call.status.String(), "_") {
			t.Errorf("a status without a name: %v", call.status)
		}
	})
}

// FuzzExchange scribbles into exchange memory before the calls of two engines: they give a status or wait, and are
// closed then.
func FuzzExchange(f *testing.F) {
	word := func(addr, value uint32) []byte {
		return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, addr), value)
	}
	f.Add(word(abi.NumRXBuffers, 1<<31), byte(abi.Send))
	f.Add(word(abi.RXBufferSize, 1), byte(abi.Allreduce))
	f.Add(append(word(0x1c8, 3), word(0x1cc, 9)...), byte(abi.Bcast))
	f.Add(word(0x1c8, 1<<32-1), byte(abi.Gather))
	f.Add(word(abi.SpareBuffers, 1<<32-1), byte(abi.Reduce))
	f.Add(word(abi.GatherFlatMaxFanIn, 0), byte(abi.Gather))
	f.Fuzz(func(t *testing.T, scribble []byte, scenario byte) {
		w := newWorld(t, 2, usual)
		const n = 1000 // more than is eager
		var calls []*Call
		for r := range 2 {
			in, out := w.buffer(r, 8*n, false), w.buffer(r, 8*n, false)
			c := abi.Call{Scenario: abi.Scenario(scenario), Count: n, Comm: w.comm, Root: uint32(1 - r), Tag: 1,
				ArithConfig: w.configs[abi.Types{Uncompressed: abi.Float32, Compressed: abi.Float32}],
				Addr:        [3]uint64{in.addr, in.addr, out.addr}}
			if c.Scenario != abi.Send && c.Scenario != abi.Recv {
				c.Root = 0
			}
			for at := 0; at+8 <= len(scribble); at += 8 {
				w.engines[r].Write(binary.LittleEndian.Uint32(scribble[at:])%abi.ExchangeSize&^3,
					binary.LittleEndian.Uint32(scribble[at+4:]))
			}
			calls = append(calls, w.callers[r].Start(c))
		}
		for _, c := range calls {
			select {
			case <-c.Done():
			case <-time.After(20 * time.Millisecond):
				c.Drop()
			}
			if s := c.Wait(); !strings.Contains(s.String(), "_") {
				t.Errorf("a status without a name: %v", s)
			}
		}
	})
}
