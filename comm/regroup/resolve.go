package regroup

import (
	"context"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/store"
)

// resolve finds out what has become of an attempt whose leader was lost after this member had voted. Members are
// asked in the order of the list: the first that is alive decides for all, and if it dies in turn, the next.
//
// A member decides once it has found all members before it gone. It asks all after it. If one of them knows an
// outcome, that's the outcome. If one has not voted, the leader cannot have decided for the world, and so no member
// has. Otherwise each of them has given up on the members before this one without an outcome, or is gone. Then no
// survivor has an outcome, and the attempt has failed.
//
// This is sound as long as a member that others find gone (connection refused or broken) is gone. A member that is
// stopped or cut off for longer than resolveTime counts as gone, too. If it comes back, it may hold a decision for a
// world that the others have given up; it then finds that they have left that world.
func (a *attempt) resolve() []byte {
	for k := 1; k < a.me; k++ {
		a.endpoint.at("resolve")
		ctx, cancel := context.WithTimeout(context.Background(), resolveTime)
		outcome, err := a.ask(ctx, k)
		cancel()
		if err == nil {
			return outcome
		}
	}
	a.endpoint.at("resolving")
	return a.conclude()
}

// ask waits for what member k has decided, or knows.
func (a *attempt) ask(ctx context.Context, k int) ([]byte, error) {
	if err := a.local.Set(ctx, numbered(keyGaveUp, k), nil); err != nil {
		return nil, err
	}
	st, release, err := a.find(ctx, k)
	if err != nil {
		return nil, err
	}
	defer release()
	return st.Get(ctx, keyOutcome)
}

// find connects to a member's store, and tries until ctx ends while it's this process that has no descriptors for that:
// the member is not to be taken for gone.
func (a *attempt) find(ctx context.Context, i int) (store.Store, func(), error) {
	for {
		st, release, err := a.reach(ctx, i)
		if !sys.OutOfDescriptors(err) {
			return st, release, err
		}
		select {
		case <-ctx.Done():
			return nil, nil, err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// conclude decides for all members from this one on.
func (a *attempt) conclude() []byte {
	ctx, cancel := context.WithTimeout(context.Background(), resolveTime)
	defer cancel()
	after := len(a.members) - a.me - 1
	answers := make(chan []byte, after)
	for i := a.me + 1; i < len(a.members); i++ {
		go func() { answers <- a.question(ctx, i) }()
	}
	var outcome []byte
	for range after {
		if answer := <-answers; answer != nil && outcome == nil {
			outcome = answer
			cancel() // the rest doesn't matter
		}
	}
	if outcome != nil {
		return outcome
	}
	return a.failure(Lost, "it died before it told anybody who is left how the attempt ended", nil, 0).encode()
}

// question asks member i for the outcome, and waits until it has one, or has none of the members before this one. It
// returns nil if the member knows nothing, or is gone.
func (a *attempt) question(ctx context.Context, i int) []byte {
	st, release, err := a.find(ctx, i)
	if err != nil {
		return nil
	}
	defer release()
	if voted, err := st.Check(ctx, keyVoted); err != nil {
		return nil
	} else if !voted {
		return a.failure(Lost, "it died before all had voted", nil, 0).encode()
	}
	// Once it has given up on those before this one it has no outcome, and gets one from this member only.
	ctx, stop := context.WithCancel(ctx)
	answers := make(chan []byte, 2)
	var both sync.WaitGroup
	both.Go(func() {
		outcome, err := st.Get(ctx, keyOutcome)
		if err != nil {
			outcome = nil
		}
		answers <- outcome
	})
	both.Go(func() {
		_ = st.Wait(ctx, numbered(keyGaveUp, a.me))
		answers <- nil
	})
	outcome := <-answers
	stop()
	both.Wait()
	return outcome
}
