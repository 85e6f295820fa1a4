package accl

import (
	"fmt"
	"unsafe"

	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/accl/engine"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// Operand is what a call takes or gives: a *Buffer, or a KernelStream.
type Operand interface {
	dataType() abi.DataType
}

// KernelStream is an operand that comes from the kernel beside the engine, or goes there.
type KernelStream abi.DataType

func (s KernelStream) dataType() abi.DataType { return abi.DataType(s) }

// Buffer is memory of an engine, with its twin on the host, which is the same memory where the host can touch it.
type Buffer struct {
	driver *Driver
	typ    abi.DataType
	at     MemoryKind
	addr   uint64
	bytes  []byte // the host's
	same   bool   // as the engine's
	whole  *Buffer
}

func (b *Buffer) dataType() abi.DataType { return b.typ }

// BufferOption says where a buffer lies.
type BufferOption func(*MemoryKind)

// HostOnly puts a buffer into the host's memory, where the engine fetches it.
func HostOnly() BufferOption { return func(p *MemoryKind) { p.Host = true } }

// P2P puts a buffer where other devices reach it, too.
func P2P() BufferOption { return func(p *MemoryKind) { p.P2P = true } }

// Bank puts a buffer into a bank of the device's memory.
func Bank(n int) BufferOption { return func(p *MemoryKind) { p.Bank = n } }

// Buffer returns a buffer of so many zeros.
func (d *Driver) Buffer(count int, t abi.DataType, opts ...BufferOption) (*Buffer, error) {
	return d.newBuffer(nil, count*t.Size(), t, opts)
}

// Wrap returns a buffer whose twin on the host is memory of the caller's, which it keeps until Free. Where the engine
// can reach the memory, it's the buffer.
func (d *Driver) Wrap(host []byte, t abi.DataType, opts ...BufferOption) (*Buffer, error) {
	if host == nil {
		host = []byte{}
	}
	return d.newBuffer(host, len(host), t, opts)
}

func (d *Driver) newBuffer(host []byte, bytes int, t abi.DataType, opts []BufferOption) (*Buffer, error) {
	if bytes < 0 || t.Size() == 0 || bytes%t.Size() != 0 {
		return nil, fmt.Errorf("accl: a buffer of %d bytes for elements of %v", bytes, t)
	}
	b := &Buffer{driver: d, typ: t, bytes: host}
	for _, o := range opts {
		o(&b.at)
	}
	b.whole = b
	if host != nil && !d.cfg.Staged {
		b.addr, b.same = d.dev.Map(host, b.at)
	}
	if !b.same {
		addr, mem, err := d.dev.Alloc(bytes, b.at)
		if err != nil {
			return nil, err
		}
		switch b.addr = addr; {
		case host == nil && mem != nil:
			b.bytes, b.same = mem, true
		case host == nil:
			b.bytes = engine.Alloc(bytes)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.buffers[b] = struct{}{}
	return b, nil
}

// Len is how many elements the buffer has, and Type what they are.
func (b *Buffer) Len() int           { return len(b.bytes) / b.typ.Size() }
func (b *Buffer) Type() abi.DataType { return b.typ }

// Bytes is the host's memory of the buffer.
func (b *Buffer) Bytes() []byte { return b.bytes }

// Addr is where the buffer lies for the engine.
func (b *Buffer) Addr() uint64 { return b.addr }

// MemoryKind returns the memory that it's in.
func (b *Buffer) MemoryKind() MemoryKind { return b.at }

// Shared reports whether the host's memory of the buffer is the engine's: syncing it does nothing.
func (b *Buffer) Shared() bool { return b.same }

// Elements is the host's memory as a slice. It panics if T isn't the size of the buffer's elements.
func Elements[T dtype.Element](b *Buffer) []T {
	var x T
	if int(unsafe.Sizeof(x)) != b.typ.Size() {
		panic(fmt.Sprintf("accl: elements of %v as %T", b.typ, x))
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b.bytes))), b.Len())
}

// Slice is the buffer's elements from start to end-1. It shares the buffer's memory, and isn't freed by itself.
func (b *Buffer) Slice(start, end int) *Buffer {
	if start < 0 || start > end || end > b.Len() {
		panic(fmt.Sprintf("accl: elements %d to %d of a buffer of %d", start, end, b.Len()))
	}
	s, size := *b, b.typ.Size()
	s.bytes = b.bytes[start*size : end*size : end*size]
	s.addr += uint64(start * size)
	return &s
}

// SyncToDevice copies the host's memory to the engine's, SyncFromDevice the other way, where they aren't the same.
func (b *Buffer) SyncToDevice() error {
	if !b.apart() {
		return nil
	}
	return b.driver.dev.WriteMemory(b.addr, b.at, b.bytes)
}

// SyncFromDevice: see SyncToDevice.
func (b *Buffer) SyncFromDevice() error {
	if !b.apart() {
		return nil
	}
	return b.driver.dev.ReadMemory(b.addr, b.at, b.bytes)
}

// apart reports whether syncing the buffer copies something, and counts its bytes.
func (b *Buffer) apart() bool {
	n := uint64(len(b.bytes))
	if b.same {
		b.driver.mapped.Add(n)
		return false
	}
	b.driver.staged.Add(n)
	return n > 0
}

// Tensor returns a buffer that is the memory of a tensor, on the host or on a device whose memory this process can
// reach. The engine maps it, peer to peer, so that nothing is copied through the host, unless the driver stages. The
// caller orders calls on it after a stream's work on the tensor. The tensor is contiguous, and its memory stays until
// Free.
func (d *Driver) Tensor(t *tensor.Tensor) (*Buffer, error) {
	typ := abi.DataTypeOf(t.DType())
	if typ == abi.None || !t.IsContiguous() {
		return nil, fmt.Errorf("accl: a buffer of %v", t)
	}
	view, err := t.EngineView()
	if err != nil {
		return nil, err
	}
	return d.Wrap(unsafe.Slice((*byte)(view.Pointer()), view.NBytes()), typ, P2P())
}

// Free takes the buffer's memory from the engine, when no call touches it any more. Slices free nothing, nor does
// nil.
func (b *Buffer) Free() error {
	if b == nil || b.whole != b || b.addr == 0 {
		return nil
	}
	d := b.driver
	d.mu.Lock()
	delete(d.buffers, b)
	d.mu.Unlock()
	err := d.dev.Free(b.addr, b.at)
	b.addr = 0
	return err
}
