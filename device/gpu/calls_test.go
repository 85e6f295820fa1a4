//go:build linux && (amd64 || arm64)

package gpu_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/device/gpu/gputest"
	"github.com/chorus-comms/chorus/device/internal/testmodule"
)

// calls counts the functions of a library that are called, by their names without prefix.
type calls struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *calls) note(call string) abi.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(call, "cu"), "hip"), "_v2")]++
	return abi.Success
}

// of counts those of f.
func (c *calls) of(t *testing.T, f func() error) map[string]int {
	t.Helper()
	c.mu.Lock()
	c.n = map[string]int{}
	c.mu.Unlock()
	if err := f(); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.n)
}

func (c *calls) open(t *testing.T, name string) (*gpu.Driver, *gputest.Library) {
	return open(t, gputest.Options{Name: name, Fail: c.note})
}

func total(n map[string]int) (sum int) {
	for _, k := range n {
		sum += k
	}
	return sum
}

// A kernel is one launch. In HIP, and in CUDA before 12.0, one or two calls make the device current, as for a copy and a
// fill. The library isn't asked about memory that the driver has allocated. A wait records one event, and asks for it.
func TestCalls(t *testing.T) {
	for _, x := range []struct {
		name, family, launch string
		without              []string
		most                 int // of a kernel
	}{
		{"cuda", "cuda", "LaunchKernel", nil, 1},
		{"cuda before 12.0", "cuda", "LaunchKernel", []string{"cuLibraryLoadData"}, 3},
		{"hip", "hip", "ModuleLaunchKernel", nil, 2},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := calls{n: map[string]int{}}
			d, _ := open(t, gputest.Options{Name: x.family, Fail: c.note, Without: x.without})
			f := must(d.ModuleFunction(must(d.ModuleLoad(0, testmodule.Image)), "add"))
			s, p, host := must(d.StreamCreate(0, 0)), must(d.Malloc(0, 1<<10)), must(d.MallocHost(1<<10))
			args := new(driver.Args).Pointer(p).Pointer(p.Add(64)).Pointer(p.Add(128)).Int32(1)
			kernel := func() error { return d.FunctionLaunch(s, f, driver.Launch{Args: args}) }
			ctx := context.Background()
			if err := errors.Join(kernel(), d.StreamSynchronize(ctx, s)); err != nil { // what's made once
				t.Fatal(err)
			}
			for what, x := range map[string]struct {
				f    func() error
				call string
				most int
			}{
				"kernel": {kernel, x.launch, x.most},
				"copy":   {func() error { return d.Copy(s, host, p, 4, driver.DeviceToHost) }, "MemcpyAsync", 3},
				"fill":   {func() error { return d.Fill(s, p, 1, 4) }, "MemsetD8Async", 3},
			} {
				if n := c.of(t, x.f); n[x.call] != 1 || total(n) > x.most {
					t.Errorf("%s: %v", what, n)
				}
			}
			n := c.of(t, func() error { return d.StreamSynchronize(ctx, s) })
			if n["EventRecord"] != 1 || n["ThreadExchangeStreamCaptureMode"] > 2*n["EventQuery"] {
				t.Errorf("wait: %v", n)
			}
			if err := errors.Join(d.StreamDestroy(s), d.Free(0, p), d.FreeHost(host)); err != nil {
				t.Error(err)
			}
		})
	}
}

// A library that wants the context of a launch to be current gets it so.
func TestLaunchWithContext(t *testing.T) {
	var refused bool
	d, _ := open(t, gputest.Options{Name: "cuda", Fail: func(call string) abi.Result {
		if call == "cuLaunchKernel" && !refused {
			refused = true
			return abi.InvalidContext
		}
		return abi.Success
	}})
	f := must(d.ModuleFunction(must(d.ModuleLoad(0, testmodule.Image)), "add"))
	s, p := must(d.StreamCreate(0, 0)), must(d.Malloc(0, 1<<10))
	args := new(driver.Args).Pointer(p).Pointer(p.Add(64)).Pointer(p.Add(128)).Int32(1)
	err := errors.Join(d.FunctionLaunch(s, f, driver.Launch{Args: args}), d.StreamSynchronize(context.Background(), s))
	if err != nil || !refused {
		t.Errorf("%v; refused without: %v", err, refused)
	}
}

// A run of a graph asks once about each address of others' memory, however many nodes use it, and not about the
// driver's own. Memory that was freed in between is noticed.
func TestReplayCalls(t *testing.T) {
	c := calls{n: map[string]int{}}
	d, sim := c.open(t, "cuda")
	theirs := must(sim.Driver().Malloc(0, 1<<10))
	own := must(d.Malloc(0, 1<<10))
	s := must(d.StreamCreate(0, 0))
	err := d.CaptureBegin(s)
	for range 20 {
		err = errors.Join(err, d.Fill(s, theirs, 1, 8), d.Fill(s, theirs, 1, 16), d.Fill(s, own, 1, 16))
	}
	if err != nil {
		t.Fatal(err)
	}
	x := must(d.Instantiate(must(d.CaptureEnd(s))))
	for range 2 {
		n := c.of(t, func() error { return d.GraphLaunch(x, s) })
		if n["GraphLaunch"] != 1 || n["PointerGetAttributes"]+n["PointerGetAttribute"] > 1 {
			t.Errorf("a run: %v", n)
		}
	}
	ctx := context.Background()
	if err := errors.Join(d.StreamSynchronize(ctx, s), d.Free(0, own), d.GraphLaunch(x, s)); err != nil {
		t.Fatal(err)
	}
	if err := d.StreamSynchronize(ctx, s); err == nil {
		t.Error("a run with memory that was freed has no error")
	}
	if err := errors.Join(d.ExecDestroy(x), sim.Driver().Free(0, theirs)); err != nil {
		t.Error(err)
	}
}

// The first copy between two GPUs gives the stream's access to the other one's memory, if it can have it and
// SetPeerAccess hasn't said otherwise. Later copies don't ask again.
func TestPeerCopies(t *testing.T) {
	for _, name := range []string{"cuda", "hip"} {
		for _, x := range []struct{ none, off, want bool }{{false, false, true}, {true, false, false}, {false, true, false}} {
			c := calls{n: map[string]int{}}
			d, _ := open(t, gputest.Options{Name: name, Fail: c.note, NoPeers: x.none})
			s, p, q := must(d.StreamCreate(0, 0)), must(d.Malloc(0, 64)), must(d.Malloc(1, 64))
			if x.off {
				if err := errors.Join(d.SetPeerAccess(0, 1, true), d.SetPeerAccess(0, 1, false)); err != nil {
					t.Fatal(err)
				}
			}
			copies := func() error {
				return errors.Join(d.Copy(s, p, q, 64, driver.CopyDefault), d.Copy(s, q, p, 64, driver.CopyDefault))
			}
			first, later := c.of(t, copies), c.of(t, copies)
			has := must(d.PeerAccess(0, 1))
			enabled := first["CtxEnablePeerAccess"] + first["DeviceEnablePeerAccess"]
			if has != x.want || enabled > 1 || later["DeviceCanAccessPeer"] > 0 || total(later) >= total(first) && !x.off {
				t.Errorf("%s, %+v: access %v; %v, then %v", name, x, has, first, later)
			}
			if err := errors.Join(d.StreamSynchronize(context.Background(), s), d.Free(0, p), d.Free(1, q)); err != nil {
				t.Error(err)
			}
		}
	}
}
