package sys

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
)

// A SpareFD is a file descriptor kept in reserve for when a process has none left: to accept or make a connection then,
// and report it. A listener without one is no worse off than without this type. The zero value has none yet; its
// methods may be called from any goroutine.
type SpareFD struct {
	mu   sync.Mutex
	file *os.File // nil: none
}

// Keep takes a descriptor, unless there is one already.
func (d *SpareFD) Keep() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.keep()
}

func (d *SpareFD) keep() error {
	if d.file != nil {
		return nil
	}
	file, err := openSpare()
	if err != nil {
		return fmt.Errorf("keeping a spare descriptor: %w", err)
	}
	d.file = file
	return nil
}

// Lend gives the descriptor back to the process while use runs, which must not take long nor leave one open: others
// wait for it. Any goroutine of the process may be quicker to take it.
func (d *SpareFD) Lend(use func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop()
	use()
	d.keep()
}

// Close gives the descriptor back for good.
func (d *SpareFD) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop()
}

func (d *SpareFD) drop() {
	if d.file != nil {
		d.file.Close()
		d.file = nil
	}
}

// OutOfDescriptors reports whether an error says that this process, or its host, has no descriptors or no memory left.
func OutOfDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}
