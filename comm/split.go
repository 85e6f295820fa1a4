package comm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/device"
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

	ranks     []int             // that Split was passed
	own, each map[string]string // hints of the communicator, and of its operations
	priority  device.Priority
	replays   time.Duration
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
	if ctx == nil {
		ctx = context.Background()
	}
	o, err := c.checkSplit(ctx, ranks, opts)
	if err == nil {
		err = c.placement.Load().quiesce(ctx)
	}
	if err != nil {
		return nil, c.refuse(record.Split.String(), err)
	}
	var b backend.Backend
	err = c.exclusive(record.Split, len(o.ranks), func() (err error) {
		b, err = c.b.Split(ctx, o.name, o.ranks, o.timeout, o.own)
		return err
	})
	if err != nil || b == nil {
		return nil, err
	}
	return c.child(ctx, b, o)
}

// checkSplit validates what a rank passes to Split, and fills in what it leaves open.
func (c *Comm) checkSplit(ctx context.Context, ranks []int, opts []SplitOption) (*splitOptions, error) {
	const op = "split"
	if err := c.usable(ctx, op); err != nil {
		return nil, err
	}
	o := &splitOptions{timeout: time.Duration(c.timeout.Load()), ranks: slices.Clone(ranks)}
	for i, f := range opts {
		if f == nil {
			return nil, c.noOption(op, i+1)
		}
		f(o)
	}
	if o.timeout <= 0 {
		return nil, c.invalid(op, "timeout %v", o.timeout)
	}
	if c.size == 0 {
		return nil, c.invalid(op, "%s", noWorld)
	}
	seen := map[int]bool{}
	for _, r := range ranks {
		if bad := c.peer(r, "each rank"); bad != "" {
			return nil, c.invalid(op, "%s", bad)
		}
		if seen[r] {
			return nil, c.invalid(op, "rank %d is listed twice", r)
		}
		seen[r] = true
	}
	if len(ranks) > 0 && !seen[c.rank] {
		return nil, c.invalid(op, "this rank, %d, is not in its own list %v", c.rank, ranks)
	}
	if o.name == "" {
		o.name = fmt.Sprintf("%s.%d", c.name, slices.Min(append(o.ranks, c.size)))
	}
	return o, c.splitHints(o)
}

// splitHints separates the hints of a split: the streams', the communicator's, and those of its operations.
func (c *Comm) splitHints(o *splitOptions) (err error) {
	o.hints = maps.Clone(o.hints)
	o.priority, o.replays = c.opened.priority, c.opened.replays
	if p, given, err := takePriority(o.hints); err != nil {
		return err
	} else if given {
		o.priority = p
	}
	if pause, given, err := takeReplays(o.hints); err != nil {
		return err
	} else if given {
		o.replays = pause
	}
	o.own, o.each = c.opHints.Split(o.hints)
	if err := c.opHints.Check(c.at(""), o.each); err != nil {
		return err
	}
	if h := c.hints.Load(); o.hints == nil && h != nil {
		o.each = *h
	}
	return nil
}

// child is the communicator of a split over b.
func (c *Comm) child(ctx context.Context, b backend.Backend, o *splitOptions) (*Comm, error) {
	made := c.opened
	made.name, made.rank, made.size, made.timeout = o.name, slices.Index(o.ranks, c.rank), len(o.ranks), o.timeout
	made.recorder = c.rec.Split(o.name, made.rank, o.ranks)
	made.world += "/" + o.name
	made.priority, made.replays = o.priority, o.replays
	if o.hints != nil {
		made.hints, _ = c.opHints.Split(made.hints)
		maps.Copy(made.hints, o.hints)
	}
	child := newComm(b, &made, c.abortOnError)
	if len(o.each) > 0 {
		child.hints.Store(&o.each)
	}
	if d := c.dev(); d != nil {
		s, err := newStreams(d.dev, made.priority, made.replays, b)
		if err != nil {
			return nil, errors.Join(c.deviceError("split", err), child.Finalize(ctx))
		}
		child.placement.Store(child.placementOn(s))
	}
	if o.beside != nil {
		go shareFailures(b, o.beside.b)
	}
	return child, nil
}
