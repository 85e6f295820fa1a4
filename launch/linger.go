package launch

import (
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/chorus-comms/chorus/internal/wire"
)

// lingering are ranks that are still there when the other ranks of the node have ended well. One may have work to do
// that the others have not. But a job that may lose ranks may also have left one out, which is stopped: nothing would
// ever let it go on.
type lingering struct {
	since   time.Time        // the last end of another rank
	look    <-chan time.Time // when to look next; nil: there are none
	told    bool             // the launcher has said that it waits
	stopped map[*process]bool
	given   map[*process]time.Time // given up, since when; they may end as they like
}

// lingers looks again later if ranks linger after others have ended.
func (a *attempt) lingers() {
	a.linger.look = nil
	well := slices.ContainsFunc(a.ended, func(e exit) bool { return e.ok() })
	if a.failure == nil && len(a.alive) > 0 && well {
		a.linger.look = time.After(a.job.Grace / 2)
	}
}

// look ends ranks that may be lost and that have been stopped at this look and the one before, and says once that the
// launcher waits for the others.
func (a *attempt) look() {
	l := &a.linger
	before := l.stopped
	l.stopped = map[*process]bool{}
	var waiting, stopped, ending []int
	for _, p := range slices.SortedFunc(maps.Keys(a.alive), func(x, y *process) int { return x.rank - y.rank }) {
		since, given := l.given[p]
		l.stopped[p] = p.stopped()
		switch {
		case given:
			if time.Since(since) > a.job.Grace {
				p.signal(syscall.SIGKILL)
			}
			continue
		case l.stopped[p] && before[p] && a.lost < a.job.MayLose:
			a.lost++
			ending = append(ending, p.rank)
			l.giveUp(p)
			continue
		case l.stopped[p]:
			stopped = append(stopped, p.rank)
		}
		waiting = append(waiting, p.rank)
	}
	ago := seconds(time.Since(l.since))
	if len(ending) > 0 {
		a.console.printf("ending %s, stopped by a signal: the other ranks of this node have ended, the last %s ago, "+
			"and the job may lose so many", wire.NamedRanks(ending), ago)
	}
	if len(waiting) > 0 && len(ending) == 0 && !l.told && time.Since(l.since) >= a.job.Grace {
		l.told = true
		note := ""
		if len(stopped) > 0 {
			note = "; stopped by a signal: " + wire.NamedRanks(stopped)
		}
		a.console.printf("waiting for %s; the other ranks of this node have ended, the last %s ago%s",
			wire.NamedRanks(waiting), ago, note)
	}
	a.lingers()
}

// giveUp ends a rank that counts as lost.
func (l *lingering) giveUp(p *process) {
	if l.given == nil {
		l.given = map[*process]time.Time{}
	}
	l.given[p] = time.Now()
	p.signal(syscall.SIGTERM)
	p.signal(syscall.SIGCONT) // a stopped process notices nothing else
}

// stopped reports whether the process is stopped by a signal, such as SIGSTOP, and not by a debugger.
func (p *process) stopped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.reaped && isStopped(p.cmd.Process.Pid)
}
