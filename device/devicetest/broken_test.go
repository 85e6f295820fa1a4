package devicetest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/device/accinte"
	"github.com/chorus-comms/chorus/device/devicetest"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/testmodule"
	"github.com/chorus-comms/chorus/dtype"
)

// plain hides the optional interfaces of a driver, and lets a method be replaced.
type plain struct{ driver.Driver }

// reordering copies on a stream of its own, so that copies don't wait for what is in front of them.
type reordering struct {
	driver.Driver
	side driver.StreamHandle
}

func (d *reordering) Copy(s driver.StreamHandle, dst, src driver.Ptr, n int, kind driver.CopyKind) error {
	if _, err := d.StreamQuery(s); err != nil {
		return err
	}
	return errors.Join(d.Driver.Copy(d.side, dst, src, n, kind), d.Driver.StreamSynchronize(context.Background(), d.side))
}

// forgetful drops the errors of work.
type forgetful struct{ driver.Driver }

func (d *forgetful) StreamSynchronize(ctx context.Context, s driver.StreamHandle) error {
	return forget(d.Driver.StreamSynchronize(ctx, s))
}

func forget(err error) error {
	if errors.Is(err, driver.ErrFailed) {
		return nil
	}
	return err
}

// unversioned waits for what an event stands for when the wait's turn comes.
type unversioned struct{ driver.Driver }

func (d *unversioned) StreamWaitEvent(s driver.StreamHandle, e driver.EventHandle) error {
	if _, err := d.EventQuery(e); err != nil && !errors.Is(err, driver.ErrFailed) {
		return err
	}
	return d.HostFunc(s, "wait", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return d.EventSynchronize(ctx, e)
	})
}

// blocking runs host functions before it returns.
type blocking struct{ driver.Driver }

func (d *blocking) HostFunc(s driver.StreamHandle, name string, f func() error) error {
	return errors.Join(d.Driver.HostFunc(s, name, f), d.Driver.StreamSynchronize(context.Background(), s))
}

// everywhere synchronizes device 0, whichever it is asked for.
type everywhere struct{ driver.Driver }

func (d *everywhere) Synchronize(ctx context.Context, dev int) error {
	if _, err := d.Properties(dev); err != nil {
		return err
	}
	return d.Driver.Synchronize(ctx, 0)
}

// boundless takes any length for good.
type boundless struct{ driver.Driver }

func (d *boundless) Copy(s driver.StreamHandle, dst, src driver.Ptr, n int, kind driver.CopyKind) error {
	for _, p := range []driver.Ptr{dst, src} {
		if at, err := d.Attributes(p); err == nil && at.Type != driver.Unmanaged {
			n = min(n, at.Bytes-int(p-at.Base))
		}
	}
	return d.Driver.Copy(s, dst, src, n, kind)
}

// leaky keeps some of what is freed.
type leaky struct {
	driver.Driver
	mu sync.Mutex
	n  int
}

func (d *leaky) Malloc(dev, bytes int) (driver.Ptr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.n++; d.n%7 == 0 {
		if _, err := d.Driver.Malloc(dev, 1); err != nil {
			return 0, err
		}
	}
	return d.Driver.Malloc(dev, bytes)
}

// hasty replays the nodes of all graphs twice.
type hasty struct {
	driver.Driver
	driver.Graphs
}

func (d *hasty) GraphLaunch(x driver.ExecHandle, s driver.StreamHandle) error {
	return errors.Join(d.Graphs.GraphLaunch(x, s), d.Graphs.GraphLaunch(x, s))
}

// unchecked lets kernels have what they want.
type unchecked struct {
	driver.Driver
	driver.HostKernels
}

func (d *unchecked) Launch(s driver.StreamHandle, name string, ops []driver.Span,
	f func([]unsafe.Pointer) error) error {
	ops = slices.Clone(ops)
	for i, o := range ops {
		if at, err := d.Attributes(o.Ptr); err == nil && at.Type == driver.DeviceMemory {
			ops[i].Bytes = min(o.Bytes, at.Bytes-int(o.Ptr-at.Base))
		}
	}
	return d.HostKernels.Launch(s, name, ops, f)
}

// hurried runs one block of a grid only.
type hurried struct {
	driver.Driver
	driver.Modules
}

func (d *hurried) FunctionLaunch(s driver.StreamHandle, f driver.FunctionHandle, l driver.Launch) error {
	l.Grid.Y, l.Grid.Z = min(l.Grid.Y, 1), min(l.Grid.Z, 1)
	return d.Modules.FunctionLaunch(s, f, l)
}

// multiplier has a library of products: loops of the host. A careless one doesn't check products, and takes what was in
// the result as zeros.
type multiplier struct {
	*accinte.Driver
	careless bool
}

func (d *multiplier) MathFields() []driver.Field { return []driver.Field{driver.GEMMs} }

func (d *multiplier) MathLibrary(dev int, _ driver.Field) (driver.Library, error) {
	_, err := d.Properties(dev)
	return driver.Library{Name: "loops", Types: []dtype.DType{dtype.Float32}}, err
}

func (d *multiplier) MathWork(driver.StreamHandle, driver.Task) (int, error) { return 0, nil }

func (d *multiplier) Compute(s driver.StreamHandle, t driver.Task, _ driver.Ptr) error {
	p := t.(*driver.GEMM)
	if err := p.Check("accinte:0"); err != nil && !d.careless {
		return err
	}
	var spans []driver.Span
	for _, m := range p.Matrices() {
		spans = append(spans, driver.Span{Ptr: m.Ptr, Bytes: 4 * max(1, m.Elements(m.Rows, m.Columns, 1))})
	}
	return d.Launch(s, "multiply", spans, func(v []unsafe.Pointer) error {
		at := func(k int, m driver.Matrix, i, j int) *float32 {
			if m.Transposed {
				i, j = j, i
			}
			return (*float32)(unsafe.Add(v[k], 4*(i*m.Pitch+j)))
		}
		for i := range p.Rows {
			for j := range p.Columns {
				var sum float32
				for k := range p.Depth {
					sum += *at(1, p.A, i, k) * *at(2, p.B, k, j)
				}
				out := at(0, p.Out, i, j)
				before := *out
				if d.careless {
					before = 0
				}
				*out = float32(real(p.Alpha))*sum + float32(real(p.Beta))*before
			}
		}
		return nil
	})
}

// Drivers that break one promise each fail where that promise is tested, and nowhere that has nothing to do with it.
func TestBrokenDrivers(t *testing.T) {
	for _, b := range []struct {
		name    string
		breakIt func(d *accinte.Driver) driver.Driver
		fails   []string // all of these
		passes  []string // none of these groups
	}{
		{"sound", func(d *accinte.Driver) driver.Driver { return plain{d} }, nil,
			[]string{"Devices", "Memory", "Copies", "Streams", "Errors", "Events", "Misuse", "Programs"}},
		{"wrong order", func(d *accinte.Driver) driver.Driver {
			s, err := d.StreamCreate(0, 0)
			if err != nil {
				t.Fatal(err)
			}
			return &reordering{d, s}
		}, []string{"Streams/HostFuncSeesCopies", "Events/Wait", "Programs/Random"}, []string{"Devices", "Errors"}},
		{"lost error", func(d *accinte.Driver) driver.Driver { return &forgetful{d} },
			[]string{"Errors/AsyncError", "Errors/ErrorStopsWork"}, []string{"Devices", "Memory", "Copies", "Streams", "Events",
				"Programs"}},
		{"no event versions", func(d *accinte.Driver) driver.Driver { return &unversioned{d} },
			[]string{"Events/Versions"}, []string{"Devices", "Memory", "Copies", "Streams"}},
		{"not asynchronous", func(d *accinte.Driver) driver.Driver { return &blocking{d} },
			[]string{"Memory/FreeUnderWork"}, []string{"Devices", "Copies", "Errors"}},
		{"wrong device", func(d *accinte.Driver) driver.Driver { return &everywhere{d} },
			[]string{"Streams/SynchronizeNamedDevice"}, []string{"Devices", "Memory", "Copies", "Misuse"}},
		{"no bounds", func(d *accinte.Driver) driver.Driver { return &boundless{d} },
			[]string{"Copies/Bounds"}, []string{"Devices", "Memory", "Streams", "Errors", "Events"}},
		{"leak", func(d *accinte.Driver) driver.Driver { return &leaky{Driver: d} },
			[]string{"Memory/Malloc"}, []string{"Devices", "Events"}},
		{"graphs run twice", func(d *accinte.Driver) driver.Driver { return &hasty{d, d} },
			[]string{"Graphs/Replay", "Graphs/Order"}, []string{"Memory", "Copies", "Streams", "Errors", "Events"}},
		{"unchecked kernels", func(d *accinte.Driver) driver.Driver { return &unchecked{d, d} },
			[]string{"Kernels/Refused"}, []string{"Memory", "Copies", "Streams", "Errors", "Events"}},
		{"part of a grid", func(d *accinte.Driver) driver.Driver { return &hurried{d, d} },
			[]string{"Modules/Grid"}, []string{"Memory", "Copies", "Streams", "Errors", "Events"}},
		{"products", func(d *accinte.Driver) driver.Driver { return &multiplier{d, false} }, nil, []string{"Math", "Memory"}},
		{"wrong products", func(d *accinte.Driver) driver.Driver { return &multiplier{d, true} },
			[]string{"Math/Product", "Math/Refused"}, []string{"Memory", "Copies", "Streams", "Errors", "Events"}},
	} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel() // some wait for their patience to end
			d, err := accinte.New(accinte.Options{MemoryBytes: 64 << 20, Units: 2})
			if err != nil {
				t.Fatal(err)
			}
			// Cases that fail may leave work behind, which the driver must not lose its memory under.
			r := devicetest.Check(b.breakIt(d), devicetest.Patience(2*time.Second), devicetest.Programs(20),
				devicetest.Module(testmodule.Image))
			failed := r.Failed()
			for _, want := range b.fails {
				if !slices.Contains(failed, want) {
					t.Errorf("%s passes", want)
				}
			}
			for _, name := range failed {
				if group, _, _ := strings.Cut(name, "/"); slices.Contains(b.passes, group) {
					t.Errorf("%s fails, which has nothing to do with it", name)
				}
			}
			if t.Failed() || testing.Verbose() {
				t.Logf("\n%v", r)
			}
		})
	}
}

// The report says what is missing.
func TestReport(t *testing.T) {
	d, err := accinte.New(accinte.Options{MemoryBytes: 64 << 20, Devices: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := devicetest.Check(plain{d}, devicetest.Skip("Programs", "Misuse/Events"))
	text := r.String()
	for _, want := range []string{
		"a driver with 1 devices", "not implemented: driver.Graphs", "not implemented: driver.IPC",
		"left out  AcrossDevices: needs 2 devices", "left out  Events: left out on request", "Memory     12 passed",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	if failed := r.Failed(); failed != nil {
		t.Error(failed)
	}
	if t.Failed() {
		t.Log("\n" + text)
	}
}
