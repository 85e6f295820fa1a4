package card

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"github.com/chorus-comms/chorus/accl"
	"github.com/chorus-comms/chorus/internal/dl"
)

// XRT says which card, and what it's loaded with.
type XRT struct {
	Index      int    // of the card
	Xclbin     string // the design, a file
	Engine     string // the kernels' names in it: "ccl_offload:{ccl_offload_0}"
	Controller string // "hostctrl:{hostctrl_0}"
}

// xrtLibrary is where XRT may be.
func xrtLibrary() dl.Source {
	name := "libxrt_coreutil.so*"
	var all []string
	if root := os.Getenv("XILINX_XRT"); root != "" {
		all = append(all, filepath.Join(root, "lib", name))
	}
	return dl.Source{Name: "XRT", Candidates: append(all, "/opt/xilinx/xrt/lib/"+name, "libxrt_coreutil.so.2",
		"libxrt_coreutil.so")}
}

// functions are those of XRT's C interface.
type functions struct {
	DeviceOpen    func(index uint32) uintptr                                         `dl:"xrtDeviceOpen"`
	DeviceClose   func(dev uintptr) int32                                            `dl:"xrtDeviceClose"`
	Load          func(dev uintptr, path string) int32                               `dl:"xrtDeviceLoadXclbinFile"`
	UUID          func(dev uintptr, out *[16]byte) int32                             `dl:"xrtDeviceGetXclbinUUID"`
	KernelOpen    func(dev uintptr, uuid *[16]byte, name string) uintptr             `dl:"xrtPLKernelOpenExclusive"`
	KernelClose   func(k uintptr) int32                                              `dl:"xrtKernelClose"`
	ReadRegister  func(k uintptr, offset uint32, into *uint32) int32                 `dl:"xrtKernelReadRegister"`
	WriteRegister func(k uintptr, offset, value uint32) int32                        `dl:"xrtKernelWriteRegister"`
	Alloc         func(dev uintptr, n uintptr, flags uint64, bank uint32) uintptr    `dl:"xrtBOAlloc"`
	Free          func(bo uintptr) int32                                             `dl:"xrtBOFree"`
	Address       func(bo uintptr) uint64                                            `dl:"xrtBOAddress"`
	Map           func(bo uintptr) unsafe.Pointer                                    `dl:"xrtBOMap"`
	Sync          func(bo uintptr, direction int32, n uintptr, offset uintptr) int32 `dl:"xrtBOSync"`
}

// XRT's constants for memory outside of banks, and for the directions of a copy.
const (
	hostOnly   = 1 << 29
	peerToPeer = 1 << 30

	toDevice   = 0
	fromDevice = 1
)

// xrtCard is a card behind XRT.
type xrtCard struct {
	*functions
	dev     uintptr
	kernels [2]uintptr
}

// OpenXRT loads a card of this machine with a design and opens its engine. The error says what is missing: the library,
// a function of it, the card, the design or a kernel.
func OpenXRT(x XRT) (Card, error) {
	lib, err := xrtLibrary().Open()
	if err != nil {
		return nil, fmt.Errorf("accl: %w", err)
	}
	var f functions
	if _, err := lib.Resolve(&f); err != nil {
		return nil, fmt.Errorf("accl: %w", err)
	}
	return f.open(x)
}

func (f *functions) open(x XRT) (_ Card, err error) {
	c := &xrtCard{functions: f}
	if c.dev = f.DeviceOpen(uint32(x.Index)); c.dev == 0 {
		return nil, fmt.Errorf("accl: XRT has no card %d", x.Index)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	var uuid [16]byte
	if r := f.Load(c.dev, x.Xclbin); r != 0 {
		return nil, fmt.Errorf("accl: card %d can't be loaded with %q: XRT returns %d", x.Index, x.Xclbin, r)
	}
	if r := f.UUID(c.dev, &uuid); r != 0 {
		return nil, fmt.Errorf("accl: card %d doesn't say what it's loaded with: XRT returns %d", x.Index, r)
	}
	names := [2]string{Engine: cmp.Or(x.Engine, "ccl_offload:{ccl_offload_0}"),
		Controller: cmp.Or(x.Controller, "hostctrl:{hostctrl_0}")}
	for k, name := range names {
		if c.kernels[k] = f.KernelOpen(c.dev, &uuid, name); c.kernels[k] == 0 {
			return nil, fmt.Errorf("accl: %q has no kernel %s that is free", x.Xclbin, name)
		}
	}
	return c, nil
}

// failed returns an error that says what XRT refused, if it did.
func failed(r int32, format string, args ...any) error {
	if r == 0 {
		return nil
	}
	return fmt.Errorf("accl: XRT returns %d: %s", r, fmt.Sprintf(format, args...))
}

func (c *xrtCard) ReadRegister(k Kernel, offset uint32) (v uint32, err error) {
	err = failed(c.functions.ReadRegister(c.kernels[k], offset, &v), "reading register %#x", offset)
	return v, err
}

func (c *xrtCard) WriteRegister(k Kernel, offset, value uint32) error {
	return failed(c.functions.WriteRegister(c.kernels[k], offset, value), "writing register %#x", offset)
}

// Alloc implements Card.
func (c *xrtCard) Alloc(n int, at accl.MemoryKind) (Memory, error) {
	m := &xrtMemory{card: c, same: at.Host || at.P2P}
	var flags uint64
	switch {
	case at.Host:
		flags = hostOnly
	case at.P2P:
		flags = peerToPeer
	}
	if m.bo = c.functions.Alloc(c.dev, uintptr(max(n, 1)), flags, uint32(at.Bank)); m.bo == 0 {
		return nil, fmt.Errorf("accl: the card has no %d bytes in bank %d", n, at.Bank)
	}
	p := c.Map(m.bo)
	if p == nil {
		return nil, errors.Join(fmt.Errorf("accl: %d bytes of the card can't be mapped", n), m.Free())
	}
	m.bytes = unsafe.Slice((*byte)(p), n)
	return m, nil
}

// Close implements Card.
func (c *xrtCard) Close() error {
	var errs []error
	for _, k := range c.kernels {
		if k != 0 {
			errs = append(errs, failed(c.KernelClose(k), "closing a kernel"))
		}
	}
	return errors.Join(append(errs, failed(c.DeviceClose(c.dev), "closing the card"))...)
}

// xrtMemory is a buffer object.
type xrtMemory struct {
	card  *xrtCard
	bo    uintptr
	bytes []byte
	same  bool // as the card's
}

func (m *xrtMemory) Addr() uint64  { return m.card.Address(m.bo) }
func (m *xrtMemory) Bytes() []byte { return m.bytes }

func (m *xrtMemory) ToDevice(offset, n int) error   { return m.sync(toDevice, offset, n) }
func (m *xrtMemory) FromDevice(offset, n int) error { return m.sync(fromDevice, offset, n) }

func (m *xrtMemory) sync(direction int32, offset, n int) error {
	if m.same || n == 0 {
		return nil
	}
	return failed(m.card.Sync(m.bo, direction, uintptr(n), uintptr(offset)), "copying %d bytes", n)
}

func (m *xrtMemory) Free() error { return failed(m.card.Free(m.bo), "freeing memory") }
