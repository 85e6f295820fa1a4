package nccl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chorus-comms/chorus/comm/nccl/abi"
)

// The library may take without end to destroy or abort a communicator: NCCL waits for the graphs that have captured its
// operations (commDestroySync in 2.26 to 2.30, and what aborts it joins that thread). So these calls are made on
// goroutines of their own, for which callers wait a bounded time; they go on by themselves then.
const (
	abortTime     = 5 * time.Second
	graphPatience = time.Second // of Finalize, for graphs that are about to go
)

// errHeld is that the library has not let go of a communicator in time.
var errHeld = errors.New("the library has not let go of the communicator, and goes on with it: a graph that captured " +
	"its operations may be alive")

// apart calls f on a goroutine of its own, with the device current, and waits until ctx ends, or broken is closed; nil
// never is.
func (r *rank) apart(ctx context.Context, broken <-chan struct{}, f func() error) error {
	done := make(chan error, 1)
	go func() {
		unbind, err := r.dev.Bind()
		if err == nil {
			err = f()
			unbind()
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	case <-broken:
	}
	return errHeld
}

// later returns a context that ends some time after ctx.
func later(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	after, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(d, cancel) })
	return after, func() { stop(); cancel() }
}

// abort aborts a communicator of the library's; 0 is none.
func (r *rank) abort(c abi.Comm) error {
	if c == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), abortTime)
	defer cancel()
	return r.apart(ctx, nil, func() error { return r.lib.failed("ncclCommAbort", r.lib.CommAbort(c), c) })
}

// Finalize implements backend.Backend. A communicator whose operations graphs have captured ends when the graphs are
// gone. Finalize waits for that at most [graphPatience].
func (r *rank) Finalize(ctx context.Context) error {
	defer r.leave()
	defer r.stop()
	if !r.End() {
		waiting, stop := later(ctx, revokeTime+abortTime+time.Second) // what ends it takes that long at most
		defer stop()
		select {
		case <-r.ended: // the library is aborted then, or revoked
		case <-waiting.Done():
			return fmt.Errorf("the library isn't aborted yet: %w", context.Cause(ctx))
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.leavePool()
		for _, s := range r.leaveSymmetric() {
			r.known.pool.cover(s.addr)
		}
		c := r.revoked
		r.revoked = 0
		return r.abort(c)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c, handles, windows := r.c, r.leavePool(), r.leaveSymmetric()
	r.c = 0
	for _, handle := range r.registered {
		handles = append(handles, handle)
	}
	finalizes, captured := r.lib.CommFinalize != nil && !r.asleep, r.captured
	waiting, stop := later(ctx, 2*abortTime) // for what is done when ctx has ended
	if captured {
		waiting, stop = context.WithTimeout(ctx, graphPatience)
		ctx = context.WithoutCancel(ctx)
	}
	defer stop()
	err := r.apart(waiting, nil, func() error {
		for _, handle := range handles {
			r.lib.CommDeregister(c, handle)
		}
		for _, s := range windows {
			if r.lib.WindowDeregister(c, s.window) == abi.InProgress {
				_ = r.progress(ctx, "ncclCommWindowDeregister", c, nil)
			}
			r.known.pool.cover(s.addr)
		}
		if finalizes {
			err := r.lib.failed("ncclCommFinalize", r.lib.CommFinalize(c), c)
			if err == nil {
				err = r.progress(ctx, "ncclCommFinalize", c, nil)
			}
			if err != nil { // what would destroy it waits for others without end
				return errors.Join(err, r.abort(c))
			}
		}
		return r.lib.failed("ncclCommDestroy", r.lib.CommDestroy(c), c)
	})
	if captured && errors.Is(err, errHeld) {
		return nil
	}
	return err
}

// Part implements backend.Parter. Rank 0 serves the store from which the others get the failure.
func (r *rank) Part() {
	r.Reporting.Within(answerTime)
	if r.rank > 0 || r.hosted == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	_ = r.hosted.Drain(ctx)
}
