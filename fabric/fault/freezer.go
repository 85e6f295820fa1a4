package fault

import "sync"

// A freezer stops a rank as a whole.
type freezer struct {
	mu      sync.Mutex
	thawed  chan struct{} // closed by Thaw; nil: not frozen
	backlog bool          // events wait for earlier ones
	events  []func()      // what happened to the rank meanwhile
	calls   int           // until the armed function runs
	armed   func()
}

// Freeze stops the rank as a signal would stop its process: its calls of the fabric don't
// return, and it gets no events, until Thaw. Messages that it had sent before still arrive.
func (x *Faults) Freeze() {
	f := &x.freezer
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.thawed == nil {
		f.thawed, f.backlog = make(chan struct{}), true
	}
}

// Thaw lets a frozen rank go on, and get the events meanwhile in their order.
func (x *Faults) Thaw() {
	f := &x.freezer
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.thawed == nil {
		return
	}
	close(f.thawed)
	f.thawed = nil
	for len(f.events) > 0 && f.thawed == nil {
		tell := f.events[0]
		f.events = f.events[1:]
		f.mu.Unlock()
		tell() // it may call the fabric
		f.mu.Lock()
	}
	f.backlog = f.thawed != nil
}

// Kill ends the rank for its peers as a crash does, and freezes it. It reports whether the wrapped fabric can do that,
// by a method Kill(cause error), as mem's can; the others' ranks are processes, which signals end.
func (x *Faults) Kill(cause error) bool {
	k, ok := x.bare.(interface{ Kill(cause error) })
	if ok {
		x.Freeze()
		k.Kill(cause)
	}
	return ok
}

// Arm has f run in the middle of the rank's work, on the goroutine that calls the fabric, or Touch,
// as the calls-th one from now. It replaces what was armed before; nil disarms.
func (x *Faults) Arm(calls int, f func()) {
	x.freezer.mu.Lock()
	defer x.freezer.mu.Unlock()
	x.freezer.calls, x.freezer.armed = calls, f
}

// Touch is what every call of the fabric does first: it counts, and doesn't return while the rank is
// frozen. A wait on shared memory, which no fabric sees, can do it, too.
func (x *Faults) Touch() {
	f := &x.freezer
	f.mu.Lock()
	do := f.armed
	if do != nil {
		if f.calls--; f.calls > 0 {
			do = nil
		} else {
			f.armed = nil
		}
	}
	thawed := f.thawed
	f.mu.Unlock()
	if do != nil {
		do()
		f.mu.Lock()
		thawed = f.thawed
		f.mu.Unlock()
	}
	if thawed != nil {
		<-thawed
	}
}

// event passes an event to the rank, now or when it thaws.
func (f *freezer) event(tell func()) {
	f.mu.Lock()
	if f.backlog {
		f.events = append(f.events, tell)
		f.mu.Unlock()
		return
	}
	f.mu.Unlock()
	tell()
}
