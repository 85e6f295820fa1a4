package comm_test

import (
	"context"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// BenchmarkCall is what a collective of 8 bytes costs its caller in a world of one, in each form of a call: what this
// package adds to the backend. A device's collective that runs inline is one, too.
func BenchmarkCall(b *testing.B) {
	ctx := context.Background()
	cs := open(b, 1, func(int) []comm.NewOption { return nil })
	host := cs[0]
	on := open(b, 1, func(int) []comm.NewOption { return []comm.NewOption{comm.WithDevice("accinte:0")} })[0]
	b.Cleanup(func() { host.Finalize(ctx); on.Finalize(ctx) })
	x := tensor.Must(host.Zeros(dtype.Float32, 2))
	y := tensor.Must(on.Zeros(dtype.Float32, 2))
	s, err := y.On().CurrentStream(ctx)
	if err != nil {
		b.Fatal(err)
	}
	sctx := device.WithStream(ctx, s)
	op := comm.Op{Ctx: ctx, Kind: backend.AllReduce, In: x, Out: x, Reduce: comm.Sum}
	gather := comm.Op{Ctx: ctx, Kind: backend.AllGatherSingle, In: x, Out: tensor.Must(host.Zeros(dtype.Float32, 2))}
	onOp := comm.Op{Ctx: ctx, Kind: backend.AllReduce, In: y, Out: y, Reduce: comm.Sum, Stream: s}
	for _, form := range []struct {
		name string
		run  func() error
	}{
		{"all_reduce", func() error { return host.AllReduce(ctx, x, comm.Sum) }},
		{"all_reduce/timeout", func() error { return host.AllReduce(ctx, x, comm.Sum, comm.Timeout(time.Minute)) }},
		{"in_turns", func() error { // what the flight recorder describes anew each time
			if err := host.AllReduce(ctx, x, comm.Sum); err != nil {
				return err
			}
			return host.Broadcast(ctx, x, 0)
		}},
		{"barrier", func() error { return host.Barrier(ctx) }},
		{"reduce", func() error { return host.Reduce(ctx, x, 0, comm.Sum) }},
		{"all_gather_single", func() error { return host.AllGatherSingle(ctx, gather.Out, x) }},
		{"submit/all_reduce", func() error { return host.Submit(&op, nil) }},
		{"submit/all_gather_single", func() error { return host.Submit(&gather, nil) }},
		{"async", func() error {
			var w comm.Work
			if err := host.AllReduce(ctx, x, comm.Sum, comm.Async(&w)); err != nil {
				return err
			}
			return w.Wait(ctx)
		}},
		{"send_recv", func() error {
			if err := host.Send(ctx, x, 0); err != nil {
				return err
			}
			return host.Recv(ctx, gather.Out, 0)
		}},
		{"device/all_reduce", func() error { return on.AllReduce(sctx, y, comm.Sum) }},
		{"device/submit", func() error { return on.Submit(&onOp, nil) }},
		{"device/host_tensor", func() error { return on.AllReduce(ctx, x, comm.Sum) }},
		{"device/async", func() error {
			var w comm.Work
			if err := on.AllReduce(sctx, y, comm.Sum, comm.Async(&w)); err != nil {
				return err
			}
			return w.Synchronize(ctx)
		}},
	} {
		b.Run(form.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := form.run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
