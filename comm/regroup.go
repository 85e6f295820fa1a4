package comm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/regroup"
	"github.com/chorus-comms/chorus/fabric"
)

// RegroupOption changes Regroup.
type RegroupOption func(*regroupOptions)

type regroupOptions struct {
	without  []int
	with     []string
	patience time.Duration
	atLeast  int
}

// Without leaves out ranks, besides those that are lost: one that hangs, say. It's enough if one rank passes it.
func Without(ranks ...int) RegroupOption {
	return func(o *regroupOptions) { o.without = append(o.without, ranks...) }
}

// With takes in newcomers, by the handles of communicators that are [WithoutWorld] and wait in Regroup. It's enough if
// one rank passes it.
func With(handles ...string) RegroupOption {
	return func(o *regroupOptions) { o.with = append(o.with, handles...) }
}

// Patience is how long ranks are waited for that are neither lost nor in Regroup; they are left out then. The default
// is half of the time that Regroup has.
func Patience(d time.Duration) RegroupOption { return func(o *regroupOptions) { o.patience = d } }

// AtLeast makes Regroup fail with a *[TimeoutError] rather than make a world of fewer than n. Every rank passes the
// same.
func AtLeast(n int) RegroupOption { return func(o *regroupOptions) { o.atLeast = n } }

// Regroup makes a new communicator of the ranks that are left, and of newcomers: Reconfigure for ranks that don't know
// who that is. Every survivor calls it, when an operation has failed, or to take newcomers in; it needs no agreement
// about anything before.
//
//	c, err = c.Regroup(ctx)                       // shrink: without the ranks that are lost
//	c, err = c.Regroup(ctx, comm.With(handle))    // grow, or replace a lost rank
//
// Survivors keep their order. Newcomers take the places of lost ranks, and then places at the end, so that the ranks
// of a world whose dead are replaced stay what they were. On a communicator [WithoutWorld] Regroup waits to be taken
// in.
//
// When a member dies while the world is being made, Regroup begins again with the remaining ranks, until ctx ends,
// or c's timeout. If parts of a world can't reach each other, at most one part goes on, as long as the ranks of the
// others count as silent and not as lost. For the new world must have more survivors than there are ranks that are
// silent, or have left. AtLeast demands more.
//
// A rank that has no descriptors left returns an *[InternalError] that says so, at once, and the others go on without
// it.
//
// Its results are Reconfigure's; in addition, it returns an *[AbortedError] on a rank that the others go on
// without, and an *[UnsupportedError] if c's backend has no way for survivors to speak to each other.
func (c *Comm) Regroup(ctx context.Context, opts ...RegroupOption) (*Comm, error) {
	const op = "regroup"
	if ctx == nil {
		ctx = context.Background()
	}
	if err := c.usable(ctx, op); err != nil {
		return nil, err
	}
	var o regroupOptions
	for i, f := range opts {
		if f == nil {
			return nil, c.noOption(op, i+1)
		}
		f(&o)
	}
	for _, r := range o.without {
		if bad := c.peer(r, "each rank of Without"); bad != "" || r == c.rank {
			return nil, c.invalid(op, "Without(%d): %s", r, cmp.Or(bad, "it's this rank"))
		}
	}
	if _, err := regroup.ParseAll(o.with); err != nil {
		return nil, c.invalid(op, "With: %v", err)
	}
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(c.timeout.Load()))
		defer cancel()
	}
	if o.patience <= 0 {
		end, _ := ctx.Deadline()
		o.patience = max(time.Until(end)/2, 0)
	}
	if c.size == 0 {
		return c.joinInvited(ctx)
	}
	messenger, ok := c.b.(backend.Messenger)
	if !ok {
		return nil, &UnsupportedError{Where: c.at(op),
			Detail: fmt.Sprintf("the ranks of backend %q can't speak to each other once an operation has failed; Reconfigure takes handles that they have exchanged before", c.backend)}
	}
	var n *Comm
	r := &regroup.Survivors{Rank: c.rank, Size: c.size, Messenger: messenger, HadRank: c.hadRank, Without: o.without,
		With: o.with, Patience: o.patience, AtLeast: o.atLeast, At: c.at(op),
		Attempt: func(ctx context.Context, uuid string, members []regroup.Member) ([]regroup.Member, error) {
			var err error
			n, err = c.reconfigure(ctx, uuid, members, nil)
			return failedMembers(err), err
		}}
	endpoint, err := c.openEndpoint()
	if err != nil {
		err = r.Unable(err)
	} else {
		endpoint.Refresh()
		r.Endpoint, r.Me = endpoint, c.memberOf(endpoint)
		err = r.Run(ctx)
	}
	if err != nil {
		if fabric.Exhausted(err) {
			c.finalizer.dropEndpoint()
		}
		return nil, err
	}
	return n, nil
}

// failedMembers returns the members at fault for an attempt's failure; nil if the others can't go on without them.
func failedMembers(err error) []regroup.Member {
	e, ok := errors.AsType[*ReconfigureError](err)
	if !ok || errors.Is(err, ErrMismatch) || errors.Is(err, ErrInternal) {
		return nil
	}
	failed := make([]regroup.Member, len(e.Members))
	for i, m := range e.Members {
		failed[i] = e.list[m]
	}
	return failed
}

// joinInvited waits until a world admits this newcomer.
func (c *Comm) joinInvited(ctx context.Context) (*Comm, error) {
	endpoint, err := c.openEndpoint()
	if err != nil {
		return nil, err
	}
	endpoint.Refresh()
	var last error
	for {
		uuid, members, err := regroup.Invited(ctx, endpoint)
		if err != nil {
			if fabric.Exhausted(err) {
				c.finalizer.dropEndpoint()
				return nil, &InternalError{Where: c.at("regroup"), Err: err}
			}
			if last != nil {
				return nil, last
			}
			if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, &CanceledError{Where: c.at("regroup"), Err: context.Cause(ctx)}
			}
			return nil, &TimeoutError{Where: c.at("regroup")}
		}
		n, err := c.reconfigure(ctx, uuid, members, nil)
		if err == nil || fabric.Exhausted(err) {
			return n, err
		}
		last = err
	}
}
