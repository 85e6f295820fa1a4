package accinte

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/device/driver"
)

var _ driver.Threads = (*Driver)(nil)

// bound are the threads that have a current device, for stand-ins of libraries that go by that.
type bound struct {
	sync.Mutex
	threads map[int]int // devices, by the threads' ids
}

// Bind is [driver.Threads].Bind.
func (d *Driver) Bind(dev int) (unbind func(), err error) {
	if _, err := d.Properties(dev); err != nil {
		return nil, err
	}
	b, thread := &d.bound, unix.Gettid()
	b.Lock()
	defer b.Unlock()
	before, had := b.threads[thread]
	if b.threads == nil {
		b.threads = map[int]int{}
	}
	b.threads[thread] = dev
	return func() {
		b.Lock()
		defer b.Unlock()
		if b.threads[thread] = before; !had {
			delete(b.threads, thread)
		}
	}, nil
}

// Current is the calling thread's device; 0 if none is bound.
func (d *Driver) Current() int {
	d.bound.Lock()
	defer d.bound.Unlock()
	return d.bound.threads[unix.Gettid()]
}
