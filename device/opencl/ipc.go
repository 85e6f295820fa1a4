package opencl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/base"
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
}

// maps reports whether the device's memory is memory of the host's that other processes can map.
func (b *dev) maps() bool { return b.system && b.hostAccess() }

// allocateMapped allocates memory of the host.
func (b *dev) allocateMapped(a *allocation) bool {
	block, err := hostmem.Alloc(a.Bytes)
	if err != nil {
		return false
	}
	a.block, a.Base, a.free = block, driver.Ptr(block.Pointer()), block.Free
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
	a, _ := d.memory.Find(p)
	switch {
	case a == nil || a.Type() != driver.DeviceMemory:
		return refuse(driver.ErrWrongKind, "%v is not device memory", p)
	case a.remote != nil:
		return refuse(driver.ErrInvalidArgument, "%v was received from another process, and can't be passed on", p)
	case a.Base != p:
		return refuse(driver.ErrInvalidPointer, "%v is not where its allocation begins: %v", p, a.Base)
	case a.block == nil || !a.block.Segment().Shared():
		return refuse(driver.ErrUnsupported, "%v is in memory that can't be shared between processes here", p)
	}
	s := a.block.Segment()
	inode, err := inodeOf(s.FD())
	if err != nil {
		return refuse(driver.ErrInternal, "%w", err)
	}
	h := handle{Magic: handleMagic, PID: uint32(os.Getpid()), FD: uint32(s.FD()), Inode: inode, Color: uint64(s.Color()),
		Size: uint64(s.Size()), Offset: uint64(a.block.Offset()), Bytes: uint64(a.Bytes)}
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
		return 0, driver.Errorf(driver.ErrInvalidArgument, b.Name, op, "%w", err)
	}
	same := func(a *allocation, freed bool) bool { return a.remote.handle == h && a.b == b && !freed }
	if a, open := d.memory.Again(same); open {
		return a.Base, nil
	}
	m, err := h.open()
	if err != nil {
		return 0, driver.Errorf(driver.ErrInvalidArgument, b.Name, op, "memory of process %d: %w", h.PID, err)
	}
	a := &allocation{Allocation: base.Allocation{Base: driver.Ptr(m.Base()).Add(int(h.Offset)), Bytes: int(h.Bytes),
		On: &b.Device}, b: b, remote: &remote{handle: h, mapping: m}}
	d.memory.Open(a, func(*allocation, bool) bool { return false })
	return a.Base, nil
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
	a, last, err := d.memory.Close(name, p)
	if err != nil {
		return err
	}
	if last {
		d.deferred.Add(a.b, a.b.space.devs, 0, func() {
			d.memory.Remove(a)
			_ = a.remote.mapping.Unmap()
		})
	}
	return nil
}
