package opencl

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/base"
	"github.com/chorus-comms/chorus/device/internal/outcome"
	"github.com/chorus-comms/chorus/device/opencl/abi"
)

// space is a context, which all devices of a platform share: they see the same memory and events.
type space struct {
	*Library
	platform abi.Platform
	devs     []*dev

	opening sync.Mutex
	opened  atomic.Bool
	h       abi.Context
}

// open makes the context, at the first use of one of its devices.
func (s *space) open() error {
	if s.opened.Load() {
		return nil
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.opened.Load() {
		return nil
	}
	ids := make([]abi.Device, len(s.devs))
	for i, b := range s.devs {
		ids[i] = b.id
	}
	props, r := []uintptr{abi.ContextPlatform, uintptr(s.platform), 0}, new(abi.Result)
	s.h = s.ContextMake(&props[0], uint32(len(ids)), &ids[0], 0, 0, r)
	if *r != abi.Success {
		return driver.Errorf(kindOf(*r), name, "open", "%w", s.failed("clCreateContext", *r))
	}
	s.opened.Store(true)
	return nil
}

func (s *space) close() {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.h != 0 {
		s.ContextFree(s.h)
		s.h = 0
		s.opened.Store(false)
	}
}

// dev is one device.
type dev struct {
	*Library
	base.Device
	d     *Driver
	space *space
	id    abi.Device
	kind  uint64
	clock clock

	svm        uint64 // abi.SVM...; 0: memory is buffers
	system     bool   // kernels can touch any memory of the host
	unified    bool   // its memory is the processor's
	properties bool   // queues are made with properties
	priorities bool
	language   string // the option that selects the newest language; empty: the default one
	rounds     bool   // its float32 divisions and square roots can be correctly rounded, if a program asks for that
	driver     string // its version
	compiler   bool   // it takes sources
	allocation int64  // bytes at most
	local      int    // bytes of local memory
	align      int    // bytes, of the beginning of a part of a buffer
	group      int    // work items at most
	items      [3]uintptr
	used       atomic.Int64 // bytes allocated
	probing    sync.Mutex
	probed     bool  // another process has compiled something, or not
	unfit      error // why not
	library    library
	commands   *abi.CommandTable // nil: there are no command buffers
	transforms transforms

	heavy atomic.Int32 // streams that may have other work than brief work

	mu      sync.Mutex
	streams map[*stream]bool
	going   []*ticket // of streams that were destroyed with work
}

// identify finds out what a device is and can do.
func (b *dev) identify(o Options) error {
	const call = "clGetDeviceInfo"
	title, err := text(b.Library, call, b.DeviceInfo, b.id, abi.DeviceName)
	if err != nil {
		return err
	}
	var available, compiler, units, align, unified uint32
	var total, most, local uint64
	var group uintptr
	for _, x := range []struct {
		what uint32
		to   any
	}{{abi.DeviceAvailable, &available}, {abi.DeviceCompilerAvailable, &compiler}, {abi.DeviceComputeUnits, &units},
		{abi.DeviceAddressAlign, &align}, {abi.DeviceGlobalMemory, &total}, {abi.DeviceMaxAllocation, &most},
		{abi.DeviceLocalMemory, &local}, {abi.DeviceType, &b.kind}, {abi.DeviceWorkGroupSize, &group}} {
		switch to := x.to.(type) {
		case *uint32:
			*to, err = value[uint32](b.Library, call, b.DeviceInfo, b.id, x.what)
		case *uint64:
			*to, err = value[uint64](b.Library, call, b.DeviceInfo, b.id, x.what)
		case *uintptr:
			*to, err = value[uintptr](b.Library, call, b.DeviceInfo, b.id, x.what)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", title, err)
		}
	}
	if available == 0 {
		return fmt.Errorf("%s is not available", title)
	}
	items, err := list[uintptr](b.Library, call, b.DeviceInfo, b.id, abi.DeviceWorkItemSizes)
	if err != nil || len(items) < len(b.items) {
		return fmt.Errorf("%s has work items of %d dimensions: %w", title, len(items), err)
	}
	copy(b.items[:], items)
	version, _ := text(b.Library, call, b.DeviceInfo, b.id, abi.DeviceVersion)
	b.driver, _ = text(b.Library, call, b.DeviceInfo, b.id, abi.DeviceDriverVersion)
	modern := !strings.HasPrefix(version, "OpenCL 1.")
	b.properties = modern && b.caps.Has("queues with properties")
	if modern && b.caps.Has("shared virtual memory") && !o.Buffers {
		b.svm, _ = value[uint64](b.Library, call, b.DeviceInfo, b.id, abi.DeviceSVM) // 3.0 may have none
	}
	b.system = b.svm&abi.SVMSystem != 0
	unified, _ = value[uint32](b.Library, call, b.DeviceInfo, b.id, abi.DeviceUnifiedMemory) // not in every 3.0
	lanes, _ := value[uint32](b.Library, call, b.DeviceInfo, b.id, abi.DeviceVectorFloat)
	b.unified = unified != 0 || b.kind&abi.DeviceCPU != 0
	extensions, _ := text(b.Library, call, b.DeviceInfo, b.id, abi.DeviceExtensions)
	platform, _ := text(b.Library, "clGetPlatformInfo", b.PlatformInfo, b.space.platform, abi.PlatformExtensions)
	has := func(extension string) bool {
		return strings.Contains(" "+extensions+" "+platform+" ", " "+extension+" ")
	}
	b.priorities = b.properties && has("cl_khr_priority_hints")
	if has("cl_khr_command_buffer") && (b.kind&abi.DeviceCPU == 0 || o.CommandBuffers) {
		b.commands = b.findCommands()
	}
	b.compiler = compiler != 0
	b.language = b.newest()
	single, _ := value[uint64](b.Library, call, b.DeviceInfo, b.id, abi.DeviceSingleFloat)
	b.rounds = single&abi.RoundedDivision != 0
	b.allocation, b.local, b.align, b.group = int64(most), int(local), int(align/8), int(group)
	b.Props = driver.Properties{Name: title, Library: "OpenCL", TotalMemory: int64(total), Units: int(units),
		PriorityLevels: 1, Processor: b.kind&abi.DeviceCPU != 0, Lanes: int(lanes), LocalMemory: int(local)}
	if words := strings.Fields(version); len(words) > 1 { // OpenCL 3.0 of the vendor
		b.Props.Library += " " + words[1]
		_, _ = fmt.Sscanf(words[1], "%d.%d", &b.Props.Major, &b.Props.Minor)
	}
	b.Props.Offsets = b.svm == 0
	if !b.Props.Processor { // which has arguments in memory, and more than it says
		arguments, _ := value[uintptr](b.Library, call, b.DeviceInfo, b.id, abi.DeviceMaxParameter)
		b.Props.ArgumentBytes = int(arguments)
	}
	if b.priorities {
		b.Props.PriorityLevels = 2
	}
	if has("cl_khr_device_uuid") {
		b.Props.UUID, _ = value[[16]byte](b.Library, call, b.DeviceInfo, b.id, abi.DeviceUUID)
	}
	return nil
}

// newest is the option for the newest version of the language that the device says it has. Compilers take 1.2 without.
func (b *dev) newest() string {
	v, _ := text(b.Library, "clGetDeviceInfo", b.DeviceInfo, b.id, abi.DeviceLanguageVersion)
	words := strings.Fields(v) // OpenCL C 3.0 of the vendor
	if len(words) < 3 || strings.HasPrefix(words[2], "1.0") || strings.HasPrefix(words[2], "1.1") {
		return ""
	}
	return "-cl-std=CL" + words[2]
}

// fine reports whether the processor and kernels may touch shared virtual memory at the same time.
func (b *dev) fine() bool { return b.svm&(abi.SVMBuffers|abi.SVMSystem) != 0 }

// hostAccess reports whether the device's memory is such memory: where that lies in the processor's memory anyway.
func (b *dev) hostAccess() bool { return b.fine() && b.unified }

// result is the error that a result is. A device that has failed is remembered: nothing works any more.
func (b *dev) result(op, call string, r abi.Result) error {
	if r == abi.Success {
		return nil
	}
	err := b.failed(call, r)
	if r.Lost() {
		return b.Lose(call, err)
	}
	return driver.Errorf(kindOf(r), b.Name, op, "%w", err)
}

// all are the device's streams.
func (b *dev) all() []*stream {
	b.mu.Lock()
	defer b.mu.Unlock()
	streams := make([]*stream, 0, len(b.streams))
	for s := range b.streams {
		streams = append(streams, s)
	}
	return streams
}

// Held is that of [base.Frees]: the library waits for nothing when something is given back.
func (b *dev) Held() bool { return false }

// pending returns tickets for all that the device's streams have to do at the moment.
func (b *dev) Pending() (all []*ticket) {
	streams := b.all()
	b.mu.Lock()
	b.going = outcome.Keep(b.going, func(t *ticket) bool { return !t.Over() })
	all = append(all, b.going...)
	b.mu.Unlock()
	for _, s := range streams {
		s.Lock()
		if t, err := s.point("release"); err == nil && !t.Over() {
			all = append(all, t)
		}
		s.Unlock()
	}
	return all
}
