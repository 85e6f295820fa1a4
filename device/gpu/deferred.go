package gpu

import "github.com/chorus-comms/chorus/device/internal/outcome"

// deferredFrees holds resources that are given back when the work that may use them is done. A call of the library
// before that would wait for the whole GPU, and one after it may still wait for the GPU's later work. So only threads
// that use a GPU give back what is of that GPU: its work may be a collective that waits for another GPU's.
type deferredFrees struct{ frees outcome.Frees[*gpu, *ticket] }

// add gives back a resource of GPU of when all work that streams of some GPUs have at the moment is done; at once if
// there's none.
func (m *deferredFrees) add(of *gpu, gpus []*gpu, bytes int, release func()) {
	m.frees.Add(of, pendingOf(gpus), bytes, release)
}

// later is add, but leaves all to reap.
func (m *deferredFrees) later(of *gpu, gpus []*gpu, release func()) {
	m.frees.Later(of, pendingOf(gpus), 0, release)
}

// pendingOf is the work that GPUs have at the moment.
func pendingOf(gpus []*gpu) (all []*ticket) {
	for _, b := range gpus {
		all = append(all, b.pending()...)
	}
	return all
}

// reap releases a GPU's resources whose work is done, and returns how many bytes of its memory remain.
func (m *deferredFrees) reap(b *gpu) (bytes int) { return m.frees.Reap(b, (*ticket).over) }
