package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/fault"
)

// fabricName is the fabric of programs: it wraps the one that option "inner" names, for the injector
// that option "injector" names.
const fabricName = "chaos"

func init() { fabric.Register(fabricName, fabric.Driver{Open: openFabric}) }

// injectors are those of this process, by name.
var injectors sync.Map

// An injector makes a fault happen on one rank.
type injector struct {
	p          *Program
	rank       int
	rendezvous rendezvous
	// strike makes what happens to the rank as a whole happen.
	strike func(kind FaultKind)
	// cut breaks the link to a peer.
	cut func(peer int)

	mu      sync.Mutex
	faults  *fault.Faults // once the fabric is open
	spaces  int
	fired   atomic.Int64 // when, in nanoseconds since 1970
	did     bool
	restore func() // ends the want of descriptors; nil while there is none
	over    bool   // the rank has ended; guarded by mu
}

func (in *injector) culprit() bool { return in.p.Fault.Rank == in.rank }

// fire notes that the fault has happened. No consequence of it can be noticed earlier.
func (in *injector) fire() { in.fired.CompareAndSwap(0, time.Now().UnixNano()) }

func openFabric(ctx context.Context, c fabric.Config) (fabric.Fabric, error) {
	v, ok := injectors.Load(c.Options["injector"])
	if !ok {
		return nil, fmt.Errorf("chaos: there is no injector %q", c.Options["injector"])
	}
	in := v.(*injector)
	inner := c.Options["inner"]
	c.Options = maps.Clone(c.Options)
	delete(c.Options, "injector")
	delete(c.Options, "inner")
	f, err := fabric.Open(ctx, inner, c)
	if err != nil {
		return nil, err
	}
	if in.p.Mode == Virtual {
		f = &restless{Messenger: f.(fabric.Messenger), Placer: f.(fabric.Placer), Sharer: f.(fabric.Sharer), in: in}
	}
	wrapped, faults := fault.Wrap(f, in.rules()...)
	faults.Seed(in.p.Seed)
	faults.OnBreak(func(fault.Action) { in.fire() })
	in.mu.Lock()
	in.faults = faults
	in.mu.Unlock()
	if in.p.Fault.Kind == Exhausted && in.culprit() && in.p.Mode == Virtual {
		if s, ok := wrapped.(fabric.Sharer); ok {
			return struct {
				fabric.Messenger
				fabric.Placer
				fabric.Sharer
			}{wrapped, wrapped.(fabric.Placer), starved{s, in}}, nil
		}
	}
	return wrapped, nil
}

// rules are what is done to messages of this rank.
func (in *injector) rules() []fault.Rule {
	f := in.p.Fault
	in.mu.Lock()
	over := in.over
	in.mu.Unlock()
	if !in.culprit() || !f.onMessages() || over {
		return nil
	}
	r := fault.Rule{Peer: fabric.AnySource, After: f.Step + f.After, Count: 1}
	switch f.Kind {
	case Delay:
		r.Do, r.Delay, r.Count, r.Chance = fault.Delay, f.Delay, 0, 0.3
	case Drop: // and all after it: no network loses a message of a connection, and delivers the next
		r.Do, r.Peer, r.Count = fault.Drop, f.Peer, 0
	case Truncate:
		r.Do, r.Classes = fault.Truncate, fault.On(fabric.Collective, fabric.PointToPoint)
	case Flip:
		r.Do, r.Classes = fault.Mislabel, fault.On(fabric.Collective)
	case corrupt:
		r.Do, r.Classes = fault.Corrupt, fault.On(fabric.Collective, fabric.PointToPoint)
	}
	return []fault.Rule{r}
}

// starved is a fabric without memory for one of its spaces.
type starved struct {
	fabric.Sharer
	in *injector
}

// Space implements fabric.Sharer.
func (s starved) Space(ctx context.Context, comm uint32, members []int, stageBytes int) (*fabric.Space, error) {
	s.in.spaces++
	if s.in.spaces == 1+s.in.p.Fault.After {
		s.in.fire()
		return nil, fmt.Errorf("chaos: %w", syscall.ENOMEM)
	}
	return s.Sharer.Space(ctx, comm, members, stageBytes)
}

// links is the handle on the rank's fabric, nil before there is one.
func (in *injector) links() *fault.Faults {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.faults
}

// step is called by the rank before each step.
func (in *injector) step(k int) {
	f := in.p.Fault
	x := in.links()
	if in.p.Mode == Virtual {
		in.arrive(k)
	}
	if f.Kind == Slow && in.culprit() {
		in.fire()
		time.Sleep(f.Delay)
	}
	if k == f.Step && !in.did {
		in.did = true
		switch f.does() {
		case Kill, Stop, Pause:
			if !in.culprit() {
				break
			}
			do := func() {
				in.fire()
				in.strike(f.does())
			}
			switch {
			case f.Calls == 0:
				do()
			case in.p.Mode == Real:
				time.AfterFunc(f.Delay, func() {
					in.mu.Lock()
					defer in.mu.Unlock()
					if !in.over {
						do()
					}
				})
			default:
				x.Arm(f.Calls, do)
			}
		case Late:
			if in.culprit() {
				in.fire()
				time.Sleep(f.Delay)
			}
		case Cut:
			if in.culprit() {
				in.fire()
				in.cut(f.Peer)
			}
		case Partition:
			here := slices.Contains(f.Side, in.rank)
			in.fire()
			for r := range in.p.Size {
				if slices.Contains(f.Side, r) != here {
					in.cut(r)
				}
			}
		}
	}
	if x != nil {
		x.Touch()
	}
}

// end says that the rank has ended: nothing happens to it any more.
func (in *injector) end() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.over = true
}

var errPulled = errors.New("the cable was pulled")

// polled is a context whose waits the injector sees, so that a rank can be stopped in the middle of one on
// shared memory, too.
type polled struct {
	context.Context
	in *injector
}

// Value implements fabric.Poller.
func (p polled) Value(key any) any {
	if key == fabric.AsPoller {
		return p
	}
	return p.Context.Value(key)
}

// Poll implements fabric.Poller.
func (p polled) Poll() error {
	if x := p.in.links(); x != nil {
		x.Touch()
	}
	return nil
}
