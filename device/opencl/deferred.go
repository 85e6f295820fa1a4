package opencl

import "github.com/chorus-comms/chorus/device/internal/outcome"

// deferredFrees holds resources that are given back when the work that may use them is done.
type deferredFrees struct{ frees outcome.Frees[*dev, *ticket] }

// add gives back a resource of a device when all work that some devices have at the moment is done; at once if there's
// none.
func (m *deferredFrees) add(op string, of *dev, devs []*dev, bytes int, release func()) {
	var until []*ticket
	for _, b := range devs {
		until = append(until, b.pending(op)...)
	}
	m.frees.Add(of, until, bytes, release)
}

// reap releases a device's resources whose work is done, and returns how many bytes of its memory remain.
func (m *deferredFrees) reap(b *dev) (bytes int) { return m.frees.Reap(b, (*ticket).passed) }
