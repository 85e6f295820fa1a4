package process

import (
	"context"
	"fmt"
	"time"
)

// Ticking calls a function at an interval until the function says no or Stop is called.
type Ticking struct {
	quit, ended chan struct{}
}

// Tick begins to call a function.
func Tick(every time.Duration, f func() bool) *Ticking {
	t := &Ticking{quit: make(chan struct{}), ended: make(chan struct{})}
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

// Stop returns when the function is not running and will not be called again. It may be called twice, and on nil.
func (t *Ticking) Stop() {
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

// Sleep waits and reports whether ctx was still alive then.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Since says when something began, by the clock and by how long that is.
func Since(t time.Time) string {
	return fmt.Sprintf("since %s, for %s", t.Format(time.TimeOnly), Seconds(time.Since(t)))
}
