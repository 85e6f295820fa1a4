package native

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/store"
)

// An opening is what the ranks of a world tell each other through the store while they have no links: why one of them gave
// up. The first word counts; what follows from it is other ranks' giving up.
type opening struct {
	store store.Store // nil for a rank that has nobody to tell
	start time.Time
	at    backend.Where
}

const (
	failedKey = "failed"
	// watchDelay keeps ranks that open quickly, as they nearly always do, from asking the store.
	watchDelay = 100 * time.Millisecond
	// wordDelay is how long the word of a rank that broke its links may take. It has half of the second in which
	// ranks of a host learn of a death.
	wordDelay = 500 * time.Millisecond
)

// watch ends the context that it returns when another rank gives up.
func (o *opening) watch(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.store == nil {
		return context.WithCancel(ctx)
	}
	ctx, stop := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-ctx.Done():
		case <-time.After(watchDelay):
			if why := o.read(ctx); why != nil {
				stop(why)
			}
		}
	}()
	return ctx, func() { stop(nil) }
}

// read waits for the word of a rank that gave up.
func (o *opening) read(ctx context.Context) error {
	b, err := o.store.Get(ctx, failedKey)
	if err != nil {
		return nil
	}
	return decodeGaveUp(b)
}

func decodeGaveUp(b []byte) error {
	var n notice
	if json.Unmarshal(b, &n) != nil || !n.ends() {
		return nil
	}
	return &gaveUpError{n}
}

// failed makes the error of a rank whose fabric couldn't be opened, and tells the others, or takes their word for why.
func (o *opening) failed(ctx context.Context, err error) error {
	var other *gaveUpError
	var missing *bootstrap.MissingRanksError
	if o.store == nil || errors.As(err, &missing) {
		return err // as all that wait will see
	}
	lost, absent := (*fabric.PeerError)(nil), (*fabric.AbsentError)(nil)
	isLost, isAbsent := errors.As(err, &lost), errors.As(err, &absent)
	same := func(peer int) int { return peer }
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), wordDelay)
	defer cancel()
	if isLost && !errors.As(err, &other) {
		if why := o.read(late); why != nil {
			err = why
		}
	}
	if !errors.As(err, &other) {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), wordDelay)
		defer cancel()
		n := noticeOf(unopened(ctx, o.start, o.at, same, err), o.at.Rank)
		mine := n.encode()
		if first, e := o.store.CompareSet(late, failedKey, nil, mine); e == nil && string(first) != string(mine) {
			if why := decodeGaveUp(first); why != nil && (isLost || isAbsent) {
				err = why
			}
		}
	}
	if isLost || isAbsent || errors.As(err, &other) {
		return unopened(ctx, o.start, o.at, same, err)
	}
	return err
}
