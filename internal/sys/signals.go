package sys

import (
	"os"
	"os/signal"
	"time"
)

// echoTime is how long after a signal the same one counts as its echo. timeout(1) signals its command and then its own
// process group, of which the command is a part: it gets two within milliseconds.
const echoTime = time.Second

// echoes tells signals from their echoes.
type echoes map[os.Signal]time.Time

// of reports whether a signal that comes now is an echo.
func (e echoes) of(s os.Signal, now time.Time) bool {
	if last, before := e[s]; before && now.Sub(last) < echoTime {
		return true
	}
	e[s] = now
	return false
}

// Notify delivers signals as signal.Notify does, as long as the process lives, and leaves out those that come within a
// second of the same one. It's for signals of which the second means more than the first.
func Notify(to chan<- os.Signal, signals ...os.Signal) {
	all := make(chan os.Signal, 16)
	signal.Notify(all, signals...)
	go pass(to, all, time.Now)
}

func pass(to chan<- os.Signal, from <-chan os.Signal, now func() time.Time) {
	heard := echoes{}
	for s := range from {
		if heard.of(s, now()) {
			continue
		}
		select {
		case to <- s:
		default: // it has enough of them
		}
	}
}
