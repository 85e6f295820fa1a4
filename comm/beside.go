package comm

import (
	"context"
	"errors"

	"github.com/chorus-comms/chorus/comm/backend"
)

// besideCause returns what has broken the communicator beside which a new one is; nil if nothing has.
func (o *newOptions) besideCause() error {
	if o.beside == nil {
		return nil
	}
	return o.beside.Err()
}

// whileBeside returns a context that also ends when the communicator beside breaks.
func (o *newOptions) whileBeside(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.beside == nil {
		return context.WithCancel(ctx)
	}
	return untilClosed(ctx, o.beside.Broken())
}

// untilClosed returns a context that also ends when a channel is closed.
func untilClosed(ctx context.Context, ch <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-ch:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// shareFailures waits until one of two communicators of a rank breaks, and breaks the other one. When one of them has
// ended instead, the other is on its own.
func shareFailures(a, b backend.Backend) {
	from, to := a, b
	select {
	case <-a.Broken():
	case <-b.Broken():
		from, to = b, a
	}
	cause := from.Cause()
	if errors.Is(cause, ErrFinalized) {
		return
	}
	if f, ok := to.(backend.Failer); ok {
		f.Fail(cause)
	} else {
		to.Abort(cause)
	}
}
