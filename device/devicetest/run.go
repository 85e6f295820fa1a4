package devicetest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
)

// Option changes what the suite does.
type Option func(*suite)

// Patience sets how long a case waits for something that must happen; 30 seconds by default.
func Patience(d time.Duration) Option { return func(s *suite) { s.patience = d } }

// Skip leaves cases out, by name ("Events/Versions") or by group ("Graphs").
func Skip(names ...string) Option { return func(s *suite) { s.skip = append(s.skip, names...) } }

// Programs sets the number of random programs; 200 by default.
func Programs(n int) Option { return func(s *suite) { s.programs = n } }

// SharedMemory says that others use the devices' memory too, so that free memory proves nothing.
func SharedMemory() Option { return func(s *suite) { s.shared = true } }

// Blocked sets how many streams are held back at a time, on a device whose others would wait for more; 40 by default.
func Blocked(streams int) Option { return func(s *suite) { s.blocked = streams } }

type suite struct {
	drv      driver.Driver
	blocked  int
	patience time.Duration
	skip     []string
	programs int
	shared   bool
	image    []byte // of a module
	stuck    string // the case that doesn't end, if there is one
}

func newSuite(drv driver.Driver, opts []Option) *suite {
	s := &suite{drv: drv, blocked: 40, patience: 30 * time.Second, programs: 200}
	for _, o := range opts {
		o(s)
	}
	return s
}

// group is a set of cases about one thing. has reports whether the driver can do it.
type group struct {
	name  string
	iface string // the optional interface; empty: every driver must
	has   func(drv driver.Driver) bool
	cases []testCase
}

type testCase struct {
	name    string
	devices int // needed
	run     func(c *test)
}

func has[T any](drv driver.Driver) bool { _, ok := drv.(T); return ok }

func groups() []group {
	return []group{
		{"Devices", "", nil, deviceCases},
		{"Memory", "", nil, memoryCases},
		{"Copies", "", nil, copyCases},
		{"Streams", "", nil, streamCases},
		{"Errors", "", nil, errorCases},
		{"Events", "", nil, eventCases},
		{"Misuse", "", nil, misuseCases},
		{"Kernels", "driver.HostKernels", has[driver.HostKernels], kernelCases},
		{"CallerRuns", "driver.CallerRuns", has[driver.CallerRuns], callerRunsCases},
		{"Modules", "driver.Modules", has[driver.Modules], moduleCases},
		{"Graphs", "driver.Graphs", has[driver.Graphs], graphCases},
		{"Peers", "driver.Peers", has[driver.Peers], peerCases},
		{"IPC", "driver.IPC", has[driver.IPC], ipcCases},
		{"IPCEvents", "driver.IPCEvents", has[driver.IPCEvents], ipcEventCases()},
		{"Reserver", "driver.Reserver", has[driver.Reserver], reserverCases},
		{"Tracer", "driver.Tracer", has[driver.Tracer], tracerCases},
		{"Math", "driver.Mathematics", has[driver.Mathematics], mathematicsCases},
		{"Programs", "", nil, programCases},
	}
}

// Run tests a driver.
func Run(t *testing.T, drv driver.Driver, opts ...Option) {
	s := newSuite(drv, opts)
	r := s.all(func(name string, f func() Result) Result {
		var res Result
		t.Run(name, func(t *testing.T) {
			switch res = f(); {
			case res.Skipped != "":
				t.Skip(res.Skipped)
			case res.Err != nil:
				t.Error(res.Err)
			}
		})
		return res
	})
	t.Logf("\n%v", r)
}

// Check runs the suite without package testing.
func Check(drv driver.Driver, opts ...Option) *Report {
	return newSuite(drv, opts).all(func(_ string, f func() Result) Result { return f() })
}

// all runs every case by way of do.
func (s *suite) all(do func(name string, f func() Result) Result) *Report {
	r := &Report{}
	r.Devices, _ = s.drv.DeviceCount()
	for _, g := range groups() {
		if g.has != nil && !g.has(s.drv) {
			r.Missing = append(r.Missing, g.iface)
			continue
		}
		for _, tc := range g.cases {
			name := g.name + "/" + tc.name
			res := do(name, func() Result {
				res := Result{Group: g.name, Case: tc.name}
				switch {
				case slices.Contains(s.skip, name) || slices.Contains(s.skip, g.name):
					res.Skipped = "left out on request"
				case g.name == "Modules" && s.image == nil:
					res.Skipped = "no image was given (devicetest.Module)"
				case r.Devices < tc.devices:
					res.Skipped = fmt.Sprintf("needs %d devices", tc.devices)
				case s.stuck != "":
					res.Skipped = s.stuck + " doesn't end"
				default:
					if res.Err = s.watch(tc); errors.Is(res.Err, errStuck) {
						s.stuck = name
					}
				}
				return res
			})
			if res.Case != "" { // else a flag of package testing leaves it out
				r.Results = append(r.Results, res)
			}
		}
	}
	return r
}

// Result is how one case went.
type Result struct {
	Group, Case string
	Skipped     string // why it was left out; empty if it was not
	Err         error
}

// Report is how all went.
type Report struct {
	Devices int
	Results []Result
	Missing []string // optional interfaces that the driver doesn't have
}

// Failed lists the names of the cases that failed.
func (r *Report) Failed() (names []string) {
	for _, res := range r.Results {
		if res.Err != nil {
			names = append(names, res.Group+"/"+res.Case)
		}
	}
	return names
}

func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "conformance of a driver with %d devices\n", r.Devices)
	for i := 0; i < len(r.Results); {
		g, passed, rest := r.Results[i].Group, 0, ""
		for ; i < len(r.Results) && r.Results[i].Group == g; i++ {
			switch res := r.Results[i]; {
			case res.Err != nil:
				rest += fmt.Sprintf("      FAILED  %s: %v\n", res.Case, res.Err)
			case res.Skipped != "":
				rest += fmt.Sprintf("      left out  %s: %s\n", res.Case, res.Skipped)
			default:
				passed++
			}
		}
		fmt.Fprintf(&b, "  %-10s %2d passed\n%s", g, passed, rest)
	}
	for _, m := range r.Missing {
		fmt.Fprintf(&b, "  not implemented: %s\n", m)
	}
	return b.String()
}

// test is a case that runs.
type test struct {
	*suite
	ctx    context.Context
	n      int // devices
	after  []func()
	failed bool
	ipc    bool // events without timing are made for other processes
}

// failure is what a case panics with to end.
type failure struct{ err error }

var errStuck = errors.New("the case doesn't end: a call of the driver waits that must not")

// watch runs a case with a time limit. A case that runs into it can't be cleaned up.
func (s *suite) watch(tc testCase) error {
	ended := make(chan error, 1)
	go func() { ended <- s.run(tc) }()
	late := time.NewTimer(2 * s.patience)
	defer late.Stop()
	select {
	case err := <-ended:
		return err
	case <-late.C:
		return errStuck
	}
}

func (s *suite) run(tc testCase) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.patience)
	defer cancel()
	c := &test{suite: s, ctx: ctx}
	c.n, _ = s.drv.DeviceCount()
	before := c.memory()
	if err := c.protect(func() { tc.run(c) }); err != nil {
		c.failed = true
		err = errors.Join(err, c.cleanup())
		return err
	}
	if err := c.cleanup(); err != nil {
		return fmt.Errorf("giving back what the case used: %w", err)
	}
	if now := c.memory(); !slices.Equal(before, now) {
		return fmt.Errorf("free memory of the devices was %d bytes before, and is %d", before, now)
	}
	return nil
}

// cleanup undoes what the case made, the last first.
func (c *test) cleanup() (err error) {
	for _, f := range slices.Backward(c.after) {
		if e := c.protect(f); e != nil && !c.failed {
			err = errors.Join(err, e)
		}
	}
	return err
}

func (c *test) protect(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			x, ok := r.(failure)
			if !ok {
				panic(r)
			}
			err = x.err
		}
	}()
	f()
	return nil
}

// memory returns the free memory of the devices, nil where that means nothing.
func (c *test) memory() (free []int64) {
	if c.shared {
		return nil
	}
	for i := range c.n {
		if p, err := c.drv.Properties(i); err != nil || p.HostAccess {
			return nil
		}
		f, _, err := c.drv.MemInfo(i)
		if err != nil {
			return nil
		}
		free = append(free, f)
	}
	return free
}

// fail ends the case.
func (c *test) fail(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	// The line of the case, not of a helper: the first that is not in this file.
	for depth := 1; ; depth++ {
		_, file, line, ok := runtime.Caller(depth)
		if !ok {
			break
		}
		if filepath.Base(file) != "run.go" {
			err = fmt.Errorf("%s:%d: %w", filepath.Base(file), line, err)
			break
		}
	}
	panic(failure{err})
}

func (c *test) must(err error) {
	if err != nil {
		c.fail("%w", err)
	}
}

// refused demands an error of a kind.
func (c *test) refused(err error, kind driver.Kind, what string) {
	if err == nil {
		c.fail("%s: accepted, want the error %q", what, kind)
	}
	if !errors.Is(err, kind) {
		c.fail("%s: %w: want the error %q", what, err, kind)
	}
}

func (c *test) malloc(dev, n int) driver.Ptr {
	p, err := c.drv.Malloc(dev, n)
	c.must(err)
	c.after = append(c.after, func() { c.must(c.drv.Free(dev, p)) })
	return p
}

func (c *test) pinned(n int) (driver.Ptr, []byte) {
	p, err := c.drv.MallocHost(n)
	c.must(err)
	c.after = append(c.after, func() { c.must(c.drv.FreeHost(p)) })
	return p, bytesAt(p, n)
}

// bytesAt returns host memory as a slice.
func bytesAt(p driver.Ptr, n int) []byte { return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), n) }

func (c *test) stream(dev int) driver.StreamHandle {
	s, err := c.drv.StreamCreate(dev, 0)
	c.must(err)
	c.after = append(c.after, func() {
		ctx, cancel := context.WithTimeout(context.Background(), c.patience)
		defer cancel()
		if err := c.drv.StreamRecover(ctx, s); err != nil && !errors.Is(err, driver.ErrFailed) && !errors.Is(err,
			driver.ErrUnsupported) {
			c.fail("at the end: %w", err)
		}
		c.must(c.drv.StreamDestroy(s))
	})
	return s
}

func (c *test) event(dev int, timing bool) driver.EventHandle {
	var e driver.EventHandle
	var err error
	if c.ipc && !timing {
		e, err = c.drv.(driver.IPCEvents).IPCEventCreate(dev)
	} else {
		e, err = c.drv.EventCreate(dev, timing)
	}
	c.must(err)
	c.after = append(c.after, func() { c.must(c.drv.EventDestroy(e)) })
	return e
}

func (c *test) sync(s driver.StreamHandle) { c.must(c.drv.StreamSynchronize(c.ctx, s)) }

// hold makes a stream stop at this point of its order until release is called; the end of the case does it if the case
// didn't.
func (c *test) hold(s driver.StreamHandle) (release func()) {
	gate := make(chan struct{})
	release = sync.OnceFunc(func() { close(gate) })
	c.must(c.drv.HostFunc(s, "hold", func() error { <-gate; return nil }))
	c.after = append(c.after, release)
	return release
}

// do enqueues a host function that can't fail.
func (c *test) do(s driver.StreamHandle, f func()) {
	c.must(c.drv.HostFunc(s, "test", func() error { f(); return nil }))
}

// put copies bytes to new device memory.
func (c *test) put(dev int, data []byte) driver.Ptr {
	p := c.malloc(dev, len(data))
	c.write(dev, p, data)
	return p
}

func (c *test) write(dev int, p driver.Ptr, data []byte) {
	h, b := c.pinned(len(data))
	copy(b, data)
	s := c.stream(dev)
	c.must(c.drv.Copy(s, p, h, len(data), driver.HostToDevice))
	c.sync(s)
}

// get copies bytes from device memory.
func (c *test) get(dev int, p driver.Ptr, n int) []byte {
	h, b := c.pinned(n)
	s := c.stream(dev)
	c.must(c.drv.Copy(s, h, p, n, driver.DeviceToHost))
	c.sync(s)
	return slices.Clone(b)
}

// pattern is data that differs at each place and for each seed.
func pattern(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8*13 + seed*31 + 1)
	}
	return b
}

// ordinary returns memory that the driver doesn't know. The case holds it, which keeps it alive and off the stack, from
// where it could move.
func (c *test) ordinary(n int) (driver.Ptr, []byte) {
	b := make([]byte, n)
	c.after = append(c.after, func() { runtime.KeepAlive(b) })
	return driver.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(b)))), b
}
