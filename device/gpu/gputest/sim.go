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

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/accinte"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/internal/dl"
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
	graphs  map[abi.Graph][]device.Node
	texts   map[string][]byte
	global  []device.StreamHandle // captured by others in mode global
	modes   map[int]int32         // the capture modes of threads, but for global ones
	primary map[abi.Device]int    // how often each primary context is retained
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
	return &Library{opts: o, driver: d, threads: map[int][]abi.Context{}, graphs: map[abi.Graph][]device.Node{},
		texts: map[string][]byte{}, modes: map[int]int32{}, primary: map[abi.Device]int{}}
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
		kind device.Kind
		r    abi.Result
	}{
		{device.ErrOutOfMemory, abi.OutOfMemory}, {device.ErrInvalidHandle, abi.InvalidHandle},
		{device.ErrCapture, abi.CaptureUnsupported}, {device.ErrNotReady, abi.NotReady},
		{device.ErrUnsupported, abi.NotSupported},
		{device.ErrNotFound, abi.NotFound}, {device.ErrInvalidArgument, abi.InvalidValue},
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

// Table returns the functions that the library has.
func (l *Library) Table() abi.Table {
	d := l.driver
	t := abi.Table{
		Init: func(uint32) abi.Result { return abi.Success },
		GetVersion: func(v *int32) abi.Result {
			*v = 12040
			if l.opts.Name == "hip" {
				*v = 60_443_484
			}
			return abi.Success
		},
		DeviceCount: func(n *int32) abi.Result {
			count, err := d.DeviceCount()
			*n = int32(count)
			return result(err)
		},
		DeviceGet: func(dev *abi.Device, i int32) abi.Result { *dev = abi.Device(i); return abi.Success },
		DeviceName: func(text *byte, n int32, dev abi.Device) abi.Result {
			copy(unsafe.Slice(text, n), fmt.Sprintf("stand-in %d\x00", dev))
			return abi.Success
		},
		DeviceAttribute: func(v *int32, attr int32, dev abi.Device) abi.Result {
			want := int32(abi.CUDAMultiprocessors)
			if l.opts.Name == "hip" {
				want = abi.HIPMultiprocessors
			}
			if attr == abi.StreamPriorities {
				*v = 1
				return abi.Success
			}
			if attr != want {
				x, ok := l.attributes()[attr]
				*v = x
				if !ok {
					return abi.InvalidValue
				}
				return abi.Success
			}
			p, err := d.Properties(int(dev))
			*v = int32(p.Units)
			return result(err)
		},
		DeviceMemory: func(n *uint64, dev abi.Device) abi.Result {
			p, err := d.Properties(int(dev))
			*n = uint64(p.TotalMemory)
			return result(err)
		},
		DeviceUUID: func(id *[16]byte, dev abi.Device) abi.Result {
			p, err := d.Properties(int(dev))
			*id = p.UUID
			return result(err)
		},
		Priorities: func(least, greatest *int32) abi.Result {
			return l.on(func(int) abi.Result { *least, *greatest = 0, -1; return abi.Success })
		},
		CanAccessPeer: func(can *int32, dev, peer abi.Device) abi.Result {
			ok, err := d.PeerCapable(int(dev), int(peer))
			*can = 0
			if ok {
				*can = 1
			}
			return result(err)
		},
		EnablePeer:  func(peer abi.PeerRef, _ uint32) abi.Result { return l.peer(peer, true) },
		DisablePeer: func(peer abi.PeerRef) abi.Result { return l.peer(peer, false) },

		PrimaryRetain: func(c *abi.Context, dev abi.Device) abi.Result {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.primary[dev]++
			*c = contexts + abi.Context(dev)
			return abi.Success
		},
		PrimaryRelease: func(dev abi.Device) abi.Result {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.primary[dev] == 0 {
				return abi.InvalidContext
			}
			if l.primary[dev]--; l.primary[dev] == 0 {
				delete(l.primary, dev)
			}
			return abi.Success
		},
		GetContext: func(c *abi.Context) abi.Result {
			if *c = 0; l.opts.Name == "cuda" {
				if dev, ok := l.Current(); ok {
					*c = contexts + abi.Context(dev)
				}
			}
			return abi.Success
		},
		CaptureMode: l.captureMode,
		Push: func(c abi.Context) abi.Result {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.primary[abi.Device(c-contexts)] == 0 {
				return abi.InvalidContext
			}
			l.threads[unix.Gettid()] = append(l.threads[unix.Gettid()], c)
			return abi.Success
		},
		Pop: func(c *abi.Context) abi.Result {
			l.mu.Lock()
			defer l.mu.Unlock()
			stack := l.threads[unix.Gettid()]
			if len(stack) == 0 {
				return abi.InvalidContext
			}
			*c = stack[len(stack)-1]
			l.threads[unix.Gettid()] = stack[:len(stack)-1]
			return abi.Success
		},
		StreamContext: func(s abi.Stream, c *abi.Context) abi.Result {
			dev, err := l.owner(s)
			*c = contexts + abi.Context(dev)
			return result(err)
		},
		ErrorNameOf: func(r abi.Result, p **byte) abi.Result { return l.text(p, l.errorName(r)) },
		ErrorTextOf: func(r abi.Result, p **byte) abi.Result { return l.text(p, errorText(r)) },
		Copy: func(dst, src uintptr, n uint64, s abi.Stream) abi.Result {
			return l.copy(dst, src, n, s)
		},

		GetDevice: func(dev *abi.Device) abi.Result {
			i, _ := l.Current()
			*dev = abi.Device(i)
			return abi.Success
		},
		SetDevice: func(dev abi.Device) abi.Result {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.threads[unix.Gettid()] = []abi.Context{contexts + abi.Context(dev)}
			return abi.Success
		},
		StreamDevice: func(s abi.Stream, dev *abi.Device) abi.Result {
			i, err := l.owner(s)
			*dev = abi.Device(i)
			return result(err)
		},
		ErrorName: l.errorName,
		ErrorText: errorText,
		CopyAs: func(dst, src uintptr, n uint64, kind int32, s abi.Stream) abi.Result {
			if kind != abi.CopyByAddresses {
				return abi.InvalidValue
			}
			return l.copy(dst, src, n, s)
		},
		ExtMalloc: func(p *uintptr, n uint64, flags uint32) abi.Result {
			if n != 8 || flags != abi.SignalMemory {
				return abi.InvalidValue
			}
			got, err := d.MallocHost(8)
			return give(p, got, err)
		},

		MemAlloc: func(p *uintptr, n uint64) abi.Result {
			return l.on(func(dev int) abi.Result {
				got, err := d.Malloc(dev, int(n))
				return give(p, got, err)
			})
		},
		MemFree: func(p uintptr) abi.Result {
			return l.on(func(int) abi.Result {
				at, err := d.Attributes(device.Ptr(p))
				if err != nil || at.Type != device.DeviceMemory {
					return abi.InvalidValue
				}
				return result(errors.Join(l.idle(at.Device), d.Free(at.Device, device.Ptr(p))))
			})
		},
		MemHostAlloc: func(p *uintptr, n uint64, flags uint32) abi.Result {
			return l.on(func(int) abi.Result {
				if flags&abi.HostPortable == 0 {
					return abi.InvalidValue // good for one device alone
				}
				got, err := d.MallocHost(int(n))
				return give(p, got, err)
			})
		},
		MemHostFree: func(p uintptr) abi.Result {
			return l.on(func(dev int) abi.Result { return result(errors.Join(l.idle(dev), d.FreeHost(device.Ptr(p)))) })
		},
		MemInfo: func(free, total *uint64) abi.Result {
			return l.on(func(dev int) abi.Result {
				f, t, err := d.MemInfo(dev)
				*free, *total = uint64(f), uint64(t)
				return result(err)
			})
		},
		PointerAttribute: l.pointer,
		PointerAttributes: func(n uint32, attributes *int32, values *unsafe.Pointer, p uintptr) abi.Result {
			for i, a := range unsafe.Slice(attributes, n) {
				v := new(uint64)
				if l.pointer(v, a, p) != abi.Success {
					*v = 0 // of a pointer that it doesn't know
				}
				to := unsafe.Slice(values, n)[i]
				if a == abi.PointerRangeStart || a == abi.PointerRangeSize {
					*(*uint64)(to) = *v
				} else {
					*(*uint32)(to) = uint32(*v)
				}
			}
			return abi.Success
		},
		Fill: func(p uintptr, value uint8, n uint64, s abi.Stream) abi.Result {
			return l.on(func(int) abi.Result { return result(d.Fill(device.StreamHandle(s), device.Ptr(p), value, int(n))) })
		},

		StreamCreate: func(s *abi.Stream, flags uint32, priority int32) abi.Result {
			return l.on(func(dev int) abi.Result {
				if flags != abi.StreamNonBlocking || priority > 0 {
					return abi.InvalidValue
				}
				h, err := d.StreamCreate(dev, int(-priority))
				return give(s, h, err)
			})
		},
		StreamDestroy: func(s abi.Stream) abi.Result { return result(d.StreamDestroy(device.StreamHandle(s))) },
		StreamQuery:   func(s abi.Stream) abi.Result { return done(d.StreamQuery(device.StreamHandle(s))) },
		StreamWait: func(s abi.Stream, e abi.Event, _ uint32) abi.Result {
			return result(d.StreamWaitEvent(device.StreamHandle(s), device.EventHandle(e)))
		},
		HostFunc: func(s abi.Stream, f, arg uintptr) abi.Result {
			return result(d.HostFunc(device.StreamHandle(s), "host function", func() error {
				if !l.opts.Parallel {
					l.callee.Lock()
					defer l.callee.Unlock()
				}
				dl.Func(f).Call(arg)
				return nil
			}))
		},
		WaitValue: l.waitValue,

		EventCreate: func(e *abi.Event, flags uint32) abi.Result {
			return l.on(func(dev int) abi.Result {
				if flags&abi.EventInterprocess != 0 {
					if flags&abi.EventDisableTiming == 0 {
						return abi.InvalidValue
					}
					h, err := d.IPCEventCreate(dev)
					return give(e, h, err)
				}
				h, err := d.EventCreate(dev, flags&abi.EventDisableTiming == 0)
				return give(e, h, err)
			})
		},
		EventDestroy: func(e abi.Event) abi.Result { return result(d.EventDestroy(device.EventHandle(e))) },
		EventRecord: func(e abi.Event, s abi.Stream) abi.Result {
			return result(d.EventRecord(device.EventHandle(e), device.StreamHandle(s)))
		},
		EventQuery: func(e abi.Event) abi.Result { return done(d.EventQuery(device.EventHandle(e))) },
		EventElapsed: func(ms *float32, start, end abi.Event) abi.Result {
			x, err := d.EventElapsed(device.EventHandle(start), device.EventHandle(end))
			*ms = float32(float64(x) / float64(time.Millisecond))
			return result(err)
		},

		IPCGetMem: func(h *abi.IPCHandle, p uintptr) abi.Result {
			b, err := d.IPCHandle(device.Ptr(p))
			return pack(h, b, err)
		},
		IPCOpenMem: func(p *uintptr, h abi.IPCHandle, _ uint32) abi.Result {
			return l.on(func(dev int) abi.Result {
				got, err := d.IPCOpen(dev, unpack(h))
				return give(p, got, err)
			})
		},
		IPCCloseMem: func(p uintptr) abi.Result { return result(d.IPCClose(device.Ptr(p))) },
		IPCGetEvent: func(h *abi.IPCHandle, e abi.Event) abi.Result {
			b, err := d.IPCEventHandle(device.EventHandle(e))
			return pack(h, b, err)
		},
		IPCOpenEvent: func(e *abi.Event, h abi.IPCHandle) abi.Result {
			return l.on(func(dev int) abi.Result {
				got, err := d.IPCEventOpen(dev, unpack(h))
				return give(e, got, err)
			})
		},

		IsCapturing: func(s abi.Stream, status *int32) abi.Result {
			st, err := d.CaptureStatus(device.StreamHandle(s))
			*status = int32(st)
			return result(err)
		},
		BeginCapture: func(s abi.Stream, mode int32) abi.Result {
			if mode != abi.CaptureModeRelaxed {
				return abi.NotSupported // others would bind the capture to a thread
			}
			return result(d.CaptureBegin(device.StreamHandle(s)))
		},
		EndCapture:   l.endCapture,
		GraphDestroy: l.graphDestroy,
		GraphNodes:   l.graphNodes,
		GraphEdges:   l.graphEdges,
		NodeType:     l.nodeType,
		Instantiate: func(x *abi.Exec, g abi.Graph, _ uint64) abi.Result {
			h, err := d.Instantiate(device.GraphHandle(g))
			return give(x, h, err)
		},
		GraphLaunch: func(x abi.Exec, s abi.Stream) abi.Result {
			if state, err := d.CaptureStatus(device.StreamHandle(s)); err == nil && state != device.NotCapturing {
				return abi.CaptureUnsupported
			}
			return result(d.GraphLaunch(device.ExecHandle(x), device.StreamHandle(s)))
		},
		ExecDestroy: func(x abi.Exec) abi.Result { return result(d.ExecDestroy(device.ExecHandle(x))) },
		ExecUpdate: func(x abi.Exec, g abi.Graph, _ *abi.Node, why *int32) abi.Result {
			if err := d.GraphUpdate(device.ExecHandle(x), device.GraphHandle(g)); err != nil {
				*why = 1
				return abi.GraphExecUpdateFailure
			}
			return abi.Success
		},
	}
	t.ModuleLoad, t.ModuleLoadEx = l.moduleLoad, l.moduleLoadEx
	t.ModuleUnload = func(m abi.Module) abi.Result {
		return l.on(func(int) abi.Result { return result(d.ModuleUnload(device.ModuleHandle(m))) })
	}
	t.ModuleFunction = func(f *abi.Function, m abi.Module, name *byte) abi.Result {
		h, err := d.ModuleFunction(device.ModuleHandle(m), unix.BytePtrToString(name))
		return give(f, h, err)
	}
	t.FunctionAttribute, t.FunctionParameter, t.FunctionLaunch = l.functionAttribute, l.functionParameter, l.launch
	t.FunctionSet = func(_ abi.Function, attr, v int32) abi.Result {
		if attr != abi.FunctionDynamic || v > l.attributes()[abi.CUDASharedAtMost] {
			return abi.InvalidValue
		}
		return abi.Success
	}
	t.FunctionOccupancy = func(n *int32, f abi.Function, threads int32, shared uint64) abi.Result {
		x, err := d.FunctionOccupancy(device.FunctionHandle(f), int(threads), int(shared))
		*n = int32(x)
		return result(err)
	}
	l.adapt(&t)
	return t
}

// attributes are those of each device beside how many units it has.
func (l *Library) attributes() map[int32]int32 {
	const shared = 48 << 10 // of a block of an emulated device
	if l.opts.Name == "hip" {
		return map[int32]int32{abi.HIPShared: shared}
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
		var e device.EventHandle
		if e, err = l.driver.EventCreate(dev, false); err != nil {
			return 0, err
		}
		err = l.driver.EventRecord(e, device.StreamHandle(s))
		_ = l.driver.EventDestroy(e)
		if !errors.Is(err, device.ErrWrongDevice) {
			return dev, err
		}
	}
	return 0, err
}

// copy waits for the stream where memory isn't pinned, or both sides are the host's, as the libraries do. In a capture it
// becomes a node.
func (l *Library) copy(dst, src uintptr, n uint64, s abi.Stream) abi.Result {
	return l.on(func(int) abi.Result {
		err := l.driver.Copy(device.StreamHandle(s), device.Ptr(dst), device.Ptr(src), int(n), device.CopyDefault)
		to, err1 := l.driver.Attributes(device.Ptr(dst))
		from, err2 := l.driver.Attributes(device.Ptr(src))
		state, err3 := l.driver.CaptureStatus(device.StreamHandle(s))
		host := to.Type != device.DeviceMemory && from.Type != device.DeviceMemory
		waits := host || to.Type == device.Unmanaged || from.Type == device.Unmanaged
		if errors.Join(err, err1, err2, err3) == nil && state == device.NotCapturing && waits {
			err = l.driver.StreamSynchronize(context.Background(), device.StreamHandle(s))
		}
		return result(err)
	})
}

func (l *Library) pointer(v *uint64, attribute int32, p uintptr) abi.Result {
	at, err := l.driver.Attributes(device.Ptr(p))
	if err != nil || at.Type == device.Unmanaged {
		return abi.InvalidValue
	}
	switch attribute {
	case abi.PointerMemoryType:
		*v = abi.MemoryDevice
		if at.Type == device.HostMemory {
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
	at, err := l.driver.Attributes(device.Ptr(p))
	if err != nil || at.Type != device.HostMemory || p%4 != 0 {
		return abi.InvalidValue
	}
	if st, err := l.driver.CaptureStatus(device.StreamHandle(s)); l.opts.NoWaitNodes && err == nil &&
		st != device.NotCapturing {
		return abi.Success
	}
	word := (*uint32)(*(*unsafe.Pointer)(unsafe.Pointer(&p)))
	return result(l.driver.HostFunc(device.StreamHandle(s), waiting, func() error {
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
