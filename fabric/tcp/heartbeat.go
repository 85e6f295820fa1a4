package tcp

import (
	"fmt"
	"time"
)

// beats is how many pings a peer gets in the time that it may be silent.
const beats = 3

// beat sends pings to every connected peer, and reports those lost from which nothing has come for the
// time of a heartbeat: a cut cable gives no error by itself.
func (f *Fabric) beat() {
	t := time.NewTicker(f.o.heartbeat / beats)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-f.ctx.Done():
			return
		}
		now := f.ticks.Add(1)
		for _, p := range f.peers.All() {
			p.beat(now)
		}
	}
}

func (p *peer) beat(now int64) {
	p.mu.Lock()
	if p.err != nil || p.pipes[0].state != up {
		p.mu.Unlock()
		return
	}
	if silent := now - p.heard.Load(); silent > beats {
		p.mu.Unlock()
		p.fail(fmt.Errorf("nothing heard of it for %v", time.Duration(silent)*p.f.o.heartbeat/beats))
		return
	}
	if !p.pinged {
		p.pinged = true
		p.note(kindPing, 0, 0)
	}
	p.mu.Unlock()
	p.pipes[0].write(portion)
}
