package accl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/accl/abi"
)

// recorder writes down what is said to a device.
type recorder struct {
	Device
	lines []string
}

func (r *recorder) Read(addr uint32) (uint32, error) {
	v, err := r.Device.Read(addr)
	r.lines = append(r.lines, fmt.Sprintf("read  0x%04x is %#x", addr, v))
	return v, err
}

func (r *recorder) Write(addr, value uint32) error {
	r.lines = append(r.lines, fmt.Sprintf("write 0x%04x    %#x", addr, value))
	return r.Device.Write(addr, value)
}

func (r *recorder) Queue() Queue { return recordingQueue{r, r.Device.Queue()} }

type recordingQueue struct {
	*recorder
	queue Queue
}

func (q recordingQueue) Start(c abi.Call) (Handle, error) {
	q.lines = append(q.lines, fmt.Sprintf("call  %v %x", c.Scenario, c.Words()))
	return q.queue.Start(c)
}

// TestDialogue holds what the driver says to an engine, and exchange memory behind it, to testdata.
func TestDialogue(t *testing.T) {
	devs, ranks := devices(2, abi.TCP)
	r := &recorder{Device: devs[0]}
	devs[0] = r
	ds := drivers(t, devs, Config{Ranks: ranks})
	r.lines = append(r.lines, "", "calls of each kind:")
	each(t, ds, func(ctx context.Context, d *Driver) error {
		a, b := numbers(d, 32, 0), numbers(d, 32, 0, HostOnly())
		half, err := d.Buffer(32, abi.Float16)
		other := 1 - d.Rank()
		return errors.Join(err, d.Nop(ctx), d.Copy(ctx, a, b, 16), d.Combine(ctx, abi.Max, a, b, half, 16),
			d.Send(ctx, a, 16, other, Tag(5)), d.Recv(ctx, b, 16, other, Tag(5)),
			d.StreamPut(ctx, a, 16, other, 9), d.Bcast(ctx, a, 16, 1), d.Scatter(ctx, a, b, 16, 1), d.Gather(ctx, a, b, 16, 0),
			d.Reduce(ctx, abi.Sum, a, b, 16, 0), d.Allgather(ctx, a, b, 16), d.Allreduce(ctx, abi.Sum, a, half, 16),
			d.Allreduce(ctx, abi.Sum, a, b, 16, Compress(abi.Float16)), d.ReduceScatter(ctx, abi.Sum, a, b, 16),
			d.Alltoall(ctx, a, b, 16), d.Barrier(ctx), d.SetTimeout(ctx, 77))
	})
	memory, err := ds[0].DumpExchangeMemory()
	r.lines = r.lines[:len(r.lines)-abi.ExchangeSize/4]
	if err != nil {
		t.Fatal(err)
	}
	// The counter of cycles is another one each time.
	at := strings.Index(memory, "0x1fe0:")
	line := strings.Fields(memory[at:])
	line[5] = "cycles.."
	got := strings.Join(r.lines, "\n") + "\n\n" + memory[:at] + strings.Join(line, " ") + "\n"
	const path = "testdata/dialogue.txt"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		os.WriteFile(path, []byte(got), 0o644)
	}
	want, err2 := os.ReadFile(path)
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is another one (UPDATE_GOLDEN=1 writes it):\n%s", path, got)
	}
}

// TestCalls makes every collective on memory that is the engine's and on memory that isn't, eager and by rendezvous,
// with the wire compressed and not.
func TestCalls(t *testing.T) {
	for _, p := range []abi.Protocol{abi.UDP, abi.RDMA} {
		for _, count := range []int{16, 600} {
			for _, away := range []bool{false, true} {
				for _, wire := range []abi.DataType{abi.None, abi.Float16} {
					t.Run(fmt.Sprintf("%v/%d/apart=%v/%v", p, count, away, wire), func(t *testing.T) {
						devs, ranks := devices(3, p)
						for r := range devs {
							if away {
								devs[r] = &apart{Device: devs[r]}
							}
						}
						ds := drivers(t, devs, Config{Ranks: ranks})
						each(t, ds, func(ctx context.Context, d *Driver) error { return calls(ctx, d, count, wire) })
					})
				}
			}
		}
	}
}

// calls makes them on one of three ranks. Numbers are exact in float16.
func calls(ctx context.Context, d *Driver, n int, wire abi.DataType) error {
	me, z := d.Rank(), Compress(wire)
	a, b := numbers(d, n, me), numbers(d, n, -1)
	all, in := numbers(d, 3*n, -1, HostOnly()), numbers(d, 3*n, me)
	next, last := (me+1)%3, (me+2)%3
	var send *Request
	step := func(name string, err error, b *Buffer, of func(i int) float32) error {
		if err == nil && b != nil {
			err = expect(b, of)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return err
	}
	f := func(x int) float32 { return float32(x) }
	for _, err := range []error{
		step("send", d.Send(ctx, a, n, next, Tag(4), z, Async(&send)), nil, nil),
		step("recv", d.Recv(ctx, b, n, last, Tag(4), z), b, func(i int) float32 { return f(last + i) }),
		step("sent", send.Wait(ctx), nil, nil),
		step("copy", d.Copy(ctx, a, b, n), b, func(i int) float32 { return f(me + i) }),
		step("combine", d.Combine(ctx, abi.Sum, a, b, b, n), b, func(i int) float32 { return f(2 * (me + i)) }),
		step("bcast", d.Bcast(ctx, b, n, 1, z), b, func(i int) float32 { return f(2 * (1 + i)) }),
		step("scatter", d.Scatter(ctx, in, b, n, 2, z), b, func(i int) float32 { return f(2 + me*n + i) }),
		step("allgather", d.Allgather(ctx, a, all, n, z), all, func(i int) float32 { return f(i/n + i%n) }),
		step("alltoall", d.Alltoall(ctx, in, all, n, z), all, func(i int) float32 { return f(i/n + me*n + i%n) }),
		step("allreduce", d.Allreduce(ctx, abi.Sum, a, b, n, z), b, func(i int) float32 { return f(3 + 3*i) }),
		step("max", d.Allreduce(ctx, abi.Max, a, b, n, z), b, func(i int) float32 { return f(2 + i) }),
		step("slices", d.ReduceScatter(ctx, abi.Max, in, all.Slice(n, 2*n), n, z), all.Slice(n, 2*n),
			func(i int) float32 { return f(2 + me*n + i) }),
		step("barrier", d.Barrier(ctx), nil, nil),
	} {
		if err != nil {
			return err
		}
	}
	root := me == 1
	err := d.Gather(ctx, a, all, n, 1, z)
	if root {
		err = step("gather", err, all, func(i int) float32 { return f(i/n + i%n) })
	}
	if err == nil {
		if err = d.Reduce(ctx, abi.Sum, a, b, n, 1, z); root {
			err = step("reduce", err, b, func(i int) float32 { return f(3 + 3*i) })
		}
	}
	return err
}

// TestRounding sends what float16 hasn't: all ranks get what it has in its place.
func TestRounding(t *testing.T) {
	ds := world(t, 2, abi.RDMA)
	each(t, ds, func(ctx context.Context, d *Driver) error {
		a, b := numbers(d, 4, 2049), numbers(d, 4, 0)
		return errors.Join(d.Allreduce(ctx, abi.Max, a, b, 4, Compress(abi.Float16)),
			expect(b, func(i int) float32 { return []float32{2048, 2050, 2052, 2052}[i] }))
	})
}

// TestSync counts what is copied between host and device.
func TestSync(t *testing.T) {
	devs, ranks := devices(1, abi.UDP)
	dev := &apart{Device: devs[0]}
	d := drivers(t, []Device{dev}, Config{Ranks: ranks})[0]
	a, b := numbers(d, 100, 3), numbers(d, 100, 0)
	for _, c := range []struct {
		opts          []Option
		written, read int
	}{{nil, 200, 200}, {[]Option{FromDevice()}, 0, 200}, {[]Option{FromDevice(), ToDevice()}, 0, 0}} {
		dev.read, dev.written = 0, 0
		if err := d.Copy(t.Context(), a, b, 50, c.opts...); err != nil || dev.written != c.written || dev.read != c.read {
			t.Errorf("%d bytes went to the device and %d came back, want %d and %d; %v", dev.written, dev.read, c.written,
				c.read, err)
		}
	}
	w, err := d.Wrap(make([]byte, 400), abi.Float32)
	if err != nil || w.Shared() {
		t.Fatal(err)
	}
	err = errors.Join(d.Copy(t.Context(), a, w, 100), expect(w, func(i int) float32 { return float32(3 + i) }))
	if err != nil {
		t.Error(err)
	}
}

// TestKernelStreams takes operands from kernels and gives results to them.
func TestKernelStreams(t *testing.T) {
	ds := world(t, 2, abi.RDMA)
	each(t, ds, func(ctx context.Context, d *Driver) error {
		a, b := numbers(d, 600, d.Rank()), numbers(d, 600, 0)
		dev, stream := d.Device(), KernelStream(abi.Float32)
		pull := func(id uint32) error { return dev.Pull(ctx, id, b.Bytes()) }
		push := func() error { return dev.Push(ctx, a.Bytes()) }
		sum := func(i int) float32 { return float32(1 + 2*i) }
		return errors.Join(push(), d.Allreduce(ctx, abi.Sum, stream, stream, 600), pull(abi.TagAny), expect(b, sum),
			push(), d.StreamPut(ctx, stream, 600, 1-d.Rank(), 7), pull(7),
			expect(b, func(i int) float32 { return float32(1 - d.Rank() + i) }), d.Copy(ctx, a, stream, 600, Tag(3)), pull(3),
			expect(b, func(i int) float32 { return float32(d.Rank() + i) }))
	})
}

// TestCommunicators makes calls of parts of the engines, at once with those of all, and uses exchange memory again.
func TestCommunicators(t *testing.T) {
	ds := world(t, 4, abi.RDMA)
	each(t, ds, func(ctx context.Context, d *Driver) error {
		for round := range 40 { // more than fit at once
			pair := []int{d.Rank() &^ 1, d.Rank() | 1}
			var ranks []abi.Rank
			for _, r := range pair {
				m := d.Member(r)
				m.Port += uint32(round)
				ranks = append(ranks, m)
			}
			c, err := d.Communicator(ranks, d.Rank()&1)
			if err != nil {
				return err
			}
			a, b := numbers(d, 500, d.Rank()), numbers(d, 500, 0)
			var r *Request
			err = errors.Join(d.Allreduce(ctx, abi.Sum, a, b, 500, On(c), Async(&r)), d.Barrier(ctx), r.Wait(ctx),
				expect(b, func(i int) float32 { return float32(pair[0] + pair[1] + 2*i) }), a.Free(), b.Free())
			if c.Free(); err != nil {
				return err
			}
		}
		if n := len(d.free); n != 1 {
			return fmt.Errorf("exchange memory is in %d pieces", n)
		}
		many := make([]*Communicator, 100) // which don't fit, but by turns
		for i := range 2 * len(many) {
			var ranks []abi.Rank
			for r := range 4 {
				m := d.Member(r)
				m.Port = uint32(i % len(many))
				ranks = append(ranks, m)
			}
			var err error
			if many[i%len(many)] == nil {
				if many[i], err = d.Communicator(ranks, d.Rank()); err != nil {
					return err
				}
			}
			a, b := numbers(d, 20, d.Rank()), numbers(d, 20, 0)
			if err := errors.Join(d.Allreduce(ctx, abi.Sum, a, b, 20, On(many[i%len(many)])),
				expect(b, func(i int) float32 { return float32(6 + 4*i) })); err != nil {
				return err
			}
		}
		if table, err := many[0].Table(); err != nil || table.Ranks[(d.Rank()+1)%4].Outbound != 2*6 {
			return fmt.Errorf("a communicator that has left exchange memory is %v; %v", table, err)
		}
		_, err := d.Communicator(make([]abi.Rank, 500), 0)
		if !errors.Is(err, errNoExchange) {
			return fmt.Errorf("a communicator of 500: %v", err)
		}
		return nil
	})
}

// TestDeadline has calls time out, after which their buffers are the caller's and other calls go on.
func TestDeadline(t *testing.T) {
	ds := world(t, 2, abi.RDMA)
	d := ds[0]
	for _, n := range []int{10, 1000} {
		a := numbers(d, n, 0)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := d.Recv(ctx, a, n, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a receive in vain: %v", err)
		}
		cancel()
		var first, second *Request
		err := errors.Join(d.Recv(t.Context(), a, n, 1, Async(&first)), d.Copy(t.Context(), a, a, n, After(first),
			Async(&second)))
		if err != nil || first.Test() || second.Test() || first.Duration() != 0 {
			t.Fatal("done", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := second.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait in vain: %v", err)
		}
		cancel()
		first.Drop()
		if err := first.Wait(t.Context()); !errors.Is(err, abi.NotReady) {
			t.Errorf("a call that was dropped: %v", err)
		}
	}
	var r *Request
	a := numbers(d, 1<<20, 0)
	err := errors.Join(d.Copy(t.Context(), a, a.Slice(0, 1<<20), 1<<20, Async(&r)), r.Wait(t.Context()))
	cycles, err2 := d.Device().Read(abi.PerfCounter)
	if err = errors.Join(err, err2); err != nil || !r.Test() {
		t.Error("the engine does nothing any more", err)
	}
	if took := r.Duration(); took <= 0 || took != time.Duration(cycles)*abi.CycleNS {
		t.Errorf("it took %v, and the engine has counted %d cycles", took, cycles)
	}
}

// TestArguments refuses what makes no sense, before the engine sees it.
func TestArguments(t *testing.T) {
	d := world(t, 2, abi.UDP)[0]
	ctx := t.Context()
	a, b := numbers(d, 10, 0), numbers(d, 10, 0)
	i64, err := d.Buffer(10, abi.Int64)
	if err != nil {
		t.Fatal(err)
	}
	var none *Buffer
	for want, err := range map[string]error{
		"takes 11":                     d.Copy(ctx, a, b, 11),
		"-1 elements":                  d.Copy(ctx, a, b, -1),
		"operand 2 is missing":         d.Copy(ctx, a, none, 1),
		"rank 2 of 2":                  d.Send(ctx, a, 1, 2),
		"rank -1 of 2":                 d.Recv(ctx, a, 1, -1),
		"takes 12":                     d.Allgather(ctx, a, b, 6),
		"no way from int64 to float32": d.Copy(ctx, a, i64, 1),
		"no way from float32 to int64": d.Copy(ctx, a, b, 1, Compress(abi.Int64)),
		"can't go over the wire":       d.Copy(ctx, a, i64, 1, Compress(abi.Float16)),
		"operand 1 can't be a stream":  d.Combine(ctx, abi.Sum, a, KernelStream(abi.Float32), b, 1),
		"the last one is 246":          d.StreamPut(ctx, a, 1, 1, 247),
		"ARITH_ERROR":                  d.Combine(ctx, 5, a, b, b, 1),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	var r *Request
	if err := d.Bcast(ctx, a, 0, 1, Async(&r)); err != nil || !r.Test() {
		t.Error("a call of nothing isn't done", err)
	}
	if _, err := New(ctx, d.Device(), Config{}); err == nil {
		t.Error("a driver of no rank")
	}
	if _, err := d.Wrap(make([]byte, 3), abi.Float32); err == nil {
		t.Error("a buffer of three quarters of an element")
	}
}

// TestDumps holds what is shown of RX buffers and communicators to what is there.
func TestDumps(t *testing.T) {
	ds := world(t, 2, abi.TCP)
	if err := ds[0].Send(t.Context(), numbers(ds[0], 2, 1), 2, 1, Tag(0x2a)); err != nil {
		t.Fatal(err)
	}
	rx, err := ds[1].DumpRXBuffers(2, true)
	comm, err2 := ds[0].World().Dump()
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"number of RX buffers: 16", "size of each: 1024", "RX buffer 1: ENQUEUED",
		"RX buffer 0: RESERVED, addr 0x1000, tag 0x2a, len 8, src 0, seq 0", "00 00 80 3f 00 00 00 40",
		"local rank: 0, size: 2", "rank 1: 127.0.0.1:5501, session 1, max segment size 4096, inbound seq 0, outbound seq 1"} {
		if !strings.Contains(rx+comm, want) {
			t.Errorf("%q isn't in\n%s\n%s", want, rx, comm)
		}
	}
	if id, err := ds[0].HWID(); err != nil || id.Protocol() != abi.TCP {
		t.Error(id, err)
	}
}
