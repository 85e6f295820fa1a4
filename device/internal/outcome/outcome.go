// Package outcome keeps what became of work that was enqueued on streams, for drivers over libraries that know nothing
// of failures of functions of the host.
package outcome

import (
	"sync"

	"github.com/chorus-comms/chorus/device/driver"
)

// Result is that of work that can fail: of a function of the host, of a run of a graph with such functions, or of
// several together. A stream has the result of its last such work, and an event that of the stream when it was
// recorded.
type Result struct {
	mu     sync.Mutex
	before []*Result // what this comes after and may still fail
	left   int       // functions that have not run
	err    *driver.WorkError
}

// Failed returns the error of the work, or of work before it, so far; settled is whether nothing can fail any more.
func (f *Result) Failed() (err *driver.WorkError, settled bool) {
	if f == nil {
		return nil, true
	}
	return f.look(map[*Result]bool{})
}

func (f *Result) look(seen map[*Result]bool) (err *driver.WorkError, settled bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err, true
	}
	settled = f.left == 0
	f.before = Keep(f.before, func(b *Result) bool {
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

// After is the result of n functions that come after f, which may be nil.
func (f *Result) After(n int) *Result { return &Result{before: list(f), left: n} }

// list leaves out results that can't be failures.
func list(results ...*Result) (all []*Result) {
	for _, f := range results {
		if err, settled := f.Failed(); err != nil || !settled {
			all = append(all, f)
		}
	}
	return all
}

// Merge is the result of work that comes after both.
func Merge(f, g *Result) *Result {
	switch all := list(f, g); len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	default:
		return &Result{before: all}
	}
}

// Ran notes that a function has run.
func (f *Result) Ran(err *driver.WorkError) {
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

// Keep leaves in a list what f wants to keep.
func Keep[T any](list []T, f func(T) bool) []T {
	kept := list[:0]
	for _, x := range list {
		if f(x) {
			kept = append(kept, x)
		}
	}
	clear(list[len(kept):])
	return kept
}
