package card

import "github.com/chorus-comms/chorus/accl"

// Coyote is a card with Coyote's shell, as a program that has its library gives it: Read and Write reach the registers
// of the application, and Allocate returns memory at whose address in this process the card sees it, too.
type Coyote struct {
	Read     func(offset uint32) (uint32, error)
	Write    func(offset, value uint32) error
	Allocate func(n int, at accl.MemoryKind) (Memory, error)
	Shut     func() error
}

// coyoteBase is where the kernels' registers begin.
var coyoteBase = [2]uint32{Engine: 0, Controller: 0x2000}

func (c *Coyote) ReadRegister(k Kernel, offset uint32) (uint32, error) {
	return c.Read(coyoteBase[k] + offset)
}

func (c *Coyote) WriteRegister(k Kernel, offset, value uint32) error {
	return c.Write(coyoteBase[k]+offset, value)
}

// Alloc implements Card.
func (c *Coyote) Alloc(n int, at accl.MemoryKind) (Memory, error) { return c.Allocate(n, at) }

// Close implements Card.
func (c *Coyote) Close() error { return c.Shut() }
