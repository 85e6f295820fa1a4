package opencl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/hostmem"
)

// mapped is a driver whose devices' kernels can touch any memory of the host: theirs is memory that other processes can
// map ([driver.IPC]).
type mapped struct{ hosted }

var _ driver.IPC = mapped{}

// handle is what another process needs: the memory file, by the descriptor of the process that has it, and the range.
type handle struct {
	Magic         [8]byte
	PID, FD       uint32
	Inode         uint64 // of the file, so that a descriptor that became another file is noticed
	Color         uint64
	Size          uint64 // of the file
	Offset, Bytes uint64
}

var handleMagic = [8]byte([]byte("chorusmo"))

// remote is memory of another process.
type remote struct {
	handle  handle
	mapping *hostmem.Mapping
	opens   int // guarded by the allocations' lock
}

// maps reports whether the device's memory is memory of the host's that other processes can map.
func (b *dev) maps() bool { return b.system && b.hostAccess() }

// allocateMapped allocates memory of the host.
func (b *dev) allocateMapped(a *allocation) bool {
	block, err := hostmem.Alloc(a.bytes)
	if err != nil {
		return false
	}
	a.block, a.base, a.free = block, driver.Ptr(block.Pointer()), block.Free
	return true
}

// IPCHandle is [driver.IPC].IPCHandle.
func (d mapped) IPCHandle(p driver.Ptr) ([]byte, error) {
	const op = "IPC handle"
	refuse := func(kind driver.Kind, format string, args ...any) ([]byte, error) {
		return nil, driver.Errorf(kind, name, op, format, args...)
	}
	if p == 0 {
		return refuse(driver.ErrInvalidPointer, "null")
	}
	a := d.memory.known(p)
	switch {
	case a == nil || a.typ != driver.DeviceMemory:
		return refuse(driver.ErrWrongKind, "%v is not device memory", p)
	case a.remote != nil:
		return refuse(driver.ErrInvalidArgument, "%v was received from another process, and can't be passed on", p)
	case a.base != p:
		return refuse(driver.ErrInvalidPointer, "%v is not where its allocation begins: %v", p, a.base)
	case a.block == nil || !a.block.Segment().Shared():
		return refuse(driver.ErrUnsupported, "%v is in memory that can't be shared between processes here", p)
	}
	s := a.block.Segment()
	inode, err := inodeOf(s.FD())
	if err != nil {
		return refuse(driver.ErrInternal, "%w", err)
	}
	h := handle{Magic: handleMagic, PID: uint32(os.Getpid()), FD: uint32(s.FD()), Inode: inode, Color: uint64(s.Color()),
		Size: uint64(s.Size()), Offset: uint64(a.block.Offset()), Bytes: uint64(a.bytes)}
	return binary.Append(nil, binary.LittleEndian, h)
}

// decode reads a handle from an untrusted peer.
func decode(data []byte) (h handle, err error) {
	if len(data) != binary.Size(h) {
		return h, fmt.Errorf("%d bytes are no IPC handle", len(data))
	}
	if _, err := binary.Decode(data, binary.LittleEndian, &h); err != nil {
		return h, err
	}
	switch {
	case h.Magic != handleMagic, h.PID == 0, h.FD > 1<<30, h.Size == 0, h.Size > 1<<46, h.Bytes == 0, h.Bytes > h.Size,
		h.Offset > h.Size-h.Bytes, h.Offset%alignment != 0:
		return h, errors.New("it is no IPC handle of this kind")
	case int(h.PID) == os.Getpid():
		return h, errors.New("the handle is of this process, which has what it describes")
	}
	return h, nil
}

// IPCOpen is [driver.IPC].IPCOpen. The other process must be alive, of the same user, and visible here.
func (d mapped) IPCOpen(dev int, data []byte) (driver.Ptr, error) {
	const op = "open IPC handle"
	b, err := d.dev(op, dev)
	if err != nil {
		return 0, err
	}
	h, err := decode(data)
	if err != nil {
		return 0, driver.Errorf(driver.ErrInvalidArgument, b.name, op, "%w", err)
	}
	if a := d.memory.again(h, b); a != nil {
		return a.base, nil
	}
	m, err := h.open()
	if err != nil {
		return 0, driver.Errorf(driver.ErrInvalidArgument, b.name, op, "memory of process %d: %w", h.PID, err)
	}
	a := &allocation{base: driver.Ptr(m.Base()).Add(int(h.Offset)), bytes: int(h.Bytes), typ: driver.DeviceMemory, b: b,
		remote: &remote{handle: h, mapping: m, opens: 1}}
	d.memory.add(a)
	return a.base, nil
}

// again counts that memory of another process was opened once more; nil if it isn't open.
func (as *allocations) again(h handle, b *dev) *allocation {
	as.mu.Lock()
	defer as.mu.Unlock()
	for _, a := range as.list {
		if a.remote != nil && a.remote.handle == h && a.b == b && !a.freed {
			a.remote.opens++
			return a
		}
	}
	return nil
}

// open maps the memory file that another process has under a descriptor.
func (h handle) open() (*hostmem.Mapping, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/fd/%d", h.PID, h.FD), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, errors.New("it has ended, is in another process namespace, or has freed it")
	} else if err != nil {
		return nil, fmt.Errorf("open its memory: %w", err)
	}
	defer unix.Close(fd)
	if is, err := inodeOf(fd); err != nil || is != h.Inode {
		return nil, fmt.Errorf("it has freed it, and uses the descriptor for something else (%w)", err)
	}
	return hostmem.Map(fd, int64(h.Size), int(h.Color))
}

func inodeOf(fd int) (uint64, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return st.Ino, err
}

// IPCClose is [driver.IPC].IPCClose. The memory stays mapped until the streams have done what they have to do.
func (d mapped) IPCClose(p driver.Ptr) error {
	a, last := d.memory.close(p)
	if a == nil {
		return driver.Errorf(driver.ErrInvalidPointer, name, "close IPC handle", "%v was not opened", p)
	}
	if last {
		d.deferred.add("release", a.b, a.b.space.devs, 0, func() {
			d.memory.remove(a)
			_ = a.remote.mapping.Unmap()
		})
	}
	return nil
}

// close counts down, and reports whether that was the last time; nil if p isn't memory of another process.
func (as *allocations) close(p driver.Ptr) (a *allocation, last bool) {
	as.mu.Lock()
	defer as.mu.Unlock()
	i := as.search(p)
	if i < 0 || as.list[i].base != p || as.list[i].remote == nil || as.list[i].freed {
		return nil, false
	}
	a = as.list[i]
	a.remote.opens--
	a.freed = a.remote.opens == 0
	return a, a.freed
}
