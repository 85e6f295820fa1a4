// Package spare keeps a descriptor for when a process has none left: to take a call then, or to make one, and say so.
//
// Invariant: who has no spare is no worse off than without this package.
package spare

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Descriptor is one that nobody needs. The zero value has none yet; its methods may be called from any goroutine.
type Descriptor struct {
	mu   sync.Mutex
	have bool
	fd   int
}

// Keep takes a descriptor, unless there is one already.
func (d *Descriptor) Keep() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.keep()
}

func (d *Descriptor) keep() error {
	if d.have {
		return nil
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("keeping a spare descriptor: %w", err)
	}
	d.fd, d.have = fd, true
	return nil
}

// Lend gives the descriptor back to the process while use runs, which must not take long nor leave one open: others wait for it. Any goroutine of
// the process may be quicker to take it.
func (d *Descriptor) Lend(use func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop()
	use()
	d.keep()
}

// Close gives the descriptor back for good.
func (d *Descriptor) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop()
}

func (d *Descriptor) drop() {
	if d.have {
		unix.Close(d.fd)
		d.have = false
	}
}

// Wanting reports whether an error says that this process, or its host, has no descriptors or no memory left.
func Wanting(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}
