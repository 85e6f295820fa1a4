package compiler

import (
	"fmt"
	"time"
)

// allowance says when a process that compiles has had enough time: so much of the processor's. That's the same on a
// machine that is busy, and doesn't pass while it sleeps. A process that waits for something that never comes uses none,
// and has as much of the clock's.
type allowance struct {
	limit time.Duration
	every time.Duration // between checks
	begin time.Duration // what the process had used before
	last  time.Duration // what it had used at the last check
	idle  time.Duration // since it was last seen to work, as checks: the clock goes on while this process is stopped
}

// busyShare is the part of a processor that a process uses at least if it's at work. The scheduler of a process that
// waits uses less.
const busyShare = 100

func newAllowance(limit, used time.Duration) allowance {
	return allowance{limit: limit, every: min(limit/8+1, time.Second), begin: used, last: used}
}

// over is an error when the process, which has used so much, has had enough.
func (p *allowance) over(used time.Duration) error {
	if took := used - p.begin; took > p.limit {
		return fmt.Errorf("hung, and has used %v of the processor's time", took.Round(10*time.Millisecond))
	}
	p.idle += p.every
	if used-p.last > p.every/busyShare {
		p.idle = 0
	}
	p.last = used
	if p.idle >= p.limit {
		return fmt.Errorf("hung, and has done nothing for %v", p.idle.Round(time.Millisecond))
	}
	return nil
}
