package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"

	"github.com/chorus-comms/chorus/accl"
	"github.com/chorus-comms/chorus/accl/abi"
)

// TestTraffic compares the packets between two emulators with testdata/traffic.txt. Its lines were written by hand,
// from the sources of ACCL's emulator: eager messages, one by rendezvous and a barrier, in the protocols that have
// them.
func TestTraffic(t *testing.T) {
	var b strings.Builder
	for _, p := range []abi.Protocol{abi.UDP, abi.TCP, abi.RDMA} {
		ds, emulators := emulated(t, 2, p, true, accl.Config{RXBufferSize: 4096, MaxEagerSize: 4096})
		seen := tap(t, emulators)
		send := func(what string, count int, packets int) {
			each(t, ds, func(ctx context.Context, d *accl.Driver) error {
				x := numbersFrom(d, count, 0)
				if d.Rank() == 0 {
					return d.Send(ctx, x, count, 1, accl.Tag(5))
				}
				return d.Recv(ctx, x, count, 0, accl.Tag(5))
			})
			fmt.Fprintf(&b, "%v: %s\n", p, what)
			write(t, &b, p, seen, packets)
		}
		send("send 24 bytes with tag 5 from rank 0 to rank 1", 6, 1)
		send("send 4096 bytes, of which a packet holds a part", 1024, 2)
		if p != abi.RDMA {
			continue
		}
		send("send 6000 bytes, which is more than is eager", 1500, 4)
		each(t, ds, func(ctx context.Context, d *accl.Driver) error { return d.Barrier(ctx) })
		fmt.Fprintf(&b, "%v: a barrier\n", p)
		write(t, &b, p, seen, 2)
	}
	want, err := os.ReadFile("testdata/traffic.txt")
	if err != nil || b.String() != string(want) {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// tap listens to what all engines publish.
func tap(t *testing.T, emulators []*Emulator) <-chan zmq4.Msg {
	sub := zmq4.NewSub(context.Background())
	t.Cleanup(func() { sub.Close() })
	if err := sub.SetOption(zmq4.OptionSubscribe, ""); err != nil {
		t.Fatal(err)
	}
	for _, e := range emulators {
		if err := sub.Dial("tcp://" + e.net.pub.Addr().String()); err != nil {
			t.Fatal(err)
		}
		awaitSubscriber(t, e.net.pub)
	}
	seen := make(chan zmq4.Msg, 100)
	go func() {
		for {
			m, err := sub.Recv()
			if err != nil {
				return
			}
			seen <- m
		}
	}()
	return seen
}

// field is part of a header: where, how many bytes and what it's called.
type field struct {
	name     string
	at, size int
}

var (
	header = []field{{"count", 0, 4}, {"tag", 4, 4}, {"src", 8, 4}, {"seq", 12, 4}, {"strm", 16, 4}, {"dst", 20, 2},
		{"type", 22, 1}, {"host", 23, 1}, {"vaddr", 24, 8}}
	request = []field{{"vaddr", 0, 8}, {"len", 8, 4}, {"host", 12, 1}, {"qpn", 13, 2}, {"opcode", 15, 1}}
)

// write writes packets down, field by field, those to rank 0 first: what one engine publishes keeps its order, but
// between two publishers a subscriber sees none. Fields of the header are at the places of ACCL's, and not read by
// this package's code.
func write(t *testing.T, b *strings.Builder, p abi.Protocol, seen <-chan zmq4.Msg, packets int) {
	came := make([]zmq4.Msg, packets)
	for i := range came {
		select {
		case came[i] = <-seen:
		case <-time.After(10 * time.Second):
			t.Fatalf("%d of %d packets came after\n%s", i, packets, b)
		}
	}
	slices.SortStableFunc(came, func(x, y zmq4.Msg) int { return bytes.Compare(x.Frames[0], y.Frames[0]) })
	missing := 0 // bytes of a message whose header has come
	for _, m := range came {
		data, err := decodePayload(m.Frames[2])
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(b, "  to %s from %s: %d bytes", m.Frames[0], m.Frames[1], len(data))
		part := func(name string, of []field) {
			fmt.Fprintf(b, "; %s", name)
			for _, f := range of {
				var wide [8]byte
				copy(wide[:], data[f.at:f.at+f.size])
				if v := binary.LittleEndian.Uint64(wide[:]); v != 0 {
					fmt.Fprintf(b, " %s %#x", f.name, v)
				}
			}
			data = data[64:]
		}
		written := p == abi.RDMA && data[15] == opcodeWrite
		if p == abi.RDMA {
			part("request", request)
		}
		if !written && missing == 0 {
			if data[22] == byte(abi.Eager) {
				missing = int(binary.LittleEndian.Uint32(data))
			}
			part("header", header)
		}
		if !written {
			missing = max(0, missing-len(data))
		}
		fmt.Fprintf(b, "; %d of payload\n", len(data))
	}
}
