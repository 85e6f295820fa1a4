package wire

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/accl"
	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/accl/engine"
	"github.com/chorus-comms/chorus/accl/wire/internal/zmtp"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/internal/testutil/nettest"
)

// world starts n emulators and returns their drivers.
func world(t testing.TB, n int, p abi.Protocol, loopback bool, cfg accl.Config) []*accl.Driver {
	t.Helper()
	drivers, _ := emulated(t, n, p, loopback, cfg)
	return drivers
}

// emulated is world, and returns the emulators, too.
func emulated(t testing.TB, n int, p abi.Protocol, loopback bool, cfg accl.Config) ([]*accl.Driver, []*Emulator) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	start, err := nettest.FreePorts(4 * n)
	if err != nil {
		t.Fatal(err)
	}
	emulators, drivers := make([]*Emulator, n), make([]*accl.Driver, n)
	var serving sync.WaitGroup
	t.Cleanup(func() {
		for _, d := range drivers {
			if d != nil {
				d.Close()
			}
		}
		cancel()
		for _, e := range emulators {
			if e != nil {
				e.Close()
			}
		}
		serving.Wait()
	})
	var wg sync.WaitGroup
	errs := make([]error, 2*n)
	for r := range n {
		cfg.Ranks = append(cfg.Ranks, abi.Rank{IP: 0x7F000001, Port: uint32(start + r), Session: uint32(r),
			MaxSegmentSize: 4096})
	}
	for r := range n {
		cfg := cfg
		cfg.Local = r
		wg.Go(func() {
			emulators[r], errs[r] = Listen(ctx, Config{World: n, Rank: r, StartPort: start, Protocol: p, Loopback: loopback,
				Log: quiet})
			if errs[r] == nil {
				serving.Go(func() { emulators[r].Serve(ctx) })
			}
		})
		wg.Go(func() {
			dev, err := Dial(ctx, n, r, start)
			if err == nil {
				drivers[r], err = accl.New(ctx, dev, cfg)
			}
			errs[n+r] = err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return drivers, emulators
}

// awaitSubscriber waits until somebody gets all that a socket publishes: subscriptions aren't confirmed.
func awaitSubscriber(t testing.TB, p *zmtp.Pub) {
	t.Helper()
	testutil.Eventually(t, func() bool { return p.Subscribed("") }, "a peer subscribes to all of %v", p.Addr())
}

func each(t testing.TB, ds []*accl.Driver, f func(ctx context.Context, d *accl.Driver) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for _, d := range ds {
		wg.Go(func() {
			if err := f(ctx, d); err != nil {
				t.Errorf("rank %d: %v", d.Rank(), err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func numbersFrom(d *accl.Driver, count, first int) *accl.Buffer {
	b, err := d.Buffer(count, abi.Float32)
	if err != nil {
		panic(err)
	}
	for i := range count {
		accl.Elements[float32](b)[i] = float32(first + i%500) // float16 holds sums of three
	}
	return b
}

func expect(what string, err error, b *accl.Buffer, of func(i int) int) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	for i, x := range accl.Elements[float32](b) {
		if x != float32(of(i)) {
			return fmt.Errorf("%s: element %d is %v, want %v", what, i, x, of(i))
		}
	}
	return nil
}

// TestWorld makes calls over sockets: of each protocol, of sizes on both sides of what a packet and an eager message
// hold, compressed and not.
func TestWorld(t *testing.T) {
	for _, p := range []abi.Protocol{abi.UDP, abi.TCP, abi.RDMA} {
		t.Run(p.String(), func(t *testing.T) {
			const n = 3
			ds := world(t, n, p, true, accl.Config{RXBufferSize: 4096, MaxEagerSize: 4096})
			for _, wire := range []abi.DataType{abi.None, abi.Float16} {
				for _, count := range []int{6, 1100} {
					each(t, ds, func(ctx context.Context, d *accl.Driver) error {
						me, z := d.Rank(), accl.Compress(wire)
						a, b := numbersFrom(d, count, me), numbersFrom(d, count, 0)
						all, back := numbersFrom(d, n*count, 0), numbersFrom(d, n*count, 0)
						sum := func(i int) int { return 3 + 3*(i%500) }
						var r *accl.Request
						errs := []error{}
						if me == 0 {
							errs = append(errs, d.Send(ctx, a, count, 1, accl.Tag(5), z, accl.Async(&r)), r.Wait(ctx))
						} else if me == 1 {
							errs = append(errs, expect("recv", d.Recv(ctx, b, count, 0, accl.Tag(5), z), b,
								func(i int) int { return i % 500 }))
						}
						return errors.Join(append(errs,
							expect("allreduce", d.Allreduce(ctx, abi.Sum, a, b, count, z), b, sum),
							expect("allgather", d.Allgather(ctx, a, all, count, z), all,
								func(i int) int { return i/count + i%count%500 }),
							expect("bcast", d.Bcast(ctx, b, count, 2, z), b, sum),
							expect("alltoall", d.Alltoall(ctx, all, back, count, z), back,
								func(i int) int { return me + i%count%500 }),
							d.Barrier(ctx))...)
					})
				}
			}
		})
	}
}

// TestKernel puts data into a rank's kernel, and takes some from it, over the sockets of the kernel.
func TestKernel(t *testing.T) {
	ds, emulators := emulated(t, 2, abi.TCP, false, accl.Config{})
	for r, d := range ds {
		awaitSubscriber(t, d.Device().(*Device).toEngine)
		awaitSubscriber(t, emulators[r].toKernel)
	}
	each(t, ds, func(ctx context.Context, d *accl.Driver) error {
		a, b := numbersFrom(d, 1500, d.Rank()), numbersFrom(d, 1500, 0)
		dev, stream := d.Device(), accl.KernelStream(abi.Float32)
		return errors.Join(d.StreamPut(ctx, a, 1500, 1-d.Rank(), 7), dev.Pull(ctx, 7, b.Bytes()),
			expect("put", nil, b, func(i int) int { return 1 - d.Rank() + i%500 }),
			dev.Push(ctx, a.Bytes()), expect("from stream", d.Copy(ctx, stream, b, 1500), b,
				func(i int) int { return d.Rank() + i%500 }))
	})
}

// TestDrop drops a call that times out: the engine is reset, and says so.
func TestDrop(t *testing.T) {
	ds := world(t, 2, abi.RDMA, true, accl.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := ds[0].Recv(ctx, numbersFrom(ds[0], 10, 0), 10, 1)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a receive in vain: %v", err)
	}
	if err := ds[0].Nop(t.Context()); err != nil {
		t.Errorf("the engine does nothing any more: %v", err)
	}
}

var quiet = slog.New(slog.DiscardHandler)

// call is one of the examples.
var call = abi.Call{Scenario: abi.Recv, Count: 16, Comm: 0x1c8, Root: 1, Tag: 5, ArithConfig: 0x248, Compression: 8,
	Stream: abi.ResStream, Host: abi.ResHost, Addr: [3]uint64{0, 0, 0x1_0000_3000}}

// TestDialogue holds commands, answers and packets to testdata.
func TestDialogue(t *testing.T) {
	var b strings.Builder
	e := &Emulator{engine: engine.New(engine.Config{Network: engine.NewNetwork().Port(0)})}
	e.engine.Memory.MapAt(0, make([]byte, 1<<16), false)
	for i := range e.callers {
		e.callers[i].Controller = e.engine.Controller()
	}
	e.cfg.Log = quiet
	defer e.engine.Close()
	say := func(text []byte) { fmt.Fprintf(&b, "%s\n  %s\n", text, e.answer(text)) }
	for _, c := range []command{{Type: readRegister, Addr: abi.HardwareID}, {Type: writeRegister, Addr: 0x1c8, Value: 7},
		{Type: readRegister, Addr: 0x1c8}, {Type: readRegister, Addr: 0x2000}, {Type: writeRegister, Addr: 0x2000},
		{Type: allocMemory, Addr: 0x1000, Len: 4096}, {Type: writeMemory, Addr: 0x1000, Data: []byte{0, 127, 128, 255}},
		{Type: readMemory, Addr: 0x1000, Len: 5}, {Type: readMemory, Addr: 0x1000}, {Type: readMemory, Addr: 0x2000, Len: 1},
		{Type: readMemory, Addr: 0, Len: 1, Host: true}, {Type: startCall, Ctrl: 1, Call: abi.Call{Scenario: abi.Nop}},
		{Type: waitCall, Ctrl: 1}, {Type: waitCall, Ctrl: 1}, {Type: startCall, Ctrl: 2, Call: call},
		{Type: startCall, Ctrl: 3}, {Type: waitCall, Ctrl: 3}, {Type: 9}} {
		say(c.encode())
	}
	for _, text := range []string{`{"type":0,"addr":-4}`, `{"addr":4}`, `[]`, `{"type":3,"addr":0,"wdata":[256]}`} {
		say([]byte(text))
	}
	h := abi.Header{Count: 24, Tag: 5, Src: 1, Seq: 2, Dst: 3}
	data := []byte("0123456789abcdefghijklmn")
	for _, p := range []abi.Protocol{abi.UDP, abi.TCP, abi.RDMA} {
		fmt.Fprintf(&b, "\n%v: an eager message of 24 bytes\n", p)
		for _, x := range packets(p, &h, data) {
			b.WriteString(hex.Dump(x))
		}
	}
	b.WriteString("\nan address, and what is written there\n")
	notice := abi.Header{Count: 6, Tag: abi.TagAny, Src: 1, Dst: 3, MsgType: abi.RendezvousAddress, Host: true,
		Addr: 0x3000}
	for _, x := range append(packets(abi.RDMA, &notice, nil), writes(0x3000, true, 3, data)...) {
		b.WriteString(hex.Dump(x))
	}
	const path = "testdata/dialogue.txt"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		os.WriteFile(path, []byte(b.String()), 0o644)
	}
	want, err := os.ReadFile(path)
	if err != nil || b.String() != string(want) {
		t.Errorf("%s is another one (UPDATE_GOLDEN=1 writes it): %v\n%s", path, err, b.String())
	}
}

// TestSizes holds packets to the sizes that ACCL's emulator has.
func TestSizes(t *testing.T) {
	for _, x := range []struct {
		p     abi.Protocol
		bytes int
		want  []int
	}{{abi.UDP, 24, []int{128}}, {abi.TCP, 24, []int{88}}, {abi.RDMA, 24, []int{152}}, {abi.UDP, 4032, []int{4096}},
		{abi.TCP, 4033, []int{4096, 1}}, {abi.UDP, 4033, []int{4096, 64}}, {abi.RDMA, 4096, []int{4160, 128}}} {
		var got []int
		for _, b := range packets(x.p, &abi.Header{Count: uint32(x.bytes)}, make([]byte, x.bytes)) {
			got = append(got, len(b))
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%v: %d bytes go in packets of %v, want %v", x.p, x.bytes, got, x.want)
		}
	}
}

// TestAssembler takes messages apart and puts them together.
func TestAssembler(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, p := range []abi.Protocol{abi.UDP, abi.TCP, abi.RDMA} {
		a := assembler{protocol: p}
		for range 200 {
			data := make([]byte, []int{rng.IntN(200), rng.IntN(20_000)}[rng.IntN(2)])
			for i := range data {
				data[i] = byte(rng.Uint32())
			}
			h := abi.Header{Count: uint32(len(data)), Tag: rng.Uint32(), Seq: rng.Uint32()}
			all := packets(p, &h, data)
			for i, b := range all {
				got, err := a.take(b)
				if err != nil || (got.message != nil) != (i == len(all)-1) {
					t.Fatalf("%v: packet %d of %d: %+v, %v", p, i, len(all), got, err)
				}
				if got.message != nil && (*got.message != h || !bytes.Equal(got.data, data)) {
					t.Fatalf("%v: %+v becomes %+v", p, h, got.message)
				}
			}
		}
	}
	memory := make([]byte, 10_000)
	a := assembler{protocol: abi.RDMA}
	for _, b := range writes(100, false, 0, bytes.Repeat([]byte("x"), 9000)) {
		got, err := a.take(b)
		if err != nil || !got.write {
			t.Fatal(got, err)
		}
		copy(memory[got.addr:], got.data)
	}
	if n := bytes.Count(memory, []byte("x")); n != 9000 || memory[99] != 0 || memory[9100] != 0 {
		t.Errorf("%d bytes are written", n)
	}
}

// TestSigned reads what ACCL's emulator prints of bytes.
func TestSigned(t *testing.T) {
	r, err := parseReply([]byte("{\n\t\"rdata\" : \n\t[\n\t\t-128,\n\t\t-1,\n\t\t0,\n\t\t127\n\t],\n\t" +
		"\"status\" : 0\n}\n"))
	if err != nil || !bytes.Equal(r.Data, []byte{128, 255, 0, 127}) {
		t.Error(r, err)
	}
}

// FuzzParse gives the parsers any bytes.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"type":5,"ctrl_id":0,"scenario":255}`))
	f.Add([]byte(`{"rdata":[-1,2,255],"status":0}`))
	f.Add(bytes.Repeat([]byte{1}, 200))
	f.Add(packets(abi.RDMA, &abi.Header{Count: 3}, []byte("abc"))[0])
	e := &Emulator{engine: engine.New(engine.Config{Network: engine.NewNetwork().Port(0)})}
	for i := range e.callers {
		e.callers[i].Controller = e.engine.Controller()
	}
	e.cfg.Log = quiet
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := parseReply(e.answer(b)); err != nil {
			t.Errorf("the answer to %q: %v", b, err)
		}
		if c, err := parseCommand(b); err == nil {
			if again, err := parseCommand(c.encode()); err != nil || c.Type == startCall && again.Call != c.Call {
				t.Errorf("%q becomes %+v; %v", b, again, err)
			}
		}
		parseReply(b)
		for _, p := range []abi.Protocol{abi.UDP, abi.TCP, abi.RDMA} {
			from := []assembler{{protocol: p}}
			deliver(e.engine, from, [][]byte{[]byte("0000"), b[:min(1, len(b))], b})
			for at := 0; at < len(b); at += 100 {
				from[0].take(b[at:])
			}
		}
		parseStream([][]byte{b[:len(b)/2], b[len(b)/2:]})
	})
}
