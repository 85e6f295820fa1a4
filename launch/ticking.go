package launch

import "time"

// ticking calls a function at an interval until the function says no or stop is called.
type ticking struct {
	quit, ended chan struct{}
}

func tick(every time.Duration, f func() bool) *ticking {
	t := &ticking{quit: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(t.ended)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for f() {
			select {
			case <-ticker.C:
			case <-t.quit:
				return
			}
		}
	}()
	return t
}

// stop returns when the function is not running and will not be called again. It may be called twice, and on nil.
func (t *ticking) stop() {
	if t == nil {
		return
	}
	select {
	case <-t.quit:
	default:
		close(t.quit)
	}
	<-t.ended
}
