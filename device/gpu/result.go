package gpu

import (
	"sync"

	"github.com/chorus-comms/chorus/device"
)

// workResult is the result of work that can fail: of a function of the host, of a run of a graph with such functions,
// or of several together. A stream has the result of its last such work, and an event that of the stream when it was
// recorded.
type workResult struct {
	mu     sync.Mutex
	before []*workResult // what this comes after and may still fail
	left   int           // functions that have not run
	err    *device.WorkError
}

// failed returns the error of the work, or of work before it, so far; settled is whether nothing can fail any more.
func (f *workResult) failed() (err *device.WorkError, settled bool) {
	if f == nil {
		return nil, true
	}
	return f.look(map[*workResult]bool{})
}

func (f *workResult) look(seen map[*workResult]bool) (err *device.WorkError, settled bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err, true
	}
	settled = f.left == 0
	f.before = keep(f.before, func(b *workResult) bool {
		if err != nil || seen[b] {
			return true
		}
		e, over := b.look(seen)
		if err = e; err == nil {
			seen[b] = true
		}
		settled = settled && over
		return !over || e != nil
	})
	if err != nil {
		f.err, f.before = err, nil
		return err, true
	}
	return nil, settled && len(f.before) == 0
}

// after is the result of n functions that come after f, which may be nil.
func (f *workResult) after(n int) *workResult { return &workResult{before: list(f), left: n} }

// list leaves out results that can't be failures.
func list(results ...*workResult) (all []*workResult) {
	for _, f := range results {
		if err, settled := f.failed(); err != nil || !settled {
			all = append(all, f)
		}
	}
	return all
}

// merge is the result of work that comes after both.
func merge(f, g *workResult) *workResult {
	switch all := list(f, g); len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	default:
		return &workResult{before: all}
	}
}

// ran notes that a function has run.
func (f *workResult) ran(err *device.WorkError) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left--
	if f.err == nil {
		f.err = err
	}
	if f.err != nil {
		f.before = nil
	}
}
