package gpu

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/internal/dl"
	"github.com/chorus-comms/chorus/internal/plain"
)

// Library is a table of functions with what is known of it.
type Library struct {
	abi.Table
	family   *abi.Family
	place    string
	version  string
	number   int // as the library says it
	caps     *dl.Capabilities
	bound    threads
	compiler *compiler // of sources
	blas     *blas     // of products
	lt       *lt       // of fused products
	fft      *fft      // of transforms
	solver   *solver   // of linear algebra
	sparse   *sparse   // of sparse matrices
}

func init() {
	for i := range abi.Families {
		f := &abi.Families[i]
		device.RegisterLoader(f.Name, func() (driver.Driver, error) {
			l, err := Load(f.Name)
			if err != nil {
				return nil, err
			}
			return New(l)
		})
	}
}

// Load opens the library of a type of devices, "cuda" or "hip". The error says which files were looked for and what the
// dynamic linker said of each, or which functions the library lacks.
func Load(name string) (*Library, error) {
	f := abi.FamilyNamed(name)
	if f == nil {
		return nil, fmt.Errorf("no library of GPUs is called %q", name)
	}
	version := func(l *dl.Library) (string, error) {
		v := new(int32)
		for _, symbol := range []string{"cuDriverGetVersion", "hipRuntimeGetVersion"} {
			if a, ok := l.Symbol(symbol); ok && dl.Func(a).Call(uintptr(unsafe.Pointer(v))) == 0 {
				return versionText(f, int(*v)), nil
			}
		}
		return "", nil
	}
	opened, err := dl.Source{Name: f.Title, Candidates: f.Candidates(), Version: version}.Open()
	if err != nil {
		return nil, err
	}
	l := &Library{family: f, place: opened.Path()}
	if l.caps, err = opened.Resolve(&l.Table); err != nil {
		return nil, err
	}
	return l, l.ready()
}

// Supply makes a library of a table that the caller has filled: a stand-in. place is its name in errors.
func Supply(name, place string, table abi.Table) (*Library, error) {
	f := abi.FamilyNamed(name)
	if f == nil {
		return nil, fmt.Errorf("no library of GPUs is called %q", name)
	}
	l := &Library{Table: table, family: f, place: place, version: "unknown"}
	if v := new(int32); table.GetVersion != nil && table.GetVersion(v) == abi.Success {
		l.version = versionText(f, int(*v))
	}
	var err error
	if l.caps, err = dl.Supplied(f.Title, l.version, place, &l.Table); err != nil {
		return nil, err
	}
	return l, l.ready()
}

// SupplyCompiler gives the library one more compiler of sources whose table the caller has filled: a stand-in.
func (l *Library) SupplyCompiler(place string, table abi.Compiler) error {
	return l.compiler.supply(place, table)
}

// SupplyBLAS gives the library one of products whose table the caller has filled: a stand-in.
func (l *Library) SupplyBLAS(place string, table abi.BLAS) error {
	l.blas = newBLAS(l.family, nil)
	return l.blas.supply(place, table)
}

// SupplyLt gives the library one of fused products whose table the caller has filled: a stand-in.
func (l *Library) SupplyLt(place string, table abi.Lt) error {
	l.lt = newLt(l.family, nil)
	return l.lt.supply(place, table)
}

// SupplyFFT gives the library one of transforms whose table the caller has filled: a stand-in.
func (l *Library) SupplyFFT(place string, table abi.FFT) error {
	l.fft = newFFT(l.family, nil)
	return l.fft.supply(place, table)
}

// SupplySolver gives the library one of linear algebra whose table the caller has filled: a stand-in.
func (l *Library) SupplySolver(place string, table abi.Solver) error {
	l.solver = newSolverLibrary(l.family, nil)
	return l.solver.supply(place, table)
}

// SupplySparse gives the library one of sparse matrices whose table the caller has filled: a stand-in.
func (l *Library) SupplySparse(place string, table abi.Sparse) error {
	l.sparse = newSparse(l.family, nil)
	return l.sparse.supply(place, table)
}

// ready asks for the version and starts the library.
func (l *Library) ready() error {
	if err := l.caps.Need(l.family.Own); err != nil {
		return err
	}
	v := new(int32)
	if r := l.GetVersion(v); r != abi.Success {
		return l.failed("GetVersion", r)
	}
	l.number, l.version = int(*v), versionText(l.family, int(*v))
	major := l.number / 1000
	if l.family.Name == "hip" {
		major = l.number / 10_000_000
	}
	l.compiler = &compiler{family: l.family, places: l.family.CompilerCandidates(major), driver: l.number,
		hip: l.hip()}
	l.blas = newBLAS(l.family, l.family.BLASCandidates(major))
	l.lt = newLt(l.family, l.family.LtCandidates(major))
	l.fft = newFFT(l.family, l.family.FFTCandidates(major))
	l.solver = newSolverLibrary(l.family, l.family.SolverCandidates(major))
	l.sparse = newSparse(l.family, l.family.SparseCandidates(major))
	if r := l.Init(0); r != abi.Success {
		return l.failed("Init", r)
	}
	return nil
}

// hip is HIP's version, and empty for CUDA.
func (l *Library) hip() string {
	if l.family.Name == "hip" {
		return l.version
	}
	return ""
}

// versionText is 12.4 for CUDA's 12040, and 6.4.43484 for HIP's 60443484.
func versionText(f *abi.Family, v int) string {
	if f.Name == "cuda" {
		return fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	return fmt.Sprintf("%d.%d.%d", v/10_000_000, v/100_000%100, v%100_000)
}

// String names the library, its version and its place.
func (l *Library) String() string {
	return fmt.Sprintf("%s %s (%s)", l.family.Title, l.version, l.place)
}

// Capabilities are what it can do beyond what all versions can.
func (l *Library) Capabilities() *dl.Capabilities { return l.caps }

// Error is what a function of the library has returned.
type Error struct {
	Library string // with its version
	Call    string // the function, without the library's prefix
	Code    abi.Result
	Name    string // the library's name of the code, "CUDA_ERROR_OUT_OF_MEMORY" for example
	Text    string // what it says about it
	Log     string // what its translator of PTX says
}

// advice is what to do about results whose texts don't say so.
var advice = map[abi.Result]string{
	abi.DeviceUnavailable: "another process has the GPU for itself (compute mode exclusive-process): end it, or set the " +
		"mode with nvidia-smi -c DEFAULT",
	abi.SystemNotReady: "the machine's GPUs are not ready: is nvidia-fabricmanager running, of the driver's version?",
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s: %s (%s, %d)", e.Library, e.Call, e.Text, e.Name, int32(e.Code))
	if a := advice[e.Code]; a != "" {
		s += ": " + a
	}
	if e.Log != "" {
		s += ":\n" + plain.Text(e.Log)
	}
	return s
}

// failed is the *Error of a result.
func (l *Library) failed(call string, r abi.Result) *Error {
	e := &Error{Library: l.family.Title + " " + l.version, Call: call, Code: r, Name: r.String(), Text: "no text"}
	if l.ErrorName != nil {
		e.Name, e.Text = l.ErrorName(r), l.ErrorText(r)
		return e
	}
	text := func(of abi.Texts) (string, bool) {
		p := new(*byte)
		if of(r, p) != abi.Success || *p == nil {
			return "", false
		}
		return unix.BytePtrToString(*p), true
	}
	if s, ok := text(l.ErrorNameOf); ok {
		e.Name = s
	}
	if s, ok := text(l.ErrorTextOf); ok {
		e.Text = s
	}
	return e
}

// kindOf is the kind of error that a result is to callers.
func kindOf(r abi.Result) driver.Kind {
	switch r {
	case abi.InvalidValue, abi.InvalidConfiguration, abi.InvalidImage, abi.NoBinaryForGPU, abi.InvalidPTX,
		abi.UnsupportedPTX, abi.InvalidSource, abi.GraphExecUpdateFailure:
		return driver.ErrInvalidArgument
	case abi.OutOfMemory, abi.LaunchOutOfResources:
		return driver.ErrOutOfMemory
	case abi.InvalidDevice:
		return driver.ErrWrongDevice
	case abi.InvalidHandle:
		return driver.ErrInvalidHandle
	case abi.NotFound:
		return driver.ErrNotFound
	case abi.NotReady:
		return driver.ErrNotReady
	case abi.NotSupported, abi.PeerAccessUnsupported, abi.CallRequiresNewerDriver:
		return driver.ErrUnsupported
	}
	if r.Capture() {
		return driver.ErrCapture
	}
	return driver.ErrInternal
}
