package opencl

import (
	"strings"
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl/abi"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/dl"
)

// blast is CLBlast, which the devices of all libraries share.
type blast struct {
	abi.CLBlast
	place string
	caps  *dl.Capabilities
}

// loadBlast opens CLBlast: of the files of CHORUS_BLAS_LIBRARY the first that is it, or the one that the dynamic linker
// finds.
func loadBlast() (*blast, error) {
	c, err := config.Load(nil)
	if err != nil {
		return nil, err
	}
	var x *blast
	err = dl.Named("CHORUS_BLAS_LIBRARY", c.BLASLibrary, abi.CLBlastNames, func(places []string) (err error) {
		x, err = blastFrom(places)
		return err
	})
	return x, err
}

func blastFrom(places []string) (*blast, error) {
	opened, err := dl.Source{Name: "CLBlast", Candidates: places}.Open()
	if err != nil {
		return nil, err
	}
	x := &blast{place: opened.Path()}
	x.caps, err = opened.Resolve(&x.CLBlast)
	return x, err
}

func suppliedBlast(table abi.CLBlast) (*blast, error) {
	x := &blast{CLBlast: table, place: "stand-in"}
	var err error
	x.caps, err = dl.Supplied("CLBlast", "unknown", x.place, &x.CLBlast)
	return x, err
}

// blastTypes are what CLBlast multiplies here. It adds numbers of 16 bits in 16 bits, which PyTorch doesn't.
var blastTypes = []dtype.DType{dtype.Float32, dtype.Float64, dtype.Complex64, dtype.Complex128}

// admits reports why a library that compiles its kernels isn't for a device; nil: it is. files are what its variable
// names.
func (b *dev) admits(op, library, variable string, files func(*config.Config) string) error {
	none := func(format string, args ...any) error {
		return driver.Errorf(driver.ErrUnsupported, b.Name, op, format, args...)
	}
	c, err := config.Load(nil)
	if err != nil {
		return err
	}
	named := files(c)
	switch {
	case named == "none":
		return none("%s is none", variable)
	case !b.compiler:
		return none("%s compiles its kernels, and the device's driver has no compiler (%v)", library, b.Library)
	case c.OpenCLCompiler != "" && c.OpenCLCompiler != "none":
		return none("%s compiles its kernels in this process, and CHORUS_OPENCL_COMPILER wants another one for that", library)
	case named == "" && b.Props.Processor:
		return none("%s is for GPUs; %s names one that is used on processors too", library, variable)
	}
	return nil
}

// blastOf is the library for a device, or why it has none.
func (d *Driver) blastOf(op string, b *dev) (*blast, error) {
	files := func(c *config.Config) string { return c.BLASLibrary }
	if err := b.admits(op, "CLBlast", "CHORUS_BLAS_LIBRARY", files); err != nil {
		return nil, err
	}
	x, err := d.blast()
	if err != nil {
		return nil, driver.Errorf(driver.ErrUnsupported, b.Name, op, "%w", err)
	}
	d.blastOpen.Store(true)
	return x, nil
}

// library is what multiplies on a device. It's asked for once.
type library struct {
	once sync.Once
	*blast
	err error
}

func (b *dev) products(op string) (*blast, error) {
	b.library.once.Do(func() { b.library.blast, b.library.err = b.d.blastOf(op, b) })
	return b.library.blast, b.library.err
}

// multiply enqueues a product. The stream is locked.
func (s *stream) multiply(op string, p *driver.GEMM) error {
	b, d := s.b, s.b.d
	x, err := b.products(op)
	if err != nil {
		return err
	}
	if s.captured() {
		return driver.Errorf(driver.ErrCapture, b.Name, op, "CLBlast's work can't be captured")
	}
	if err := p.Check(b.Name); err != nil {
		return err
	}
	if p.Count > 1 && !x.caps.Has("batches") {
		return driver.Errorf(driver.ErrUnsupported, b.Name, op, "%w", x.caps.Need("batches"))
	}
	var mems [3]abi.Mem
	var at [3]uintptr
	for i, m := range p.Matrices() {
		u, err := d.side(b, op, m.Name, m.Ptr, m.Bytes(p.Count))
		if err != nil {
			return err
		}
		if !u.device() || u.a.b.space != b.space {
			return driver.Errorf(driver.ErrUnsupported, b.Name, op, "%s is %v memory, of which there are no buffers", m.Name,
				u.typ)
		}
		if mems[i], err = b.buffer(op, u.a); err != nil {
			return err
		}
		at[i] = u.offset() / uintptr(p.Type.Size())
		if u.offset()%uintptr(p.Type.Size()) != 0 {
			return driver.Errorf(driver.ErrUnsupported, b.Name, op, "%s isn't aligned to its elements", m.Name)
		}
	}
	tr, err := s.traced(op) // before the queue is passed on
	if err != nil {
		return err
	}
	var call func(*abi.Event) abi.Result
	switch p.Type {
	case dtype.Float32:
		call = blastCall(x.S, x.SMany, s, p, mems, at, func(z complex128) float32 { return float32(real(z)) })
	case dtype.Float64:
		call = blastCall(x.D, x.DMany, s, p, mems, at, func(z complex128) float64 { return real(z) })
	case dtype.Complex64:
		call = blastCall(x.C, x.CMany, s, p, mems, at, func(z complex128) abi.Complex32 {
			return abi.Complex32{Re: float32(real(z)), Im: float32(imag(z))}
		})
	case dtype.Complex128:
		call = blastCall(x.Z, x.ZMany, s, p, mems, at, func(z complex128) abi.Complex64 {
			return abi.Complex64{Re: real(z), Im: imag(z)}
		})
	default:
		return driver.Errorf(driver.ErrUnsupported, b.Name, op, "CLBlast has no products of %v", p.Type)
	}
	var failed abi.Result
	c := command{call: "CLBlast", kind: driver.ActivityKernel, name: "CLBlast"}
	err = s.enqueueIn(tr, op, c, func(e *abi.Event) abi.Result {
		if failed = call(e); failed.Lost() {
			return failed
		}
		return abi.Success
	})
	if err != nil || failed == abi.Success {
		return err
	}
	kind := driver.ErrInternal
	if failed <= -1000 || kindOf(failed) != driver.ErrInternal {
		kind = driver.ErrUnsupported // this product, on this device
	}
	return driver.Errorf(kind, b.Name, op, "CLBlast (%s): %s (%d)", x.place, strings.TrimPrefix(failed.BlastName(), "CL_"),
		failed)
}

// blastCall is the call of CLBlast that a product is.
func blastCall[T any](one abi.Multiplying[T], many abi.MultiplyingMany[T], s *stream, p *driver.GEMM,
	mems [3]abi.Mem, at [3]uintptr, number func(complex128) T) func(*abi.Event) abi.Result {
	trans := func(m *driver.Matrix) int32 {
		if m.Transposed {
			return abi.TransposedBy
		}
		return abi.Straight
	}
	m, n, k, count := uintptr(p.Rows), uintptr(p.Columns), uintptr(p.Depth), uintptr(p.Count)
	pitch := func(m *driver.Matrix) uintptr { return uintptr(m.Pitch) }
	q := dl.Heap(&[1]abi.Queue{s.q})
	alpha, beta := number(p.Alpha), number(p.Beta)
	if p.Count == 1 {
		return func(e *abi.Event) abi.Result {
			return one(abi.RowMajor, trans(&p.A), trans(&p.B), m, n, k, alpha, mems[1], at[1], pitch(&p.A), mems[2], at[2],
				pitch(&p.B), beta, mems[0], at[0], pitch(&p.Out), &q[0], e)
		}
	}
	return func(e *abi.Event) abi.Result {
		return many(abi.RowMajor, trans(&p.A), trans(&p.B), m, n, k, alpha, mems[1], at[1], pitch(&p.A), uintptr(p.A.Next),
			mems[2], at[2], pitch(&p.B), uintptr(p.B.Next), beta, mems[0], at[0], pitch(&p.Out), uintptr(p.Out.Next), count,
			&q[0], e)
	}
}

// buffer is an allocation as a library's functions take it: the buffer that it is, or one over its shared virtual
// memory, which stays while the allocation does.
func (b *dev) buffer(op string, a *allocation) (abi.Mem, error) {
	if a.buf != 0 {
		return a.buf, nil
	}
	a.wrap.Lock()
	defer a.wrap.Unlock()
	if a.wrapped != 0 {
		return a.wrapped, nil
	}
	r := new(abi.Result)
	mem := b.BufferMake(b.space.h, abi.MemReadWrite|abi.MemUseHostPtr, uintptr(a.Bytes), uintptr(a.Base), r)
	if *r != abi.Success {
		return 0, driver.Errorf(driver.ErrUnsupported, b.Name, op, "%w", b.failed("clCreateBuffer", *r))
	}
	// Otherwise the library may keep a copy of what is in the memory.
	shares := new(uint32)
	if !b.Props.Processor {
		*r = b.BufferInfo(mem, abi.MemUsesSVM, unsafe.Sizeof(*shares), unsafe.Pointer(shares), nil)
		if *r != abi.Success || *shares == 0 {
			b.BufferFree(mem)
			return 0, driver.Errorf(driver.ErrUnsupported, b.Name, op, "the driver makes no buffer of shared virtual memory")
		}
	}
	a.wrapped = mem
	return mem, nil
}
