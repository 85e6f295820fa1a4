package card

import "github.com/chorus-comms/chorus/accl"

// Card is a card with an engine. Its methods may be called from any goroutine.
type Card interface {
	// ReadRegister and WriteRegister reach a kernel's register, whose offset is in bytes.
	ReadRegister(k Kernel, offset uint32) (uint32, error)
	WriteRegister(k Kernel, offset, value uint32) error
	// Alloc reserves memory for the engine. Host and peer-to-peer memory is its Bytes; other has a copy there.
	Alloc(n int, at accl.MemoryKind) (Memory, error)
	Close() error
}

// Kernel is one of those that make up an engine.
type Kernel int

// The kernels.
const (
	Engine     Kernel = iota // its registers are exchange memory
	Controller               // takes the host's calls
)

// Memory is a buffer of a card.
type Memory interface {
	// Addr is where the engine sees it.
	Addr() uint64
	// Bytes is the host's view: the memory itself, or a copy that ToDevice and FromDevice bring up to date.
	Bytes() []byte
	ToDevice(offset, n int) error
	FromDevice(offset, n int) error
	Free() error
}

// The controller's registers. Arguments are at every eighth byte, addresses of two words at every twelfth.
const (
	control      = 0x00
	controlStart = 1 << 0
	controlDone  = 1 << 1 // reading it clears it
	controlIdle  = 1 << 2
)

// arguments are where a call's words go.
var arguments = [...]uint32{0x10, 0x18, 0x20, 0x28, 0x30, 0x38, 0x40, 0x48, 0x50, 0x58, 0x5C, 0x64, 0x68, 0x70, 0x74}
