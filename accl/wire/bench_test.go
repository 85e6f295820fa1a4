package wire

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/accl"
	"github.com/chorus-comms/chorus/accl/abi"
)

// pause is how long ACCL's emulator sleeps after each packet that it has published, whatever else it does.
const pause = 10 * time.Millisecond

// BenchmarkEmulators measures calls of two emulated engines, driver and all, over the emulator's sockets:
//
//	go test ./accl/wire -run '^$' -bench Emulators -benchtime 200x
//
// It reports the packets that an engine publishes in a second, and the ratio of a call's time to the pauses of ACCL's
// emulator. An engine of ACCL's publishes as many packets, so that its call takes at least those pauses.
func BenchmarkEmulators(b *testing.B) {
	const segment = 4096 // bytes: an RX buffer
	big := make([]byte, segment)
	for _, p := range []abi.Protocol{abi.UDP, abi.TCP, abi.RDMA} {
		perSegment := len(packets(p, &abi.Header{Count: segment}, big))
		perHalf := len(packets(p, &abi.Header{Count: segment / 2}, big[:segment/2]))
		for _, c := range []struct {
			name    string
			count   int // of float32
			packets int // of an engine, in a call
			call    func(ctx context.Context, d *accl.Driver, x, y *accl.Buffer, n int) error
		}{
			{"send", 2, 1, sendOne},
			{"send", 64 << 10, 64 * perSegment, sendOne},
			{"all_reduce", 16, 2, allreduceOne},
			{"all_reduce", 16 << 10, 16 * 2 * perHalf, allreduceOne}, // a half of each segment, twice
		} {
			b.Run(fmt.Sprintf("%s/%v/%d", c.name, p, 4*c.count), func(b *testing.B) {
				ds := world(b, 2, p, true, accl.Config{RXBufferSize: segment, MaxEagerSize: 1 << 20, MaxRendezvousSize: 1<<20 + 1})
				run := func(n int) {
					each(b, ds, func(ctx context.Context, d *accl.Driver) (err error) {
						x, y := numbersFrom(d, c.count, 0), numbersFrom(d, c.count, 0)
						for i := 0; i < n && err == nil; i++ {
							err = c.call(ctx, d, x, y, c.count)
						}
						return err
					})
				}
				run(3)
				b.ResetTimer()
				run(b.N)
				took := b.Elapsed() / time.Duration(b.N)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(took)/1e3, "us")
				b.ReportMetric(float64(c.packets)/took.Seconds(), "packets/s")
				b.ReportMetric(float64(c.packets)*float64(pause)/float64(took), "of-accl")
			})
		}
	}
}

// sendOne sends, with operands and results on the engines alone.
func sendOne(ctx context.Context, d *accl.Driver, x, _ *accl.Buffer, n int) error {
	if d.Rank() == 0 {
		return d.Send(ctx, x, n, 1, accl.FromDevice())
	}
	return d.Recv(ctx, x, n, 0, accl.ToDevice())
}

func allreduceOne(ctx context.Context, d *accl.Driver, x, y *accl.Buffer, n int) error {
	return d.Allreduce(ctx, abi.Sum, x, y, n, accl.FromDevice(), accl.ToDevice())
}
