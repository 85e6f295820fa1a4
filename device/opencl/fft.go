package opencl

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/plans"
	"github.com/chorus-comms/chorus/device/opencl/abi"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/dl"
)

// fft is clFFT, which the devices of all libraries share.
type fft struct {
	abi.CLFFT
	place string
}

// ffts counts the drivers that use a file of clFFT's, whose state the process has once. The lock is held during calls.
var ffts struct {
	sync.Mutex
	users map[string]int
}

// loadFFT opens clFFT: of the files of CHORUS_FFT_LIBRARY the first that is it, or the one that the dynamic linker
// finds.
func loadFFT() (*fft, error) {
	c, err := config.Load(nil)
	if err != nil {
		return nil, err
	}
	x := &fft{}
	err = dl.Named("CHORUS_FFT_LIBRARY", c.FFTLibrary, abi.CLFFTNames, func(places []string) error {
		opened, err := dl.Source{Name: "clFFT", Candidates: places}.Open()
		if err != nil {
			return err
		}
		x.place = opened.Path()
		_, err = opened.Resolve(&x.CLFFT)
		return err
	})
	if err != nil {
		return nil, err
	}
	return x, x.begin()
}

func suppliedFFT(table abi.CLFFT) (*fft, error) {
	x := &fft{CLFFT: table, place: "stand-in"}
	if _, err := dl.Supplied("clFFT", "unknown", x.place, &x.CLFFT); err != nil {
		return nil, err
	}
	return x, x.begin()
}

// begin starts the library, unless another driver has.
func (x *fft) begin() error {
	ffts.Lock()
	defer ffts.Unlock()
	if ffts.users == nil {
		ffts.users = map[string]int{}
	}
	if ffts.users[x.place] == 0 {
		v := &abi.FFTSetup{}
		r := x.Version(&v.Major, &v.Minor, &v.Patch)
		if r == abi.Success {
			r = x.Setup(v)
		}
		if r != abi.Success {
			return fmt.Errorf("clFFT (%s): clfftSetup: %s (%d)", x.place, r.FFTName(), r)
		}
	}
	ffts.users[x.place]++
	return nil
}

// end gives back what it has compiled, by which it holds contexts.
func (x *fft) end() {
	ffts.Lock()
	defer ffts.Unlock()
	if ffts.users[x.place]--; ffts.users[x.place] == 0 {
		x.Teardown()
	}
}

// fftOf is the library for a device, or why it has none.
func (d *Driver) fftOf(op string, b *dev) (*fft, error) {
	files := func(c *config.Config) string { return c.FFTLibrary }
	if err := b.admits(op, "clFFT", "CHORUS_FFT_LIBRARY", files); err != nil {
		return nil, err
	}
	x, err := d.fft()
	if err != nil {
		return nil, driver.Errorf(driver.ErrUnsupported, b.Name, op, "%w", err)
	}
	d.fftOpen.Store(true)
	return x, nil
}

// transforms are a device's: the library, which is asked for once, and its plans.
type transforms struct {
	once  sync.Once
	fft   *fft
	err   error
	plans *plans.Cache[fftKey, abi.FFTPlan]

	mu      sync.Mutex
	refused map[fftKey]error // of queue 0: what the library can't make a plan for
}

// fftDims is how many dimensions clFFT's transforms have at most.
const fftDims = 3

// fftKey is what a plan is for. Each stream has its own, as a plan has memory for work.
type fftKey struct {
	q               abi.Queue
	kind            driver.FFTKind
	typ             dtype.DType
	dims            [fftDims]driver.FFTDim
	count           int
	inNext, outNext int
	inPlace         bool
}

func (b *dev) ffts(op string) (*fft, error) {
	t := &b.transforms
	t.once.Do(func() { t.fft, t.err = b.d.fftOf(op, b) })
	return t.fft, t.err
}

// dropPlan gives a plan back. Work under way keeps its part of it until that is done.
func (b *dev) dropPlan(p abi.FFTPlan) {
	ffts.Lock()
	defer ffts.Unlock()
	b.transforms.fft.DestroyPlan(dl.Heap(&p))
}

// dropPlans gives those of a stream back, as its queue ends.
func (s *stream) dropPlans() {
	s.b.transforms.plans.Forget(func(k fftKey) bool { return k.q == s.q })
	s.b.transforms.plans.Reap()
}

// closeFFT gives all plans back, and then the library.
func (d *Driver) closeFFT() {
	if !d.fftOpen.Load() {
		return
	}
	for _, b := range d.devs {
		b.transforms.plans.Clear()
	}
	if x, err := d.fft(); err == nil {
		x.end()
	}
}

// FFTPlans is [driver.PlanCaches].FFTPlans.
func (d *Driver) FFTPlans(dev int) (driver.PlanCache, error) {
	if err := d.Knows("plans of transforms", dev); err != nil {
		return nil, err
	}
	return d.devs[dev].transforms.plans, nil
}

// transform is Compute of a transform.
func (d *Driver) transform(h driver.StreamHandle, t *driver.FFT) error {
	const op = "transform"
	s, err := d.stream(op, h)
	if err != nil {
		return err
	}
	b := s.b
	err = s.transform(op, t)
	s.Unlock()
	b.transforms.plans.Reap()
	return err
}

// transform enqueues a transform. The stream is locked.
func (s *stream) transform(op string, t *driver.FFT) error {
	b := s.b
	x, err := b.ffts(op)
	if err != nil {
		return err
	}
	if s.captured() {
		return driver.Errorf(driver.ErrCapture, b.Name, op, "clFFT's work can't be captured")
	}
	if err := t.Check(b.Name, fftDims); err != nil {
		return err
	}
	sides := t.Sides()
	k := fftKey{kind: t.Kind, typ: t.Type, count: t.Count, inNext: sides[0].Apart(t.Count),
		outNext: sides[1].Apart(t.Count), inPlace: t.In == t.Out}
	copy(k.dims[:], t.Dims)
	if err := b.fits(op, &k); err != nil {
		return err
	}
	mems := dl.Heap(&[2]abi.Mem{})
	for i, side := range sides {
		m, parted, err := b.memory(op, &side, t.Count)
		if err != nil {
			return err
		}
		if parted {
			defer b.BufferFree(m) // work that is enqueued keeps it
		}
		mems[i] = m
	}
	tr, err := s.traced(op) // before the queue is passed on
	if err != nil {
		return err
	}
	own := k
	own.q = s.q
	q, direction := dl.Heap(&[1]abi.Queue{s.q}), abi.FFTForward
	if t.Inverse {
		direction = abi.FFTBackward
	}
	return b.transforms.plans.Use(own, func() (abi.FFTPlan, error) { return b.newPlan(op, x, &own, len(t.Dims)) },
		func(p abi.FFTPlan) error {
			ffts.Lock()
			defer ffts.Unlock()
			var failed abi.Result
			c := command{call: "clFFT", kind: driver.ActivityKernel, name: "clFFT"}
			err := s.enqueueIn(tr, op, c, func(e *abi.Event) abi.Result {
				failed = x.Transform(p, direction, 1, &q[0], 0, nil, e, &mems[0], &mems[1], 0)
				if failed.Lost() {
					return failed
				}
				return abi.Success
			})
			if err == nil && failed != abi.Success { // as if the plan had not been made: one may have no kernels
				err = b.refuses(k, b.fftError(op, x, "clfftEnqueueTransform", failed))
			}
			return err
		})
}

// fits refuses what clFFT has no transforms for: sizes with prime factors above 13, and what it has failed at.
func (b *dev) fits(op string, k *fftKey) error {
	for _, d := range k.dims {
		n := d.Size
		for _, f := range []int{2, 3, 5, 7, 11, 13} {
			for n > 0 && n%f == 0 {
				n /= f
			}
		}
		if n > 1 {
			return driver.Errorf(driver.ErrUnsupported, b.Name, op, "clFFT has no transforms of %d elements", d.Size)
		}
	}
	t := &b.transforms
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refused[*k]
}

// refusedAtMost is how many failures to make a plan are remembered.
const refusedAtMost = 1000

// refuses remembers that the library has no plan of a form, unless it was for want of memory.
func (b *dev) refuses(k fftKey, err error) error {
	if !errors.Is(err, driver.ErrUnsupported) {
		return err
	}
	t := &b.transforms
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refused == nil || len(t.refused) >= refusedAtMost {
		t.refused = map[fftKey]error{}
	}
	k.q = 0
	t.refused[k] = err
	return err
}

// memory is a side as clFFT takes it: a buffer that begins there, which is the caller's to free if it's parted.
func (b *dev) memory(op string, side *driver.FFTSide, count int) (m abi.Mem, parted bool, err error) {
	u, err := b.d.side(b, op, side.Name, side.Ptr, side.Bytes(count))
	if err != nil {
		return 0, false, err
	}
	if !u.device() || u.a.b.space != b.space {
		return 0, false, driver.Errorf(driver.ErrUnsupported, b.Name, op, "%s is %v memory, of which there are no buffers",
			side.Name, u.typ)
	}
	if m, err = b.buffer(op, u.a); err != nil || u.offset() == 0 {
		return m, false, err
	}
	if u.offset()%uintptr(b.align) != 0 {
		return 0, false, driver.Errorf(driver.ErrUnsupported, b.Name, op, "%s isn't aligned to %d bytes", side.Name, b.align)
	}
	r := new(abi.Result)
	m = b.BufferPart(m, abi.MemReadWrite, abi.BufferRegion, &[2]uintptr{u.offset(), uintptr(side.Bytes(count))}, r)
	if *r != abi.Success {
		return 0, false, driver.Errorf(driver.ErrUnsupported, b.Name, op, "%w", b.failed("clCreateSubBuffer", *r))
	}
	return m, true, nil
}

// newPlan makes a plan, whose kernels clFFT compiles. Of one that it can't make the error is ErrUnsupported.
func (b *dev) newPlan(op string, x *fft, k *fftKey, dims int) (abi.FFTPlan, error) {
	ffts.Lock()
	defer ffts.Unlock()
	lengths, in, out := dl.Heap(&[fftDims]uintptr{}), dl.Heap(&[fftDims]uintptr{}), dl.Heap(&[fftDims]uintptr{})
	for i := range dims { // the innermost first
		d := k.dims[dims-1-i]
		lengths[i], in[i], out[i] = uintptr(d.Size), uintptr(d.In), uintptr(d.Out)
	}
	layouts := map[driver.FFTKind][2]int32{driver.ComplexToComplex: {abi.FFTComplex, abi.FFTComplex},
		driver.RealToComplex: {abi.FFTReal, abi.FFTHermitian}, driver.ComplexToReal: {abi.FFTHermitian, abi.FFTReal}}[k.kind]
	precision, place := abi.FFTSingle, abi.FFTOutOfPlace
	if k.typ == dtype.Float64 {
		precision = abi.FFTDouble
	}
	if k.inPlace {
		place = abi.FFTInPlace
	}
	n, p, q := int32(dims), new(abi.FFTPlan), dl.Heap(&[1]abi.Queue{k.q})
	for i, step := range []struct {
		call string
		f    func() abi.Result
	}{
		{"clfftCreateDefaultPlan", func() abi.Result { return x.Plan(p, b.space.h, n, &lengths[0]) }},
		{"clfftSetPlanPrecision", func() abi.Result { return x.Precision(*p, precision) }},
		{"clfftSetLayout", func() abi.Result { return x.Layout(*p, layouts[0], layouts[1]) }},
		{"clfftSetResultLocation", func() abi.Result { return x.Place(*p, place) }},
		{"clfftSetPlanBatchSize", func() abi.Result { return x.Batch(*p, uintptr(k.count)) }},
		{"clfftSetPlanInStride", func() abi.Result { return x.InSteps(*p, n, &in[0]) }},
		{"clfftSetPlanOutStride", func() abi.Result { return x.OutSteps(*p, n, &out[0]) }},
		{"clfftSetPlanDistance", func() abi.Result { return x.Distance(*p, uintptr(k.inNext), uintptr(k.outNext)) }},
		{"clfftSetPlanScale", func() abi.Result { return x.Scale(*p, abi.FFTForward, 1) }},
		{"clfftSetPlanScale", func() abi.Result { return x.Scale(*p, abi.FFTBackward, 1) }},
		{"clfftBakePlan", func() abi.Result { return x.Bake(*p, 1, &q[0], 0, 0) }},
	} {
		if r := step.f(); r != abi.Success {
			if i > 0 {
				x.DestroyPlan(p)
			}
			return 0, b.refuses(*k, b.fftError(op, x, step.call, r))
		}
	}
	return *p, nil
}

// fftError is the error of a result, which concerns the transform, unless memory is short.
func (b *dev) fftError(op string, x *fft, call string, r abi.Result) error {
	if r.Lost() {
		return b.result(op, call, r)
	}
	kind := driver.ErrUnsupported
	switch r {
	case abi.MemAllocationFailure, abi.OutOfHostMemory, abi.OutOfResources:
		kind = driver.ErrOutOfMemory
	}
	return driver.Errorf(kind, b.Name, op, "clFFT (%s): %s: %s (%d)", x.place, call,
		strings.TrimPrefix(r.FFTName(), "CL_"), r)
}
