package gpu

import (
	"sync"

	"github.com/chorus-comms/chorus/device"
)

// fate is what becomes of work that can fail: of a function of the host, of a run of a graph with such functions, or of
// what comes after several. A stream has that of its last such work, and an event that of the stream when it was
// recorded.
type fate struct {
	mu     sync.Mutex
	before []*fate // what this comes after and may still fail
	left   int     // functions that have not run
	err    *device.WorkError
}

// failed is what the work, or what it comes after, has failed with so far; settled is whether nothing can fail any
// more.
func (f *fate) failed() (err *device.WorkError, settled bool) {
	if f == nil {
		return nil, true
	}
	return f.look(map[*fate]bool{})
}

func (f *fate) look(seen map[*fate]bool) (err *device.WorkError, settled bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err, true
	}
	settled = f.left == 0
	f.before = keep(f.before, func(b *fate) bool {
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

// after is the fate of n functions that come after f, which may be nil.
func (f *fate) after(n int) *fate { return &fate{before: list(f), left: n} }

// list leaves out what can't fail.
func list(fates ...*fate) (all []*fate) {
	for _, f := range fates {
		if err, settled := f.failed(); err != nil || !settled {
			all = append(all, f)
		}
	}
	return all
}

// merge is the fate of what comes after both.
func merge(f, g *fate) *fate {
	switch all := list(f, g); len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	default:
		return &fate{before: all}
	}
}

// ran notes that a function has run.
func (f *fate) ran(err *device.WorkError) {
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
