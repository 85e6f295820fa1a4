package accinte

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/engine"
	"github.com/chorus-comms/chorus/hostmem"
	"github.com/chorus-comms/chorus/internal/sys"
)

// eventRecords is how many records of an event between processes can be under way.
const eventRecords = 31

// eventPage is the memory of an event between processes. Its contents are untrusted, since a faulty process may have
// written them: no pointer in it is followed, and no wait depends on it alone.
type eventPage struct {
	last    atomic.Uint64 // number of the last record <<pidBits | the process that made it
	bell    atomic.Uint32 // changes when a record is reached
	_       [112]byte
	records [eventRecords]eventRecord // of record n: records[n%eventRecords]
}

type eventRecord struct {
	done atomic.Uint64 // the last record here that was reached <<1 | whether it carried a failure
	pid  atomic.Uint32 // the process that made the last record here
	size atomic.Uint32 // of text
	text [112]byte     // about the failure
}

// pidBits is enough for the PIDs that Linux has: 4 million at most.
const pidBits = 22

// deadAfter is how often a wait looks whether the process that it waits for is still there.
const deadAfter = 50 * time.Millisecond

// sharedEvent is an event between processes: engine.Shared.
type sharedEvent struct {
	page  *eventPage
	seg   *hostmem.Segment // of the process that made it; nil elsewhere
	unmap func() error
	uses  atomic.Int32 // 1 for the event, and for each record and wait that is under way
}

var _ engine.Shared = (*sharedEvent)(nil)

func (v *sharedEvent) numbered(n uint64) *eventRecord { return &v.page.records[n%eventRecords] }

// Record is [engine.Shared].Record.
func (v *sharedEvent) Record() (uint64, error) {
	for {
		old := v.page.last.Load()
		n := old>>pidBits + 1
		if s := v.numbered(n); n > eventRecords && s.done.Load()>>1 < n-eventRecords && alive(s.pid.Load()) {
			return 0, driver.Errorf(driver.ErrNotReady, Name, "record",
				"%d records of the event, which other processes see, are under way", eventRecords)
		}
		if v.page.last.CompareAndSwap(old, n<<pidBits|uint64(os.Getpid())) {
			v.numbered(n).pid.Store(uint32(os.Getpid()))
			v.uses.Add(1)
			return n, nil
		}
	}
}

// Reach is [engine.Shared].Reach.
func (v *sharedEvent) Reach(n uint64, failed *driver.WorkError) {
	s, word := v.numbered(n), n<<1
	if failed != nil {
		word |= 1
		s.size.Store(uint32(copy(s.text[:], failed.Error())))
	}
	s.done.Store(word)
	v.page.bell.Add(1)
	sys.FutexWake((*uint32)(unsafe.Pointer(&v.page.bell)))
	v.drop()
}

// Last is [engine.Shared].Last.
func (v *sharedEvent) Last() uint64 { return v.page.last.Load() >> pidBits }

// Reached is [engine.Shared].Reached. A record's failure is overwritten when a later record takes its place.
func (v *sharedEvent) Reached(n uint64) (bool, *driver.WorkError) {
	s := v.numbered(n)
	word := s.done.Load()
	if word>>1 < n {
		return false, nil
	}
	if word != n<<1|1 {
		return true, nil
	}
	text := string(s.text[:min(int(s.size.Load()), len(s.text))])
	return true, otherFailed(s.pid.Load(), errors.New(text))
}

// otherFailed is the failure of another process's work.
func otherFailed(pid uint32, why error) *driver.WorkError {
	return &driver.WorkError{Device: Name, Work: fmt.Sprintf("work of process %d", pid), At: time.Now(), Err: why}
}

// Await is [engine.Shared].Await.
func (v *sharedEvent) Await(n uint64) func() *driver.WorkError {
	v.uses.Add(1)
	pid := v.numbered(n).pid.Load()
	if last := v.page.last.Load(); last>>pidBits == n {
		pid = uint32(last & (1<<pidBits - 1)) // also if the process has come no further than that
	}
	return func() *driver.WorkError {
		defer v.drop()
		for {
			bell := v.page.bell.Load()
			there := alive(pid) // before the next question: it may have reached the record and then ended
			if done, failed := v.Reached(n); done {
				return failed
			}
			if !there {
				return otherFailed(pid, errors.New("the process has ended before it was done"))
			}
			sys.FutexWait((*uint32)(unsafe.Pointer(&v.page.bell)), bell, deadAfter)
		}
	}
}

// Close is [engine.Shared].Close.
func (v *sharedEvent) Close() { v.drop() }

func (v *sharedEvent) drop() {
	if v.uses.Add(-1) == 0 {
		_ = v.unmap() // which fails only for what isn't mapped
	}
}

// eventHandle is what another process needs to open an event.
type eventHandle struct {
	PID, FD uint32
	Inode   uint64
	Color   uint32
}

const (
	eventMagic = "accevnt\x01"
	eventBytes = len(eventMagic) + 4 + 4 + 8 + 4
)

func (h eventHandle) encode() []byte {
	b, err := binary.Append([]byte(eventMagic), binary.LittleEndian, h)
	if err != nil {
		panic(err) // a struct of integers always encodes
	}
	return b
}

// decodeEventHandle reads a handle from an untrusted peer. All that can be checked without opening it is.
func decodeEventHandle(b []byte) (h eventHandle, err error) {
	if len(b) != eventBytes || string(b[:len(eventMagic)]) != eventMagic {
		return h, fmt.Errorf("%d bytes are no IPC handle of an event of accinte", len(b))
	}
	if _, err := binary.Decode(b[len(eventMagic):], binary.LittleEndian, &h); err != nil {
		return h, err
	}
	if h.PID == 0 || h.PID >= 1<<pidBits || h.FD > 1<<30 {
		return h, fmt.Errorf("the IPC handle is not consistent: %+v", h)
	}
	return h, nil
}

// IPCEventCreate is [driver.IPCEvents].IPCEventCreate.
func (d *Driver) IPCEventCreate(dev int) (driver.EventHandle, error) {
	const op = "create event"
	if err := d.Check(op, dev); err != nil {
		return 0, err
	}
	seg, err := hostmem.NewSegment(int(unsafe.Sizeof(eventPage{})))
	if errors.Is(err, unix.ENOSYS) {
		return 0, driver.Errorf(driver.ErrUnsupported, d.name(dev), op, "%w", err)
	} else if err != nil {
		return 0, driver.Errorf(driver.ErrOutOfMemory, d.name(dev), op, "%w", err)
	}
	v := &sharedEvent{page: (*eventPage)(seg.Base()), seg: seg, unmap: seg.Close}
	v.uses.Store(1)
	return d.AddEvent(op, dev, v)
}

// IPCEventHandle is [driver.IPCEvents].IPCEventHandle.
func (d *Driver) IPCEventHandle(e driver.EventHandle) ([]byte, error) {
	const op = "IPC handle"
	sh, err := d.SharedEvent(op, e)
	if err != nil {
		return nil, err
	}
	v, ok := sh.(*sharedEvent)
	if !ok || v.seg == nil {
		return nil, driver.Errorf(driver.ErrInvalidArgument, d.opts.Name, op,
			"event %#x was not made here for other processes", uintptr(e))
	}
	inode, err := inodeOf(v.seg.FD())
	if err != nil {
		return nil, driver.Errorf(driver.ErrInternal, d.opts.Name, op, "%w", err)
	}
	return eventHandle{PID: uint32(os.Getpid()), FD: uint32(v.seg.FD()), Inode: inode,
		Color: uint32(v.seg.Color())}.encode(), nil
}

// IPCEventOpen is [driver.IPCEvents].IPCEventOpen. The other process must be alive, of the same user, and visible here.
func (d *Driver) IPCEventOpen(dev int, data []byte) (driver.EventHandle, error) {
	const op = "open event"
	if err := d.Check(op, dev); err != nil {
		return 0, err
	}
	h, err := decodeEventHandle(data)
	if err != nil {
		return 0, driver.Errorf(driver.ErrInvalidArgument, d.name(dev), op, "%w", err)
	}
	if int(h.PID) == os.Getpid() {
		return 0, driver.Errorf(driver.ErrInvalidArgument, d.name(dev), op, "the handle is of this process: use the event")
	}
	fd, err := openOf(h.PID, h.FD, h.Inode)
	if err != nil {
		return 0, driver.Errorf(driver.ErrInvalidArgument, d.name(dev), op, "event of process %d: %w", h.PID, err)
	}
	defer unix.Close(fd)
	m, err := hostmem.Map(fd, int64(unsafe.Sizeof(eventPage{})), int(h.Color))
	if err != nil {
		return 0, driver.Errorf(driver.ErrInvalidArgument, d.name(dev), op, "event of process %d: %w", h.PID, err)
	}
	v := &sharedEvent{page: (*eventPage)(m.Base()), unmap: m.Unmap}
	v.uses.Store(1)
	return d.AddEvent(op, dev, v)
}
