//go:build linux && (amd64 || arm64)

package gpu_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/device/gpu/gputest"
)

// capturedStream is a stream of others on device 0, adopted, with what they did to have it.
func capturedStream(t *testing.T, d *gpu.Driver, sim *gputest.Library) driver.StreamHandle {
	t.Helper()
	h, err := sim.Driver().StreamCreate(0, 0)
	if err == nil {
		err = d.StreamAdopt(0, h)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.StreamAbandon(h), sim.Driver().StreamDestroy(h)); err != nil {
			t.Error(err)
		}
	})
	return h
}

// PyTorch captures in mode global, in which a query, an allocation or a free by any thread ends the capture, unless the
// thread says otherwise. The driver does so wherever it polls, allocates and frees.
func TestOthersCaptureInModeGlobal(t *testing.T) {
	for _, name := range []string{"cuda", "hip"} {
		t.Run(name, func(t *testing.T) {
			d, sim := open(t, gputest.Options{Name: name})
			h := capturedStream(t, d, sim)
			dev := device.NewRuntime(name, d).Devices()[0]
			s, err := dev.NewStream(0)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			gate := make(chan struct{})
			var e device.Event
			err = errors.Join(s.HostFunc("gate", func() error { <-gate; return nil }), s.Record(&e))
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			if err := sim.BeginCapture(h, abi.CaptureModeGlobal); err != nil {
				t.Fatal(err)
			}
			if done, err := e.Query(); done || err != nil {
				t.Errorf("a query while others capture: %v, %v", done, err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
			defer cancel()
			if err := e.Synchronize(ctx); !errors.Is(err, driver.ErrTimeout) {
				t.Errorf("a wait while others capture: %v", err)
			}
			p, err := d.Malloc(0, 4096)
			if err == nil {
				err = d.Free(0, p)
			}
			if err != nil {
				t.Errorf("memory while others capture: %v", err)
			}
			g, err := sim.EndCapture(h)
			if err != nil {
				t.Fatalf("their capture was ended: %v", err)
			}
			defer sim.Driver().GraphDestroy(g)
			close(gate)
			if err := e.Synchronize(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

// The stand-in is as strict as CUDA: a thread in its usual mode ends the capture of another.
func TestStandInEndsCaptures(t *testing.T) {
	for _, c := range []struct {
		name   string
		mode   int32
		ending bool
	}{{"cuda", abi.CaptureModeGlobal, true}, {"cuda", abi.CaptureModeRelaxed, false}, {"hip", abi.CaptureModeGlobal, true}} {
		sim, err := gputest.New(gputest.Options{Name: c.name})
		if err != nil {
			t.Fatal(err)
		}
		table, theirs := sim.Table(), sim.Driver()
		h, err := theirs.StreamCreate(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		e, err := theirs.EventCreate(0, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := sim.BeginCapture(h, c.mode); err != nil {
			t.Fatal(err)
		}
		r := table.EventQuery(abi.Event(e))
		if g, err := sim.EndCapture(h); (err != nil) != c.ending || (r != abi.Success) != c.ending {
			t.Errorf("%s, mode %d: the query returned %v, and the capture ended with %v", c.name, c.mode, r, err)
		} else if err == nil {
			theirs.GraphDestroy(g)
		}
		if err := errors.Join(theirs.EventDestroy(e), theirs.StreamDestroy(h), sim.Close()); err != nil {
			t.Error(err)
		}
	}
}

// A stream that waits for an event of another owner's capture is in it, until that is over.
func TestJoinsForeignCapture(t *testing.T) {
	d, sim := open(t, gputest.Options{Name: "cuda"})
	h := capturedStream(t, d, sim)
	dev := device.NewRuntime("cuda", d).Devices()[0]
	theirs, own := dev.External(h), must(dev.NewStream(0))
	defer own.Close()
	p := must(d.Malloc(0, 64))
	defer d.Free(0, p)
	var outside, inside device.Event
	defer outside.Close()
	defer inside.Close()
	if err := own.Record(&outside); err != nil {
		t.Fatal(err)
	}
	if err := sim.BeginCapture(h, abi.CaptureModeGlobal); err != nil {
		t.Fatal(err)
	}
	if err := theirs.Wait(&outside); !errors.Is(err, driver.ErrCapture) {
		t.Errorf("waiting for what was recorded outside: %v", err)
	}
	if err := errors.Join(theirs.Record(&inside), own.Wait(&inside), own.Fill(p, 7, 64)); err != nil {
		t.Fatal(err)
	}
	if !own.Capturing() {
		t.Error("a stream that waits for an event of a capture is not in it")
	}
	if err := own.HostFunc("x", func() error { return nil }); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a function in their capture: %v", err)
	}
	if _, err := inside.Query(); !errors.Is(err, driver.ErrCapture) {
		t.Errorf("a query of an event of their capture: %v", err)
	}
	if err := errors.Join(own.Record(&inside), theirs.Wait(&inside)); err != nil {
		t.Fatal(err)
	}
	g, err := sim.EndCapture(h)
	if err != nil {
		t.Fatalf("their capture was ended: %v", err)
	}
	nodes, err := sim.Driver().GraphNodes(g)
	if err != nil || len(nodes) != 1 {
		t.Errorf("their graph has %v, %v", nodes, err)
	}
	sim.Driver().GraphDestroy(g)
	if own.Capturing() {
		t.Error("the stream is in the capture after its end")
	}
	if err := errors.Join(own.Fill(p, 1, 64), own.Synchronize(context.Background())); err != nil {
		t.Errorf("after the capture: %v", err)
	}
}

// Only the GPU that is used gets a context: each takes memory, and another process may have a GPU for itself.
func TestContexts(t *testing.T) {
	d, sim := open(t, gputest.Options{Name: "cuda", Devices: 8, MemoryBytes: 1 << 20})
	devs := device.NewRuntime("cuda", d).Devices()
	if can, err := d.PeerCapable(1, 2); !can || err != nil {
		t.Errorf("PeerCapable = %v, %v", can, err)
	}
	if got := sim.Contexts(); len(devs) != 8 || len(got) > 0 {
		t.Fatalf("%d devices were looked at, and %v have contexts", len(devs), got)
	}
	s := must(devs[3].NewStream(0))
	defer s.Close()
	p := must(d.MallocHost(64))
	defer d.FreeHost(p)
	q := must(sim.Driver().Malloc(5, 64)) // as others have it there
	defer sim.Driver().Free(5, q)
	if at, err := d.Attributes(q); err != nil || at.Device != 5 {
		t.Errorf("Attributes = %+v, %v", at, err)
	}
	if got := sim.Contexts(); !slices.Equal(got, []int{3}) {
		t.Errorf("device 3 was used, and %v have contexts", got)
	}
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}
