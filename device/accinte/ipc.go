package accinte

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/engine"
	"github.com/chorus-comms/chorus/hostmem"
)

// handle is what another process needs to open an allocation: the memory file of the arena, by the descriptor of the
// process that has it, and the range in it.
type handle struct {
	PID           uint32
	FD            uint32
	Inode         uint64 // of the file, so that a descriptor that became another file is noticed
	Color         uint32
	Size          uint64 // of the arena
	Offset, Bytes uint64
}

const (
	handleMagic = "accinte\x01"
	handleBytes = len(handleMagic) + 4 + 4 + 8 + 4 + 8 + 8 + 8
)

func (h handle) encode() []byte {
	b, err := binary.Append([]byte(handleMagic), binary.LittleEndian, h)
	if err != nil {
		panic(err) // a struct of integers always encodes
	}
	return b
}

// decodeHandle reads a handle from an untrusted peer. All that can be checked without opening it is.
func decodeHandle(b []byte) (h handle, err error) {
	if len(b) != handleBytes || string(b[:len(handleMagic)]) != handleMagic {
		return h, fmt.Errorf("%d bytes are no IPC handle of accinte", len(b))
	}
	if _, err := binary.Decode(b[len(handleMagic):], binary.LittleEndian, &h); err != nil {
		return h, err
	}
	page := uint64(pageSize)
	if h.PID == 0 || h.FD > 1<<30 || h.Size == 0 || h.Size > 1<<46 || h.Size%page != 0 || h.Offset%page != 0 ||
		h.Bytes == 0 || h.Bytes > h.Size || h.Offset > h.Size-h.Bytes {
		return h, fmt.Errorf("the IPC handle is not consistent: %+v", h)
	}
	return h, nil
}

// IPCHandle is [driver.IPC].IPCHandle.
func (d *Driver) IPCHandle(p driver.Ptr) ([]byte, error) {
	at, err := d.Attributes(p)
	if err != nil {
		return nil, err
	}
	refuse := func(kind driver.Kind, why string) ([]byte, error) {
		return nil, driver.Errorf(kind, d.opts.Name, "IPC handle", "%v %s", p, why)
	}
	switch {
	case at.Type != driver.DeviceMemory:
		return refuse(driver.ErrWrongKind, "is not device memory")
	case at.Remote:
		return refuse(driver.ErrInvalidArgument, "was received from another process, and can't be passed on")
	case at.Base != p:
		return refuse(driver.ErrInvalidPointer, "is not where its allocation begins: "+at.Base.String())
	}
	a := d.arenas[at.Device]
	if !a.seg.Shared() {
		return refuse(driver.ErrUnsupported, "is in memory that can't be shared between processes here")
	}
	inode, err := inodeOf(a.seg.FD())
	if err != nil {
		return nil, driver.Errorf(driver.ErrInternal, d.opts.Name, "IPC handle", "%w", err)
	}
	return handle{
		PID: uint32(os.Getpid()), FD: uint32(a.seg.FD()), Inode: inode, Color: uint32(a.seg.Color()),
		Size:   uint64(a.seg.Size()),
		Offset: uint64(uintptr(p) - uintptr(a.mirror)), Bytes: uint64(at.Bytes),
	}.encode(), nil
}

// imports are the arenas of other processes that are mapped here.
type imports struct {
	mu   sync.Mutex
	list atomic.Pointer[[]*imported] // replaced, never changed, so that contains takes no lock
}

// imported is an arena of another process, with its mirror here.
type imported struct {
	pid     uint32
	inode   uint64
	mapping *hostmem.Mapping
	mirror  unsafe.Pointer
	size    int
	opens   map[driver.Ptr]*opened // by pointer here; under imports.mu
	held    int                    // allocations that may still be in use
}

// opened is an allocation of another process.
type opened struct{ times, dev int }

func (im *imports) contains(p uintptr) bool {
	if l := im.list.Load(); l != nil {
		for _, i := range *l {
			if p-uintptr(i.mirror) < uintptr(i.size) {
				return true
			}
		}
	}
	return false
}

func (im *imports) snapshot() []*imported {
	if l := im.list.Load(); l != nil {
		return *l
	}
	return nil
}

// IPCOpen is [driver.IPC].IPCOpen. The other process must be alive, of the same user, and visible here.
func (d *Driver) IPCOpen(dev int, data []byte) (driver.Ptr, error) {
	if err := d.Check("open IPC handle", dev); err != nil {
		return 0, err
	}
	h, err := decodeHandle(data)
	if err != nil {
		return 0, driver.Errorf(driver.ErrInvalidArgument, d.name(dev), "open IPC handle", "%w", err)
	}
	if int(h.PID) == os.Getpid() {
		return 0, driver.Errorf(driver.ErrInvalidArgument, d.name(dev), "open IPC handle",
			"the handle is of this process: use the pointer")
	}
	im := &d.imports
	im.mu.Lock()
	defer im.mu.Unlock()
	i, err := im.arena(h)
	if err != nil {
		return 0, driver.Errorf(driver.ErrInvalidArgument, d.name(dev), "open IPC handle", "memory of process %d: %w", h.PID,
			err)
	}
	p := driver.Ptr(uintptr(i.mirror)).Add(int(h.Offset))
	if o := i.opens[p]; o != nil {
		if o.dev != dev {
			return 0, driver.Errorf(driver.ErrWrongDevice, d.name(dev), "open IPC handle", "%v is open as memory of %s", p,
				d.name(o.dev))
		}
		o.times++
		return p, nil
	}
	i.opens[p] = &opened{times: 1, dev: dev}
	i.held++
	d.space.Add(&engine.Alloc{Base: p, Bytes: int(h.Bytes), View: unsafe.Add(i.mapping.Base(), int(h.Offset)),
		Type:   driver.DeviceMemory,
		Device: dev, Remote: true, Release: func() {
			im.mu.Lock()
			defer im.mu.Unlock()
			i.held--
			im.tidy(i)
		}})
	return p, nil
}

// arena returns the mapped arena that a handle is about, and maps it if it's new. The lock is held.
func (im *imports) arena(h handle) (*imported, error) {
	for _, i := range im.snapshot() {
		if i.pid == h.PID && i.inode == h.Inode {
			if h.Offset+h.Bytes > uint64(i.size) {
				return nil, fmt.Errorf("%d bytes at %d leave its %d bytes", h.Bytes, h.Offset, i.size)
			}
			return i, nil
		}
	}
	fd, err := openOf(h.PID, h.FD, h.Inode)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	m, err := hostmem.Map(fd, int64(h.Size), int(h.Color))
	if err != nil {
		return nil, err
	}
	mirror, err := reserve(int(h.Size))
	if err != nil {
		return nil, errors.Join(err, m.Unmap())
	}
	i := &imported{pid: h.PID, inode: h.Inode, mapping: m, mirror: mirror, size: int(h.Size),
		opens: map[driver.Ptr]*opened{}}
	list := append([]*imported{i}, im.snapshot()...)
	im.list.Store(&list)
	return i, nil
}

// openOf opens the memory file that another process has under a descriptor.
func openOf(pid, fd uint32, inode uint64) (int, error) {
	own, err := unix.Open(fmt.Sprintf("/proc/%d/fd/%d", pid, fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return 0, errors.New("it has ended, is in another process namespace, or has closed the device")
	} else if err != nil {
		return 0, fmt.Errorf("open its memory: %w", err)
	}
	is, err := inodeOf(own)
	if err == nil && is != inode {
		err = errors.New("it has closed the device, and uses the descriptor for something else")
	}
	if err != nil {
		unix.Close(own)
		return 0, err
	}
	return own, nil
}

func inodeOf(fd int) (uint64, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return st.Ino, err
}

// tidy unmaps an arena that nothing is open of. The lock is held.
func (im *imports) tidy(i *imported) {
	if i.held > 0 {
		return
	}
	var list []*imported
	for _, o := range im.snapshot() {
		if o != i {
			list = append(list, o)
		}
	}
	im.list.Store(&list)
	_ = unix.MunmapPtr(i.mirror, uintptr(i.size)) // of what we mapped: can fail only by a bug
	_ = i.mapping.Unmap()
}

// IPCClose is [driver.IPC].IPCClose.
func (d *Driver) IPCClose(p driver.Ptr) error {
	im := &d.imports
	im.mu.Lock()
	last := false
	var o *opened
	for _, i := range im.snapshot() {
		if o = i.opens[p]; o != nil {
			if o.times--; o.times == 0 {
				delete(i.opens, p)
				last = true
			}
			break
		}
	}
	im.mu.Unlock()
	if o == nil {
		return driver.Errorf(driver.ErrInvalidPointer, d.opts.Name, "close IPC handle",
			"%v was not opened from another process, or was closed before", p)
	}
	if !last {
		return nil
	}
	return d.space.Remove("close IPC handle", p, func(*engine.Alloc) error { return nil })
}
