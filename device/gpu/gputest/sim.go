//go:build linux

package gputest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/device/accinte"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
)

// Options say what a library is like.
type Options struct {
	Name        string // "cuda" or "hip"
	Devices     int    // 2 if 0
	MemoryBytes int    // of each device; 256 MiB if 0
	NoPeers     bool
	Driver      *accinte.Driver // whose devices they are, if others use them, too; nil: ones of its own
	Without     []string        // functions that it doesn't have, by any of their names
	StructBytes int             // of a parameter that's a struct, as emulated functions don't say; 16 if 0
	// NoWaitNodes: a captured stream itself waits for a value, as in releases of HIP that make no node of that.
	NoWaitNodes bool
	// Parallel lets it call functions of the host at the same time, as no library promises.
	Parallel bool
	// Queues is how many queues of the hardware the streams of all devices share; 0: each stream has one of its own. A
	// queue runs work in the order of the calls, so that a stream that waits holds up the others.
	Queues int
	// Fail, if not nil, is asked at each call of a function, "cuMemAlloc_v2" for example: a result other than success is
	// the call's, which does nothing else then. It's called from any goroutine.
	Fail func(call string) abi.Result
}

// A Library is a stand-in.
type Library struct {
	opts   Options
	driver *accinte.Driver
	callee sync.Mutex // held while a function of the host runs

	mu      sync.Mutex
	threads map[int][]abi.Context // contexts of each thread, the current one last; in HIP there is one
	graphs  map[abi.Graph][]driver.Node
	texts   map[string][]byte
	global  []driver.StreamHandle // captured by others in mode global
	modes   map[int]int32         // the capture modes of threads, but for global ones
	primary map[abi.Device]int    // how often each primary context is retained
	queues  queues
	codes   codes
}

// New makes a stand-in.
func New(o Options) (*Library, error) {
	if abi.FamilyNamed(o.Name) == nil {
		return nil, fmt.Errorf("gputest: no library of %q", o.Name)
	}
	if o.MemoryBytes == 0 {
		o.MemoryBytes = 256 << 20
	}
	if o.StructBytes == 0 {
		o.StructBytes = 16
	}
	if o.Driver != nil {
		return newLibrary(o, o.Driver), nil
	}
	d, err := accinte.New(accinte.Options{Name: o.Name + " stand-in", Devices: o.Devices, MemoryBytes: o.MemoryBytes,
		NoPeers: o.NoPeers})
	if err != nil {
		return nil, err
	}
	return newLibrary(o, d), nil
}

func newLibrary(o Options, d *accinte.Driver) *Library {
	return &Library{opts: o, driver: d, threads: map[int][]abi.Context{}, graphs: map[abi.Graph][]driver.Node{},
		texts: map[string][]byte{}, modes: map[int]int32{}, primary: map[abi.Device]int{},
		codes: codes{all: map[abi.Code]*code{}}}
}

// Close ends it. The error also says if a thread has been left with a context.
func (l *Library) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	for _, stack := range l.threads {
		if l.opts.Name == "cuda" && len(stack) > 0 || l.opts.Name == "hip" && stack[0] != contexts {
			err = fmt.Errorf("gputest: a thread is left with contexts %v", stack)
		}
	}
	if l.opts.Driver != nil {
		return err
	}
	return errors.Join(err, l.driver.Close())
}

// Contexts are the devices on which the process has a context.
func (l *Library) Contexts() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []int
	for dev := range l.primary {
		all = append(all, int(dev))
	}
	slices.Sort(all)
	return all
}

// Driver is what it's made of, whose streams and memory have the library's handles and addresses.
func (l *Library) Driver() *accinte.Driver { return l.driver }

// contexts is the context of device 0; the others follow.
const contexts abi.Context = 0xc0de0

// Current is the device whose context is the calling thread's.
func (l *Library) Current() (dev int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	stack := l.threads[unix.Gettid()]
	if len(stack) == 0 {
		return 0, l.opts.Name == "hip"
	}
	return int(stack[len(stack)-1] - contexts), true
}

// result is what the library would return for an error of the emulated device.
func result(err error) abi.Result {
	for _, x := range []struct {
		kind driver.Kind
		r    abi.Result
	}{
		{driver.ErrOutOfMemory, abi.OutOfMemory}, {driver.ErrInvalidHandle, abi.InvalidHandle},
		{driver.ErrCapture, abi.CaptureUnsupported}, {driver.ErrNotReady, abi.NotReady},
		{driver.ErrUnsupported, abi.NotSupported},
		{driver.ErrNotFound, abi.NotFound}, {driver.ErrInvalidArgument, abi.InvalidValue},
	} {
		if errors.Is(err, x.kind) {
			return x.r
		}
	}
	if err != nil {
		return abi.LaunchFailed
	}
	return abi.Success
}

// give writes what a call has.
func give[T, U ~uintptr](to *T, x U, err error) abi.Result {
	if err == nil {
		*to = T(x)
	}
	return result(err)
}

func done(ok bool, err error) abi.Result {
	if err == nil && !ok {
		return abi.NotReady
	}
	return result(err)
}

// on is a call that needs a current device.
func (l *Library) on(f func(dev int) abi.Result) abi.Result {
	dev, ok := l.Current()
	if !ok {
		return abi.InvalidContext
	}
	return f(dev)
}

func (l *Library) idle(dev int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return l.driver.Synchronize(ctx, dev)
}

var names = map[abi.Result]string{abi.Success: "SUCCESS", abi.InvalidValue: "ERROR_INVALID_VALUE",
	abi.OutOfMemory: "ERROR_OUT_OF_MEMORY", abi.InvalidHandle: "ERROR_INVALID_HANDLE", abi.NotReady: "ERROR_NOT_READY",
	abi.InvalidContext: "ERROR_INVALID_CONTEXT", abi.IllegalAddress: "ERROR_ILLEGAL_ADDRESS",
	abi.NoDevice: "ERROR_NO_DEVICE"}

func (l *Library) errorName(r abi.Result) string {
	if s, ok := names[r]; ok {
		return strings.ToUpper(l.opts.Name) + "_" + s
	}
	return fmt.Sprintf("%s_ERROR_%d", strings.ToUpper(l.opts.Name), r)
}

func errorText(r abi.Result) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(names[r], "ERROR_")), "_", " ")
}

func (l *Library) text(p **byte, s string) abi.Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.texts[s] == nil {
		l.texts[s] = append([]byte(s), 0)
	}
	*p = &l.texts[s][0]
	return abi.Success
}

// attributes are those of each device beside how many units it has.
func (l *Library) attributes() map[int32]int32 {
	const shared = 48 << 10 // of a block of an emulated device
	if l.opts.Name == "hip" {
		return map[int32]int32{abi.HIPShared: shared, abi.HIPMajor: 9, abi.HIPMinor: 4}
	}
	return map[int32]int32{abi.CUDAShared: shared / 2, abi.CUDASharedAtMost: shared, abi.CUDAMajor: 8, abi.CUDAMinor: 9}
}

// adapt takes out what the library doesn't have, and asks Fail at each call of what it has.
func (l *Library) adapt(t *abi.Table) {
	v := reflect.ValueOf(t).Elem()
	family := abi.FamilyNamed(l.opts.Name)
	abi.Symbols(func(field reflect.StructField, symbols []string) {
		f := v.FieldByName(field.Name)
		at := slices.IndexFunc(symbols, func(s string) bool { return strings.HasPrefix(s, family.Prefix) })
		if at < 0 || slices.ContainsFunc(symbols, func(s string) bool { return slices.Contains(l.opts.Without, s) }) {
			f.SetZero()
			return
		}
		if f.Type().NumOut() == 0 || f.Type().Out(0) != reflect.TypeFor[abi.Result]() {
			return
		}
		if l.opts.Queues > 0 && slices.Contains(queuedCalls, field.Name) {
			f.Set(l.queued(reflect.ValueOf(f.Interface())))
		}
		if l.opts.Fail == nil && !slices.Contains(unsafeCalls, field.Name) {
			return
		}
		name, original := symbols[at], reflect.ValueOf(f.Interface())
		f.Set(reflect.MakeFunc(f.Type(), func(args []reflect.Value) []reflect.Value {
			if l.opts.Fail != nil {
				if r := l.opts.Fail(name); r != abi.Success {
					return []reflect.Value{reflect.ValueOf(r)}
				}
			}
			if l.endsCapture(field.Name) {
				return []reflect.Value{reflect.ValueOf(abi.CaptureUnsupported)}
			}
			return original.Call(args)
		}))
	})
}

func (l *Library) peer(p abi.PeerRef, on bool) abi.Result {
	return l.on(func(dev int) abi.Result {
		peer := int(p)
		if l.opts.Name == "cuda" {
			peer = int(abi.Context(p) - contexts)
		}
		had, err := l.driver.PeerAccess(dev, peer)
		switch {
		case err == nil && on && had:
			return abi.PeerAccessEnabled
		case err == nil && !on && !had:
			return abi.PeerAccessNotEnabled
		}
		return result(errors.Join(err, l.driver.SetPeerAccess(dev, peer, on)))
	})
}

// owner is the device of a stream, found by an event of each.
func (l *Library) owner(s abi.Stream) (int, error) {
	n, err := l.driver.DeviceCount()
	for dev := range n {
		var e driver.EventHandle
		if e, err = l.driver.EventCreate(dev, false); err != nil {
			return 0, err
		}
		err = l.driver.EventRecord(e, driver.StreamHandle(s))
		_ = l.driver.EventDestroy(e)
		if !errors.Is(err, driver.ErrWrongDevice) {
			return dev, err
		}
	}
	return 0, err
}

// copy waits for the stream where memory isn't pinned, or both sides are the host's, as the libraries do. In a capture
// it becomes a node.
func (l *Library) copy(dst, src uintptr, n uint64, s abi.Stream) abi.Result {
	return l.on(func(int) abi.Result {
		err := l.driver.Copy(driver.StreamHandle(s), driver.Ptr(dst), driver.Ptr(src), int(n), driver.CopyDefault)
		to, err1 := l.driver.Attributes(driver.Ptr(dst))
		from, err2 := l.driver.Attributes(driver.Ptr(src))
		state, err3 := l.driver.CaptureStatus(driver.StreamHandle(s))
		host := to.Type != driver.DeviceMemory && from.Type != driver.DeviceMemory
		waits := host || to.Type == driver.Unmanaged || from.Type == driver.Unmanaged
		if errors.Join(err, err1, err2, err3) == nil && state == driver.NotCapturing && waits {
			err = l.driver.StreamSynchronize(context.Background(), driver.StreamHandle(s))
		}
		return result(err)
	})
}

func (l *Library) pointer(v *uint64, attribute int32, p uintptr) abi.Result {
	at, err := l.driver.Attributes(driver.Ptr(p))
	if err != nil || at.Type == driver.Unmanaged {
		return abi.InvalidValue
	}
	switch attribute {
	case abi.PointerMemoryType:
		*v = abi.MemoryDevice
		if at.Type == driver.HostMemory {
			*v = abi.MemoryHost
		}
	case abi.PointerDeviceOrdinal:
		*v = uint64(max(at.Device, 0))
	case abi.PointerRangeStart:
		*v = uint64(at.Base)
	case abi.PointerRangeSize:
		*v = uint64(at.Bytes)
	default:
		return abi.InvalidValue
	}
	return abi.Success
}

// waiting is the name of the function with which a stream waits for a word.
const waiting = "wait for a value"

func (l *Library) waitValue(s abi.Stream, p uintptr, value, flags, bits uint32) abi.Result {
	if bits != abi.AllBits || flags != abi.WaitValueGreater && flags != abi.WaitValueEqual {
		return abi.InvalidValue
	}
	at, err := l.driver.Attributes(driver.Ptr(p))
	if err != nil || at.Type != driver.HostMemory || p%4 != 0 {
		return abi.InvalidValue
	}
	if st, err := l.driver.CaptureStatus(driver.StreamHandle(s)); l.opts.NoWaitNodes && err == nil &&
		st != driver.NotCapturing {
		return abi.Success
	}
	word := (*uint32)(*(*unsafe.Pointer)(unsafe.Pointer(&p)))
	return result(l.driver.HostFunc(driver.StreamHandle(s), waiting, func() error {
		for try := 0; ; try++ {
			if v := atomic.LoadUint32(word); v == value || flags == abi.WaitValueGreater && int32(v-value) >= 0 {
				return nil
			}
			if try > 20 {
				time.Sleep(10 * time.Microsecond)
			}
		}
	}))
}

func pack(h *abi.IPCHandle, b []byte, err error) abi.Result {
	if err != nil {
		return result(err)
	}
	to := unsafe.Slice((*byte)(unsafe.Pointer(h)), unsafe.Sizeof(*h))
	to[0] = byte(len(b))
	copy(to[1:], b)
	return abi.Success
}

func unpack(h abi.IPCHandle) []byte {
	from := unsafe.Slice((*byte)(unsafe.Pointer(&h)), unsafe.Sizeof(h))
	return slices.Clone(from[1:min(1+int(from[0]), len(from))])
}
