//go:build linux && (amd64 || arm64)

package gpu_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/device/gpu/gputest"
)

// captured is a graph of one function.
func captured(t *testing.T, d *gpu.Driver, f func() error) driver.GraphHandle {
	t.Helper()
	s := must(d.StreamCreate(0, 0))
	t.Cleanup(func() { d.StreamDestroy(s) })
	if err := errors.Join(d.CaptureBegin(s), d.HostFunc(s, "f", f)); err != nil {
		t.Fatal(err)
	}
	g := must(d.CaptureEnd(s))
	t.Cleanup(func() { d.GraphDestroy(g) })
	return g
}

// Two instantiated graphs have the same functions, and so do runs of theirs on two streams: a stream goes on when its
// own run has ended, and carries that run's failure.
func TestSharedFunctions(t *testing.T) {
	for _, name := range []string{"cuda", "hip"} {
		t.Run(name, func(t *testing.T) {
			d, _ := open(t, gputest.Options{Name: name, Parallel: true})
			gate, failed := make(chan struct{}), errors.New("the first run fails")
			var runs atomic.Int32
			g := captured(t, d, func() error {
				if runs.Add(1) == 1 {
					<-gate
					return failed
				}
				return nil
			})
			var streams [2]driver.StreamHandle
			ended := make(chan error, 1)
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			for i := range streams {
				streams[i] = must(d.StreamCreate(0, 0))
				defer d.StreamDestroy(streams[i])
				x := must(d.Instantiate(g))
				defer d.ExecDestroy(x)
				if err := d.GraphLaunch(x, streams[i]); err != nil {
					t.Fatal(err)
				}
			}
			go func() { ended <- d.StreamSynchronize(ctx, streams[0]) }()
			select {
			case err := <-ended:
				t.Fatalf("the stream went on before its function had run: %v", err)
			case <-time.After(50 * time.Millisecond):
			}
			close(gate)
			if err := <-ended; !errors.Is(err, failed) {
				t.Errorf("the stream of the run that failed: %v", err)
			}
			if err := d.StreamSynchronize(ctx, streams[1]); err != nil {
				t.Errorf("the other stream: %v", err)
			}
		})
	}
}

// A graph that other code launches has runs of its functions of which the driver knows nothing: they count for none of
// the stream's.
func TestFunctionsLaunchedByOthers(t *testing.T) {
	sim := must(gputest.New(gputest.Options{Name: "cuda", Parallel: true}))
	table := sim.Table()
	var theirs abi.Exec
	instantiate := table.Instantiate
	table.Instantiate = func(x *abi.Exec, g abi.Graph, flags uint64) abi.Result {
		r := instantiate(x, g, flags)
		theirs = *x
		return r
	}
	d := must(gpu.New(must(gpu.Supply("cuda", "stand-in", table))))
	s := must(d.StreamCreate(0, 0))
	ctx := context.Background()
	if err := errors.Join(d.CaptureBegin(s), d.HostFunc(s, "f", func() error { return nil })); err != nil {
		t.Fatal(err)
	}
	g := must(d.CaptureEnd(s))
	x := must(d.Instantiate(g))
	if r := table.GraphLaunch(theirs, abi.Stream(s)); r != abi.Success {
		t.Fatal(r)
	}
	gate := make(chan struct{})
	err := errors.Join(d.StreamSynchronize(ctx, s), d.HostFunc(s, "waits", func() error { <-gate; return nil }),
		d.HostFunc(s, "behind it", func() error { return nil }))
	if err != nil {
		t.Fatal(err)
	}
	brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := d.StreamSynchronize(brief, s); err == nil || !strings.Contains(err.Error(), "1 functions behind it") {
		t.Errorf("a wait for two functions: %v", err)
	}
	close(gate)
	if err := errors.Join(d.StreamSynchronize(ctx, s), d.ExecDestroy(x), d.GraphDestroy(g), d.StreamDestroy(s), d.Close(),
		sim.Close()); err != nil {
		t.Error(err)
	}
}

// Where a captured wait for a word is none of the graph, functions of graphs run in the library's call back, in order.
func TestWaitsOutsideOfGraphs(t *testing.T) {
	d, _ := open(t, gputest.Options{Name: "hip", NoWaitNodes: true})
	if !d.Waits(0) {
		t.Error("streams can't wait for words")
	}
	var order []int
	s := must(d.StreamCreate(0, 0))
	defer d.StreamDestroy(s)
	err := errors.Join(d.CaptureBegin(s),
		d.HostFunc(s, "slow", func() error { time.Sleep(20 * time.Millisecond); order = append(order, 1); return nil }),
		d.HostFunc(s, "next", func() error { order = append(order, 2); return nil }))
	if err != nil {
		t.Fatal(err)
	}
	g := must(d.CaptureEnd(s))
	defer d.GraphDestroy(g)
	x := must(d.Instantiate(g))
	defer d.ExecDestroy(x)
	if err := errors.Join(d.GraphLaunch(x, s), d.StreamSynchronize(context.Background(), s)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(order, []int{1, 2}) {
		t.Errorf("functions ended in the order %v", order)
	}
}

// A graph with functions of the host can't be launched in another owner's capture, as no such function can be captured.
func TestFunctionsInForeignCapture(t *testing.T) {
	d, sim := open(t, gputest.Options{Name: "cuda"})
	x := must(d.Instantiate(captured(t, d, func() error { return nil })))
	defer d.ExecDestroy(x)
	h := capturedStream(t, d, sim)
	if err := sim.BeginCapture(h, abi.CaptureModeGlobal); err != nil {
		t.Fatal(err)
	}
	if err := d.GraphLaunch(x, h); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("GraphLaunch = %v", err)
	}
	if g, err := sim.EndCapture(h); err != nil {
		t.Errorf("their capture was ended: %v", err)
	} else {
		sim.Driver().GraphDestroy(g)
	}
}
