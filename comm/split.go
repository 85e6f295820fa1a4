package comm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/observe/record"
)

// SplitOption configures a communicator made by Split. Timeout, abort-on-error and hints
// are the parent's unless an option says otherwise.
type SplitOption func(*splitOptions)

type splitOptions struct {
	name    string
	timeout time.Duration
	hints   map[string]string
	beside  *Comm
}

// SplitName names the new communicator; the default is the parent's name, a dot and its lowest parent rank.
func SplitName(name string) SplitOption { return func(o *splitOptions) { o.name = name } }

// SplitTimeout is the new communicator's timeout.
func SplitTimeout(d time.Duration) SplitOption { return func(o *splitOptions) { o.timeout = d } }

// SplitHints are the new communicator's hints. If they don't name the priority of its streams, that is as for c.
func SplitHints(h map[string]string) SplitOption { return func(o *splitOptions) { o.hints = h } }

// SplitBeside says that the new communicator shares the failures of another one of its ranks; see [WithBeside].
func SplitBeside(c *Comm) SplitOption { return func(o *splitOptions) { o.beside = c } }

// Split makes communicators of parts of this one. Every rank of c calls it. ranks
// lists, by ranks of c, the members of the group that this rank joins; their order
// gives their new ranks. Ranks that pass the same list join the same group, so that one call may make
// several disjoint groups. A rank that passes an empty list joins none and gets nil, without an error.
//
// If the lists don't agree, every rank gets a *MismatchError and c stays usable.
// Parent and children are finalized independently.
func (c *Comm) Split(ctx context.Context, ranks []int, opts ...SplitOption) (*Comm, error) {
	const op = "split"
	if ctx == nil {
		ctx = context.Background()
	}
	refuse := func(err error) (*Comm, error) { return nil, c.refuse(op, err) }
	if err := c.usable(ctx, op); err != nil {
		return refuse(err)
	}
	o := splitOptions{timeout: time.Duration(c.timeout.Load())}
	for i, f := range opts {
		if f == nil {
			return refuse(c.noOption(op, i+1))
		}
		f(&o)
	}
	if o.timeout <= 0 {
		return refuse(c.invalid(op, "timeout %v", o.timeout))
	}
	if c.size == 0 {
		return refuse(c.invalid(op, "%s", noWorld))
	}
	me, lowest := -1, c.size
	seen := map[int]bool{}
	for i, r := range ranks {
		if bad := c.peer(r, "each rank"); bad != "" {
			return refuse(c.invalid(op, "%s", bad))
		}
		if seen[r] {
			return refuse(c.invalid(op, "rank %d is listed twice", r))
		}
		seen[r] = true
		lowest = min(lowest, r)
		if r == c.rank {
			me = i
		}
	}
	if len(ranks) > 0 && me < 0 {
		return refuse(c.invalid(op, "this rank, %d, is not in its own list %v", c.rank, ranks))
	}
	if o.name == "" {
		o.name = fmt.Sprintf("%s.%d", c.name, lowest)
	}
	o.hints = maps.Clone(o.hints)
	priority, given, err := takePriority(o.hints)
	if err != nil {
		return refuse(err)
	}
	replays, looks, err := takeReplays(o.hints)
	if err != nil {
		return refuse(err)
	}
	own, opHints := c.opHints.Split(o.hints)
	if err := c.opHints.Check(c.at(""), opHints); err != nil {
		return refuse(err)
	}
	if o.hints == nil {
		if h := c.hints.Load(); h != nil {
			opHints = *h
		}
	}
	if err := c.placement.Load().quiesce(ctx); err != nil {
		return refuse(err)
	}
	group := append([]int(nil), ranks...)
	var b backend.Backend
	err = c.exclusive(record.Split, len(group), func() (err error) {
		b, err = c.b.Split(ctx, o.name, group, o.timeout, own)
		return err
	})
	if err != nil {
		return nil, err
	}
	if b == nil {
		return nil, nil
	}
	made := c.opened
	made.name, made.rank, made.size, made.timeout = o.name, me, len(ranks), o.timeout
	made.recorder = c.rec.Split(o.name, me, group)
	made.world += "/" + o.name
	if looks {
		made.replays = replays
	}
	if o.hints != nil {
		made.hints, _ = c.opHints.Split(made.hints)
		maps.Copy(made.hints, o.hints)
	}
	child := newComm(b, &made, c.abortOnError)
	if len(opHints) > 0 {
		child.hints.Store(&opHints)
	}
	if d := c.dev(); d != nil {
		if !given {
			priority = d.priority
		}
		s, err := newStreams(d.dev, priority, made.replays, b)
		if err != nil {
			return nil, errors.Join(c.deviceError(op, err), child.Finalize(ctx))
		}
		child.placement.Store(child.executorOf(s))
	}
	if o.beside != nil {
		go shareFailures(b, o.beside.b)
	}
	return child, nil
}
