package opencl

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl/abi"
	"github.com/chorus-comms/chorus/device/opencl/compiler"
	"github.com/chorus-comms/chorus/internal/dl"
	"github.com/chorus-comms/chorus/internal/dl/libfile"
)

// Library is a loader or a driver, with its functions.
type Library struct {
	abi.Table
	opened    *dl.Library
	place     string
	version   string
	caps      *dl.Capabilities
	platforms []abi.Platform
	apart     compiler.Processes
}

// Load opens what the machine has: the loader that the dynamic linker finds, and drivers that Python packages have
// brought, which no loader knows. With CHORUS_OPENCL_LIBRARY, it opens those files alone. An error says what was tried.
func Load() ([]*Library, error) {
	c, err := config.Load(nil)
	if err != nil {
		return nil, err
	}
	names, drivers := abi.Names, libfile.InWheels(abi.Wheels...)
	if c.OpenCLLibrary != "" {
		names, drivers = nil, filepath.SplitList(c.OpenCLLibrary)
	}
	var all []*Library
	var tried []error
	seen := map[abi.Platform]bool{}
	add := func(s dl.Source) {
		opened, err := s.Open()
		if err == nil {
			var l *Library
			if l, err = load(opened); err == nil {
				l.platforms = keepNew(l.platforms, seen)
				if len(l.platforms) > 0 {
					all = append(all, l)
				}
				return
			}
		}
		tried = append(tried, err)
	}
	if names != nil {
		add(dl.Source{Name: "OpenCL", Candidates: names})
	}
	for _, path := range libfile.Find(drivers...) {
		add(dl.Source{Name: "OpenCL", Candidates: []string{path}})
	}
	if len(all) > 0 {
		return all, nil
	}
	for _, d := range drivers {
		if len(libfile.Find(d)) == 0 {
			tried = append(tried, fmt.Errorf("%s: %w", d, os.ErrNotExist))
		}
	}
	return nil, &dl.NotFoundError{Library: "OpenCL", Tried: tried}
}

func keepNew(list []abi.Platform, seen map[abi.Platform]bool) (fresh []abi.Platform) {
	for _, p := range list {
		if !seen[p] {
			seen[p] = true
			fresh = append(fresh, p)
		}
	}
	return fresh
}

// load fills the table of a library, and asks for its platforms.
func load(opened *dl.Library) (*Library, error) {
	if base := strings.ToLower(filepath.Base(opened.Path())); strings.Contains(base, "pocl") ||
		strings.HasPrefix(base, "libopencl") {
		protectPoCL(opened)
	}
	if _, loader := opened.Symbol("clGetPlatformIDs"); !loader {
		return loadDriver(opened)
	}
	l := &Library{opened: opened, place: opened.Path(), version: "unknown"}
	caps, err := opened.Resolve(&l.Table)
	if err != nil {
		return nil, err
	}
	l.caps = caps
	count := new(uint32)
	r := l.PlatformIDs(0, nil, count)
	if r == abi.PlatformNotFound || r == abi.Success && *count == 0 {
		return nil, fmt.Errorf("%s knows no driver", l.place)
	}
	if r != abi.Success {
		return nil, l.failed("clGetPlatformIDs", r)
	}
	l.platforms = make([]abi.Platform, *count)
	if r := l.PlatformIDs(*count, &l.platforms[0], nil); r != abi.Success {
		return nil, l.failed("clGetPlatformIDs", r)
	}
	return l, l.greet()
}

// loadDriver uses a driver as a loader does (cl_khr_icd). A driver has one function by name, which finds another one
// that lists the platforms. Every object begins with the address of a table of all other functions.
func loadDriver(opened *dl.Library) (*Library, error) {
	place := opened.Path()
	a, ok := opened.Symbol("clGetExtensionFunctionAddress")
	if !ok {
		return nil, fmt.Errorf("%s is neither a loader nor a driver of OpenCL", place)
	}
	ask := append([]byte("clIcdGetPlatformIDsKHR"), 0)
	list := dl.Func(dl.Func(a).Call(uintptr(unsafe.Pointer(dl.Heap(&ask[0])))))
	if list == 0 {
		return nil, fmt.Errorf("%s is no driver that a loader could use: it lacks clIcdGetPlatformIDsKHR", place)
	}
	ids, count := dl.Heap(new([16]abi.Platform)), dl.Heap(new(uint32))
	r := abi.Result(list.Call(uintptr(len(ids)), uintptr(unsafe.Pointer(ids)), uintptr(unsafe.Pointer(count))))
	if r != abi.Success || *count == 0 {
		return nil, &Error{Library: "OpenCL (" + place + ")", Call: "clIcdGetPlatformIDsKHR", Code: r}
	}
	table := unsafe.Slice(*(**[256]uintptr)(pointer(uintptr(ids[0]))), 1)[0][:]
	slots := abi.Slots()
	const core = 123 // the table of drivers before OpenCL 2.0 ends there
	most := core
	lookup := func(name string) (uintptr, bool) {
		i, ok := slots[name]
		return table[min(i, len(table)-1)], ok && i < most && table[i] != 0
	}
	l := &Library{opened: opened, place: place, version: "unknown", platforms: ids[:min(int(*count), len(ids))]}
	if _, err := opened.By(lookup, "").Resolve(&l.Table); err != nil {
		return nil, err
	}
	if err := l.greet(); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(l.version, "1.") {
		most = len(table)
	}
	caps, err := opened.By(lookup, l.version).Resolve(&l.Table)
	l.caps = caps
	return l, err
}

// pointer makes an address a pointer to what isn't Go's.
func pointer(a uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }

// greet asks the first platform which version it is.
func (l *Library) greet() error {
	v, err := text(l, "clGetPlatformInfo", l.PlatformInfo, l.platforms[0], abi.PlatformVersion)
	if words := strings.Fields(v); len(words) > 1 {
		l.version = words[1]
	}
	return err
}

// String names the library, its version and its place.
func (l *Library) String() string { return fmt.Sprintf("OpenCL %s (%s)", l.version, l.place) }

// Error is what a function of the library has returned.
type Error struct {
	Library string // with its version
	Call    string // the function
	Code    abi.Result
}

func (e *Error) Error() string {
	if name := e.Code.Name(); name != "" {
		return fmt.Sprintf("%s: %s: %s (%d)", e.Library, e.Call, name, e.Code)
	}
	return fmt.Sprintf("%s: %s: error %d", e.Library, e.Call, e.Code)
}

func (l *Library) failed(call string, r abi.Result) *Error { return &Error{l.String(), call, r} }

// kindOf is the kind of error that a result is.
func kindOf(r abi.Result) driver.Kind {
	switch r {
	case abi.MemAllocationFailure, abi.OutOfHostMemory, abi.OutOfResources, abi.InvalidBufferSize:
		return driver.ErrOutOfMemory
	case abi.CompilerNotAvailable:
		return driver.ErrUnsupported
	case abi.BuildProgramFailure, abi.InvalidBinary, abi.InvalidValue, abi.InvalidArgIndex, abi.InvalidArgSize,
		abi.InvalidArgValue, abi.InvalidKernelArgs, abi.InvalidWorkGroupSize:
		return driver.ErrInvalidArgument
	case abi.InvalidKernelName:
		return driver.ErrNotFound
	}
	return driver.ErrInternal
}

// value asks for a value of a fixed size.
func value[V, T any](l *Library, call string, ask abi.Asking[T], of T, what uint32) (V, error) {
	v := new(V)
	if r := ask(of, what, unsafe.Sizeof(*v), unsafe.Pointer(v), nil); r != abi.Success {
		return *v, l.failed(call, r)
	}
	return *v, nil
}

// list asks for values of which there are several.
func list[V, T any](l *Library, call string, ask abi.Asking[T], of T, what uint32) ([]V, error) {
	n := new(uintptr)
	if r := ask(of, what, 0, nil, n); r != abi.Success {
		return nil, l.failed(call, r)
	}
	v := make([]V, *n/unsafe.Sizeof(*new(V)))
	if len(v) == 0 {
		return nil, nil
	}
	if r := ask(of, what, *n, unsafe.Pointer(&v[0]), nil); r != abi.Success {
		return nil, l.failed(call, r)
	}
	return v, nil
}

// text asks for a string.
func text[T any](l *Library, call string, ask abi.Asking[T], of T, what uint32) (string, error) {
	v, err := list[byte](l, call, ask, of, what)
	return strings.TrimSpace(strings.TrimRight(string(v), "\x00")), err
}

// about makes a question about two things one about the first.
func about[T, U any](ask abi.Of[T, U], second U) abi.Asking[T] {
	return func(of T, what uint32, n uintptr, value unsafe.Pointer, ret *uintptr) abi.Result {
		return ask(of, second, what, n, value, ret)
	}
}
