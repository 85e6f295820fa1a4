package card

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/chorus-comms/chorus/accl"
)

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

// OpenCoyote says why no card with Coyote can be opened: Coyote's library is one of C++ templates, with no interface
// that can be found at run time. A program that is linked with it fills a Coyote.
func OpenCoyote() (*Coyote, error) {
	for _, pattern := range []string{"/dev/coyote*", "/dev/fpga*"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return nil, fmt.Errorf("accl: %s is there, but Coyote's library can't be opened at run time: fill a card.Coyote: %w",
				found[0], errors.ErrUnsupported)
		}
	}
	return nil, fmt.Errorf("accl: this machine has no card with Coyote: %w", errors.ErrUnsupported)
}

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
