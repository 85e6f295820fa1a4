package opencl

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/base"
	"github.com/chorus-comms/chorus/device/internal/outcome"
	"github.com/chorus-comms/chorus/device/internal/plans"
	"github.com/chorus-comms/chorus/device/internal/traces"
	"github.com/chorus-comms/chorus/device/opencl/abi"
)

type front = base.Front[*stream, *event, *exec, *graph]

// Driver is the devices of all libraries of the machine.
type Driver struct {
	base.Devices
	front
	devs     []*dev
	memory   base.Allocations[*allocation]
	deferred base.Frees[*dev, *ticket]

	modules *base.Modules[*module, *kernel]

	trace     traces.Slot
	capturing sync.Mutex // guards captures and membership in them

	blast     func() (*blast, error) // opens CLBlast at the first call
	blastOpen atomic.Bool
	fft       func() (*fft, error) // opens clFFT at the first call
	fftOpen   atomic.Bool
}

const name = "opencl"

var (
	_ driver.Driver      = (*Driver)(nil)
	_ driver.Closer      = (*Driver)(nil)
	_ driver.Modules     = (*Driver)(nil)
	_ driver.Graphs      = (*Driver)(nil)
	_ driver.Peers       = (*Driver)(nil)
	_ driver.Elements    = (*Driver)(nil)
	_ driver.Mathematics = (*Driver)(nil)
	_ driver.PlanCaches  = (*Driver)(nil)
	_ driver.Tracer      = (*Driver)(nil)
	_ driver.HostKernels = hosted{}
	_ driver.CallerRuns  = hosted{}
)

func init() {
	device.RegisterLoader(name, func() (driver.Driver, error) {
		libraries, err := Load()
		if err != nil {
			return nil, err
		}
		c, err := config.Load(nil)
		if err != nil {
			return nil, driver.Errorf(driver.ErrInvalidArgument, name, "", "%w", err)
		}
		return New(libraries, Options{Buffers: !c.OpenCLSharedMemory})
	})
}

// Options are what the environment decides, and stand-ins for tests.
type Options struct {
	Buffers bool         // do without shared virtual memory: CHORUS_OPENCL_SHARED_MEMORY=false
	CLBlast *abi.CLBlast // a stand-in
	CLFFT   *abi.CLFFT   // likewise

	// CommandBuffers replays graphs by cl_khr_command_buffer on processors, too. Where that was measured, with Intel's
	// runtime, it takes 1.2 to 1.9 times as long as the launches one by one.
	CommandBuffers bool
}

// New makes a driver of the devices of libraries, of which there must be one: GPUs and accelerators first, processors
// last. It implements [driver.HostKernels] too if the processor can touch the memory of all of them, and [driver.IPC]
// if other processes can.
func New(libraries []*Library, o Options) (driver.Driver, error) {
	numbers := &base.Numbers{Driver: name}
	d := &Driver{blast: sync.OnceValues(loadBlast), fft: sync.OnceValues(loadFFT),
		modules: base.NewModules[*module, *kernel](numbers)}
	d.front.Set(numbers)
	if o.CLBlast != nil {
		d.blast = func() (*blast, error) { return suppliedBlast(*o.CLBlast) }
	}
	if o.CLFFT != nil {
		d.fft = sync.OnceValues(func() (*fft, error) { return suppliedFFT(*o.CLFFT) })
	}
	var unfit []string
	for _, l := range libraries {
		for _, p := range l.platforms {
			s := &space{Library: l, platform: p}
			for _, id := range l.deviceIDs(p) {
				b := &dev{Library: l, d: d, space: s, id: id, streams: map[*stream]bool{}}
				b.transforms.plans = plans.New[fftKey](plans.Default, b.dropPlan)
				if err := b.identify(o); err != nil {
					unfit = append(unfit, err.Error())
					continue
				}
				d.devs = append(d.devs, b)
			}
		}
	}
	if len(d.devs) == 0 {
		return nil, driver.Errorf(driver.ErrNoDevice, name, "", "%v: no device that can be used; %s", libraries,
			strings.Join(unfit, "; "))
	}
	slices.SortStableFunc(d.devs, func(a, b *dev) int { return int(a.kind&abi.DeviceCPU) - int(b.kind&abi.DeviceCPU) })
	touchable, mappable := true, true
	var devices []*base.Device
	for i, b := range d.devs {
		b.Index, b.Name = i, fmt.Sprintf("%s:%d", name, i)
		b.space.devs = append(b.space.devs, b)
		if b.Props.UUID == [16]byte{} {
			copy(b.Props.UUID[:], name)
			binary.BigEndian.PutUint32(b.Props.UUID[12:], uint32(i))
		}
		devices = append(devices, &b.Device)
		touchable, mappable = touchable && b.hostAccess(), mappable && b.maps()
	}
	d.Devices.Set(name, devices)
	switch {
	case mappable:
		return mapped{hosted{d}}, nil
	case touchable:
		return hosted{d}, nil
	}
	return d, nil
}

// deviceIDs are a platform's; none if it has none now.
func (l *Library) deviceIDs(p abi.Platform) []abi.Device {
	n := new(uint32)
	if l.DeviceIDs(p, abi.AllDevices, 0, nil, n) != abi.Success || *n == 0 {
		return nil
	}
	ids := make([]abi.Device, *n)
	if l.DeviceIDs(p, abi.AllDevices, *n, &ids[0], nil) != abi.Success {
		return nil
	}
	return ids
}

// dev is a device that is going to be used.
func (d *Driver) dev(op string, i int) (*dev, error) {
	if err := d.Knows(op, i); err != nil {
		return nil, err
	}
	b := d.devs[i]
	if err := b.space.open(); err != nil {
		return nil, err
	}
	return b, b.Broken()
}

// Library is what a device's functions are from, with its version and place.
func (d *Driver) Library(dev int) string { return d.devs[dev].Library.String() }

// Synchronize is [driver.Driver].Synchronize.
func (d *Driver) Synchronize(ctx context.Context, dev int) error {
	const op = "synchronize"
	b, err := d.dev(op, dev)
	if err != nil {
		return err
	}
	type wait struct {
		s *stream
		t *ticket
		f *outcome.Result
	}
	var waits []wait
	for _, s := range b.all() {
		s.Lock()
		err := s.unlessCaptured(op)
		if err == nil {
			var t *ticket
			if t, err = s.point(op); err == nil {
				waits = append(waits, wait{s, t, s.outcome})
			}
		}
		s.Unlock()
		if err != nil {
			return err
		}
	}
	for _, w := range waits {
		if err := w.t.await(ctx, op, w.s.doing); err != nil {
			return err
		}
		w.s.rested()
	}
	d.deferred.Reap(b)
	for _, w := range waits {
		if err := w.s.carried(w.f); err != nil {
			return err
		}
	}
	return b.Broken()
}

// Close gives the contexts back. Nothing may be used any more, and no work may be under way.
func (d *Driver) Close() error {
	for _, b := range d.devs {
		if b.space.h == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second) // for what ends: unmapping, for example
		err := b.Await(ctx, "close", func() (bool, error) { return len(b.Pending()) == 0, nil },
			func() string { return "it has had work" })
		cancel()
		if err != nil {
			return driver.Errorf(driver.ErrNotReady, b.Name, "close", "%w", err)
		}
		d.deferred.Reap(b)
	}
	for _, m := range d.modules.All() {
		_ = d.ModuleUnload(m)
	}
	if d.blastOpen.Load() { // it holds contexts by what it has compiled
		if x, err := d.blast(); err == nil {
			x.ClearCache()
		}
	}
	d.closeFFT()
	for _, b := range d.devs {
		b.apart.Close()
		b.space.close()
	}
	return nil
}
