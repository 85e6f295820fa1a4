package gpu

import (
	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/device/internal/plans"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/dl"
)

// fft computes Fourier transforms: cuFFT or hipFFT.
type fft struct{ companion[abi.FFT] }

func newFFT(f *abi.Family, places []string) *fft {
	return &fft{companion[abi.FFT]{name: f.FFT, variable: "CHORUS_FFT_LIBRARY",
		files: func(c *config.Config) string { return c.FFTLibrary }, places: places}}
}

// fftDims is how many dimensions the libraries' transforms have at most.
const fftDims = 3

// fftKey is what a plan is for.
type fftKey struct {
	typ       int32
	rank      int
	n         [fftDims]int64
	in, out   fftSide
	batch     int64
	transform driver.FFTKind
}

// fftSide is how the elements of a side lie.
type fftSide struct {
	embed      [fftDims]int64
	step, next int64
}

// fftPlan is a plan of the library, which a stream has while its work is enqueued.
type fftPlan struct {
	h    abi.FFTPlan
	work int // bytes
}

var fftTypes = map[dtype.DType]map[driver.FFTKind]int32{
	dtype.Float32: {driver.ComplexToComplex: abi.C2C, driver.RealToComplex: abi.R2C, driver.ComplexToReal: abi.C2R},
	dtype.Float64: {driver.ComplexToComplex: abi.Z2Z, driver.RealToComplex: abi.D2Z, driver.ComplexToReal: abi.Z2D}}

// keyOf is the key of a transform; false if the library has no plans of its strides: those of a dimension must be a
// multiple of the next one's.
func keyOf(t *driver.FFT) (k fftKey, ok bool) {
	k = fftKey{typ: fftTypes[t.Type][t.Kind], rank: len(t.Dims), batch: int64(t.Count), transform: t.Kind}
	sides := t.Sides()
	for i, d := range t.Dims {
		k.n[i] = int64(d.Size)
	}
	for i, to := range []*fftSide{&k.in, &k.out} {
		x := &sides[i]
		last := len(x.Sizes) - 1
		to.next, to.step = int64(x.Apart(t.Count)), int64(x.Strides[last])
		if x.Sizes[last] == 1 { // its neighbours don't matter
			to.step = 1
		}
		inner := int(to.step) // of the dimension before
		for d := last; d > 0; d-- {
			outer := x.Strides[d-1]
			if x.Sizes[d-1] == 1 {
				outer = inner * x.Sizes[d]
			}
			if outer%inner != 0 || outer < inner*x.Sizes[d] {
				return k, false
			}
			to.embed[d] = int64(outer / inner)
			inner = outer
		}
		to.embed[0] = int64(x.Sizes[0])
	}
	return k, true
}

// FFTPlans is [driver.PlanCaches].FFTPlans.
func (d *Driver) FFTPlans(dev int) (driver.PlanCache, error) {
	if err := d.Knows("plans of transforms", dev); err != nil {
		return nil, err
	}
	return d.gpus[dev].plans, nil
}

// transformWork is MathWork of a transform.
func (d *Driver) transformWork(h driver.StreamHandle, t *driver.FFT) (bytes int, err error) {
	err = d.withPlan(h, t, func(_ *stream, p fftPlan) error {
		bytes = p.work
		return nil
	})
	return bytes, err
}

// transform is Compute of a transform.
func (d *Driver) transform(h driver.StreamHandle, t *driver.FFT, work driver.Ptr) error {
	const op = "transform"
	return d.withPlan(h, t, func(s *stream, p fftPlan) error {
		b, x := s.b, &s.b.fft.table
		if p.work > 0 {
			at, err := d.side(b, op, "memory for work", work, p.work)
			if err == nil && (at.Type != driver.DeviceMemory || at.Device != b.Index) {
				err = driver.Errorf(driver.ErrWrongDevice, b.Name, op, "the memory for work isn't the device's")
			}
			if err == nil {
				err = b.fftCall(op, "SetWorkArea", func() abi.FFTResult { return x.SetWorkArea(p.h, uintptr(work)) })
			}
			if err != nil {
				return err
			}
		}
		if s.broken() != nil {
			return b.Broken() // left out
		}
		if err := b.fftCall(op, "SetStream", func() abi.FFTResult { return x.SetStream(p.h, s.h) }); err != nil {
			return err
		}
		m := d.before(s)
		err := b.fftCall(op, "Exec", func() abi.FFTResult { return execFFT(x, p.h, t) })
		m.after(s, op, driver.Activity{Kind: driver.ActivityKernel, Name: b.family.FFT}, err)
		return err
	})
}

// execFFT calls the library's function for a kind and type.
func execFFT(x *abi.FFT, h abi.FFTPlan, t *driver.FFT) abi.FFTResult {
	in, out, direction := uintptr(t.In), uintptr(t.Out), abi.FFTForward
	if t.Inverse {
		direction = abi.FFTInverse
	}
	switch wide := t.Type == dtype.Float64; {
	case t.Kind == driver.ComplexToComplex && wide:
		return x.Z2Z(h, in, out, direction)
	case t.Kind == driver.ComplexToComplex:
		return x.C2C(h, in, out, direction)
	case t.Kind == driver.RealToComplex && wide:
		return x.D2Z(h, in, out)
	case t.Kind == driver.RealToComplex:
		return x.R2C(h, in, out)
	case wide:
		return x.Z2D(h, in, out)
	}
	return x.C2R(h, in, out)
}

// withPlan calls f with a stream, which is locked, and the plan of a transform.
func (d *Driver) withPlan(h driver.StreamHandle, t *driver.FFT, f func(s *stream, p fftPlan) error) error {
	s, err := d.stream("transform", h)
	if err != nil {
		return err
	}
	b := s.b
	err = d.withPlanOf(s, t, f)
	s.Unlock()
	b.plans.Reap()
	return err
}

func (d *Driver) withPlanOf(s *stream, t *driver.FFT, f func(s *stream, p fftPlan) error) error {
	const op = "transform"
	b := s.b
	if err := b.fft.open(); err != nil {
		return driver.Errorf(driver.ErrUnsupported, b.Name, op, "%w", err)
	}
	if s.capture != nil || s.foreign() {
		return driver.Errorf(driver.ErrCapture, b.Name, op, "transforms of %s aren't captured", b.family.FFT)
	}
	if err := t.Check(b.Name, fftDims); err != nil {
		return err
	}
	for _, x := range t.Sides() {
		at, err := d.side(b, op, x.Name, x.Ptr, x.Bytes(t.Count))
		switch {
		case err != nil:
			return err
		case at.Type == driver.DeviceMemory && at.Device != b.Index && !d.Reaches(b.Index, at.Device):
			return driver.Errorf(driver.ErrWrongDevice, b.Name, op, "%s is memory of device %d, to which %s has no access",
				x.Name, at.Device, b.Name)
		case uintptr(x.Ptr)%uintptr(2*t.Type.Size()) != 0:
			return driver.Errorf(driver.ErrUnsupported, b.Name, op, "%s isn't aligned to complex numbers", x.Name)
		}
	}
	k, ok := keyOf(t)
	if !ok {
		return driver.Errorf(driver.ErrUnsupported, b.Name, op, "%s has no transforms of these strides: %v", b.family.FFT,
			t.Dims)
	}
	return b.plans.Use(k, func() (fftPlan, error) { return b.newPlan(op, &k) }, func(p fftPlan) error { return f(s, p) })
}

// newPlan makes a plan that has no memory for work.
func (b *gpu) newPlan(op string, k *fftKey) (p fftPlan, err error) {
	x := &b.fft.table
	h, work := new(abi.FFTPlan), new(uint64)
	if err := b.fftCall(op, "Create", func() abi.FFTResult { return x.Create(h) }); err != nil {
		return p, err
	}
	err = b.fftCall(op, "SetAutoAllocation", func() abi.FFTResult { return x.Allocates(*h, 0) })
	if err == nil {
		n := dl.Heap(k)
		err = b.fftCall(op, "MakePlanMany64", func() abi.FFTResult {
			return x.Make(*h, int32(k.rank), &n.n[0], &n.in.embed[0], n.in.step, n.in.next, &n.out.embed[0], n.out.step,
				n.out.next, k.typ, k.batch, work)
		})
	}
	if p = (fftPlan{*h, int(*work)}); err != nil {
		b.dropPlan(p)
		return fftPlan{}, err
	}
	return p, nil
}

// newPlans is the cache of a GPU's plans, each of which is given back when the work that uses it is done.
func (d *Driver) newPlans(b *gpu) *plans.Cache[fftKey, fftPlan] {
	return plans.New[fftKey](plans.Default, func(p fftPlan) {
		d.deferred.Add(b, []*gpu{b}, 0, func() { b.dropPlan(p) })
	})
}

func (b *gpu) dropPlan(p fftPlan) {
	_ = b.fftCall("close", "Destroy", func() abi.FFTResult { return b.fft.table.Destroy(p.h) })
}

// fftCall calls the library on a thread for which the GPU is the current device.
func (b *gpu) fftCall(op, call string, f func() abi.FFTResult) error {
	var r abi.FFTResult
	if err := b.call(op, call, func() abi.Result { r = f(); return abi.Success }); err != nil || r == abi.Transformed {
		return err
	}
	kind := driver.ErrInternal
	switch r {
	case abi.FFTAllocFailed:
		kind = driver.ErrOutOfMemory
	case abi.FFTInvalidType, abi.FFTInvalidValue, abi.FFTInvalidSize, abi.FFTUnaligned, abi.FFTNotImplemented,
		abi.FFTNotSupported, abi.FFTIncomplete, abi.FFTParseError:
		kind = driver.ErrUnsupported
	}
	return driver.Errorf(kind, b.Name, op, "%s (%s): %s: %s", b.family.FFT, b.fft.place, call, r)
}
