package engine

import "sync"

// units are what a device runs copies and kernels on. A unit that becomes free goes to the first waiter at the highest
// level.
type units struct {
	mu      sync.Mutex
	free    int
	waiting [][]chan struct{} // by level
}

func (u *units) acquire(level int) {
	u.mu.Lock()
	if u.free > 0 {
		u.free--
		u.mu.Unlock()
		return
	}
	turn := make(chan struct{})
	u.waiting[level] = append(u.waiting[level], turn)
	u.mu.Unlock()
	<-turn
}

func (u *units) release() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for level := len(u.waiting) - 1; level >= 0; level-- {
		if q := u.waiting[level]; len(q) > 0 {
			close(q[0])
			u.waiting[level] = q[1:]
			return
		}
	}
	u.free++
}
