package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/comm/native/members"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/store"
)

// A startupFailure carries the reason why a rank of a world gave up, through the store, while the ranks have no links.
// The first reason counts; the others are its consequences.
type startupFailure struct {
	store store.Store // nil for a rank without others
	start time.Time
	at    backend.Where
}

const (
	failedKey = "failed"
	// watchDelay keeps ranks that open quickly, as they nearly always do, from asking the store.
	watchDelay = 100 * time.Millisecond
	// reasonDelay is how long the reason of a rank that broke its links may take. It's half of the second in which
	// ranks of a host learn of a death.
	reasonDelay = 500 * time.Millisecond
	// goneDelay is how long ranks wait for each other when the store is lost. A rank that has lost it too soon then
	// fails.
	goneDelay = 500 * time.Millisecond
)

// watch returns a context that ends when another rank gives up. unwatch stops watching. If another rank gave up, it
// replaces this rank's error by that rank's reason: failures since then follow from it, unless this process lacks a
// resource.
func (o *startupFailure) watch(ctx context.Context) (watched context.Context, unwatch func(err *error)) {
	watched, stop := context.WithCancelCause(ctx)
	over := make(chan struct{})
	unwatch = func(err *error) {
		stop(nil)
		<-over // it has given its connection to the store back
		other := (*peerGaveUpError)(nil)
		if err != nil && errors.As(context.Cause(watched), &other) && !fabric.Exhausted(*err) {
			*err = other
		}
	}
	if o.store == nil {
		close(over)
		return watched, unwatch
	}
	go func() {
		defer close(over)
		ctx := watched
		select {
		case <-ctx.Done():
		case <-time.After(watchDelay):
			why := o.read(ctx)
			if store.Gone(why) { // some may need it no more
				select {
				case <-ctx.Done():
				case <-time.After(goneDelay):
				}
			}
			if why != nil {
				stop(why)
			}
		}
	}()
	return watched, unwatch
}

// read waits for the reason of a rank that gave up, or the end of the store.
func (o *startupFailure) read(ctx context.Context) error {
	b, err := o.store.Get(ctx, failedKey)
	if store.Gone(err) {
		return fmt.Errorf("the store where the ranks meet is lost: %w", err)
	}
	if err != nil {
		return nil
	}
	return decodePeerGaveUp(b)
}

// earlier replaces the error of a rank that has timed out in the wait for the shared memory of its host. The ranks that
// it names may still wait for links, and time out at the same moment. So it waits a while for a reason of theirs.
func (o *startupFailure) earlier(ctx context.Context, err error) error {
	var other *peerGaveUpError
	var absent *fabric.AbsentError
	if o.store == nil || errors.As(err, &other) || !errors.As(err, &absent) {
		return err
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), reasonDelay)
	defer cancel()
	if why := o.read(late); errors.As(why, &other) {
		return why
	}
	return err
}

func decodePeerGaveUp(b []byte) error {
	var n members.Notice
	if json.Unmarshal(b, &n) != nil || !n.Known() {
		return nil
	}
	return &peerGaveUpError{n.Failure}
}

// failed makes the error of a rank whose fabric couldn't be opened. It sends the others the reason, or takes the
// reason that another one has sent first.
func (o *startupFailure) failed(ctx context.Context, err error) error {
	var other *peerGaveUpError
	var missing *bootstrap.MissingRanksError
	if o.store == nil || errors.As(err, &missing) && len(missing.Missing) > 0 {
		return err // as all that wait will see
	}
	if store.Gone(err) {
		return err // what this rank gave up for, and no fault of the ranks that it still waited for
	}
	lost, absent, unable := (*fabric.PeerError)(nil), (*fabric.AbsentError)(nil), (*fabric.UnableError)(nil)
	isLost, isAbsent, isUnable := errors.As(err, &lost), errors.As(err, &absent), errors.As(err, &unable)
	told := errors.As(err, &other)
	if told && other.Kind == base.Lost { // by a rank that has lost another one, which may have said why itself
		isLost, told = true, false
	}
	same := func(peer int) int { return peer }
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), reasonDelay)
	defer cancel()
	if isLost && !told {
		if why := o.read(late); errors.As(why, &other) {
			err, told = why, true
		}
	}
	if !told {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), reasonDelay)
		defer cancel()
		n := members.Notice{Failure: base.FailureOf(unopened(ctx, o.start, o.at, same, err), o.at.Reporter)}
		mine := n.Encode()
		if first, e := o.store.CompareSet(late, failedKey, nil, mine); e == nil && string(first) != string(mine) {
			if why := decodePeerGaveUp(first); why != nil && (isLost || isAbsent) {
				err = why
			}
		}
	}
	if isLost || isAbsent || isUnable || errors.As(err, &other) || fabric.Exhausted(err) {
		return unopened(ctx, o.start, o.at, same, err)
	}
	return err
}
