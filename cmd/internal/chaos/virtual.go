package chaos

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/fabric/fault"
	"github.com/chorus-comms/chorus/store"
)

// budget is how much virtual time a round may take: more than the sum of all that its operations may wait for.
const budget = 24 * time.Hour

// Virtually runs a program in virtual time, which costs no time to wait in.
//
// It's the time of package testing/synctest: goroutines of a bubble, whose clock moves on when all of them
// wait for each other. The bubble wants a *testing.T, of which it needs nothing outside of tests.
func Virtually(p *Program) (o Outcome) {
	o.Program = p
	defer func() {
		if bad := recover(); bad != nil { // the bubble is stuck
			o.Stuck = strings.TrimSpace(fmt.Sprintf("%v\n%s", bad, o.Stuck))
		}
	}()
	if runtime.GOMAXPROCS(0) != 1 { // in a test
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	synctest.Test(new(testing.T), func(*testing.T) { o.Reports, o.Stuck = virtualRound(p) })
	return o
}

func virtualRound(p *Program) (reports []*Report, stuck string) {
	st := store.NewHash(0)
	defer st.Close()
	ins := make([]*injector, p.Size)
	news := make(chan struct{}, p.Size) // a rank has died
	struck := make([]atomic.Bool, p.Size)
	for r := range ins {
		in := &injector{p: p, rank: r, rendezvous: rendezvous{st, "round"}}
		in.strike = func(kind FaultKind) {
			strikeVirtually(in, kind)
			struck[r].Store(true)
			news <- struct{}{}
		}
		in.cut = func(peer int) {
			for _, end := range [][2]int{{r, peer}, {peer, r}} {
				ins[end[0]].fire()
				if x := ins[end[0]].links(); x != nil {
					x.Cut(end[1], errPulled)
				}
			}
		}
		ins[r] = in
	}
	reports = make([]*Report, p.Size)
	done := make(chan Report, p.Size)
	for r, in := range ins {
		name := fmt.Sprintf("%p", in)
		injectors.Store(name, in)
		defer injectors.Delete(name)
		go func() {
			done <- run(p, r, in, func(ctx context.Context, opts ...comm.NewOption) (*comm.Comm, error) {
				return comm.New(ctx, append(opts, comm.WithStore(st), comm.WithFabric(fabricName),
					comm.WithHints(map[string]string{"fabric.inner": p.Fabric, "fabric.injector": name}))...)
			})
		}()
	}
	deadline := time.After(budget)
	collect := func(wanted func(r int) bool) bool {
		for {
			missing := false
			for r := range reports {
				missing = missing || reports[r] == nil && wanted(r)
			}
			if !missing {
				return true
			}
			select {
			case rep := <-done:
				reports[rep.Rank] = &rep
			case <-news:
			case <-deadline:
				return false
			}
		}
	}
	// Not before it's frozen: what thaws it comes later then.
	alive := func(r int) bool { return !(p.Fault.dead() && struck[r].Load()) }
	if !collect(alive) {
		return reports, stacks()
	}
	for r, in := range ins { // let the dead unwind
		if x := in.links(); x != nil && !alive(r) {
			x.Thaw()
		}
	}
	deadline = time.After(budget)
	if !collect(func(int) bool { return true }) {
		return reports, stacks()
	}
	for r, in := range ins {
		reports[r].Fired = in.fired.Load()
	}
	return reports, ""
}

var errKilled = errors.New("killed")

func strikeVirtually(in *injector, kind FaultKind) {
	x := in.links()
	switch kind {
	case Kill:
		x.Kill(errKilled)
	case Stop:
		x.Freeze()
	case Pause:
		x.Freeze()
		thaw(x, in.p.Fault.Delay)
	}
}

func thaw(x *fault.Faults, after time.Duration) { time.AfterFunc(after, x.Thaw) }

// stacks returns what all goroutines of the bubble do.
func stacks() string {
	b := make([]byte, 1<<20)
	var mine []string
	for _, g := range strings.Split(string(b[:runtime.Stack(b, true)]), "\n\n") {
		if strings.Contains(g, "synctest bubble") {
			mine = append(mine, g)
		}
	}
	return strings.Join(mine, "\n\n")
}
