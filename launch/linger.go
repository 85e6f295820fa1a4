package launch

import (
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/chorus-comms/chorus/internal/wire"
	"github.com/chorus-comms/chorus/launch/internal/process"
)

// lingering are ranks that are still there when the other ranks of the node have ended well. One may have work to do
// that the others have not. But a job that may lose ranks may also have left one out, which is stopped: nothing would
// ever let it go on.
type lingering struct {
	since   time.Time        // the last end of another rank
	look    <-chan time.Time // when to look next; nil: there are none
	told    bool             // the launcher has said that it waits
	stopped map[*process.Process]bool
	given   map[*process.Process]time.Time // given up, since when; they may end as they like
}

// lingers looks again later if ranks linger after others have ended.
func (a *attempt) lingers() {
	a.linger.look = nil
	well := slices.ContainsFunc(a.ended, func(e process.Exit) bool { return e.OK() })
	if a.failure == nil && len(a.alive) > 0 && well {
		a.linger.look = time.After(a.job.Grace / 2)
	}
}

// look ends ranks that may be lost and that have been stopped at this look and the one before, and says once that the
// launcher waits for the others.
func (a *attempt) look() {
	l := &a.linger
	before := l.stopped
	l.stopped = map[*process.Process]bool{}
	var waiting, stopped, ending []int
	for _, p := range slices.SortedFunc(maps.Keys(a.alive), func(x, y *process.Process) int { return x.Rank - y.Rank }) {
		since, given := l.given[p]
		l.stopped[p] = p.Stopped()
		switch {
		case given:
			if time.Since(since) > a.job.Grace {
				p.Signal(syscall.SIGKILL)
			}
			continue
		case l.stopped[p] && before[p] && a.lost < a.job.MayLose:
			a.lost++
			ending = append(ending, p.Rank)
			l.giveUp(p)
			continue
		case l.stopped[p]:
			stopped = append(stopped, p.Rank)
		}
		waiting = append(waiting, p.Rank)
	}
	ago := process.Seconds(time.Since(l.since))
	if len(ending) > 0 {
		a.console.Printf("ending %s, stopped by a signal: the other ranks of this node have ended, the last %s ago, "+
			"and the job may lose so many", wire.NamedRanks(ending), ago)
	}
	if len(waiting) > 0 && len(ending) == 0 && !l.told && time.Since(l.since) >= a.job.Grace {
		l.told = true
		note := ""
		if len(stopped) > 0 {
			note = "; stopped by a signal: " + wire.NamedRanks(stopped)
		}
		a.console.Printf("waiting for %s; the other ranks of this node have ended, the last %s ago%s",
			wire.NamedRanks(waiting), ago, note)
	}
	a.lingers()
}

// giveUp ends a rank that counts as lost.
func (l *lingering) giveUp(p *process.Process) {
	if l.given == nil {
		l.given = map[*process.Process]time.Time{}
	}
	l.given[p] = time.Now()
	p.Signal(syscall.SIGTERM)
	p.Signal(syscall.SIGCONT) // a stopped process notices nothing else
}
