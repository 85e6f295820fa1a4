package native

import (
	"sync/atomic"
	"time"
)

// breakFrom breaks the communicator with a cause of which another rank has told, and which makes operations from seq on fail.
// If this rank has earlier ones to end, as the others have, it's given the time to: what it returns of an operation
// shouldn't depend on how far the others are ahead. seq 0 means at once.
func (g *group) breakFrom(seq uint64, cause error) {
	if !g.behind(seq) {
		g.breakWith(cause)
		return
	}
	g.breaking.Add(1)
	go func() {
		defer g.breaking.Add(-1)
		for end := time.Now().Add(behindTime); g.behind(seq) && time.Now().Before(end); {
			select {
			case <-g.abort.Done():
				return
			case <-time.After(behindPause):
			}
		}
		g.breakWith(cause)
	}()
}

// behind reports whether this rank has not yet ended all operations before seq.
func (g *group) behind(seq uint64) bool { return atomic.LoadUint64(&g.ended)+1 < seq }

// behindTime bounds how long a rank that is behind may take, which is forever if it waits for one that has failed. It's half of
// what ranks of one host have to learn of each other's failures; behindPause is how often it looks.
const (
	behindTime  = 500 * time.Millisecond
	behindPause = time.Millisecond
)
