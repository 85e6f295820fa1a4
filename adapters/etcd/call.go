package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chorus-comms/chorus/store"
)

// A call is one call of a method of a Store.
type call struct {
	s       *Store
	op      string
	keys    []string
	ctx     context.Context // has a deadline, and ends with the store
	begin   time.Time
	missing []string // keys that weren't there lately
	cause   error    // of the last attempt that has failed
}

// call begins one. The caller calls done at its end.
func (s *Store) call(ctx context.Context, op string, keys ...string) (c *call, done func()) {
	timeout := s.opts.Timeout
	if until, ok := ctx.Deadline(); ok {
		timeout = time.Until(until)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	stop := context.AfterFunc(s.ctx, cancel)
	return &call{s: s, op: op, keys: keys, ctx: ctx, begin: time.Now()}, func() { stop(); cancel() }
}

// attemptLimit bounds one request. A member that answers to nothing is left after that, for another one.
const attemptLimit = 5 * time.Second

// try repeats f until it ends without an error, or with one that another attempt wouldn't mend, or c ends.
func (s *Store) try(c *call, f func(ctx context.Context) error) error {
	for attempt := 0; ; attempt++ {
		if c.over() {
			return c.ended()
		}
		ctx, cancel := context.WithTimeout(c.ctx, attemptLimit)
		err := f(ctx)
		cancel()
		if err == nil {
			return nil
		}
		if err := c.failed(err, attempt); err != nil {
			return err
		}
	}
}

// failed returns the error of the call after an attempt, or nil once it may be repeated.
func (c *call) failed(err error, attempt int) error {
	if c.over() {
		if !interrupted(err) {
			c.cause = err
		}
		return c.ended()
	}
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return c.s.expired()
	}
	if !passing(err, attempt) {
		keys := ""
		if len(c.keys) > 0 {
			keys = fmt.Sprintf(" %.100q", c.keys[:min(len(c.keys), 3)])
		}
		return fmt.Errorf("store: %s%s: etcd at %s: %w", c.op, keys, c.s.endpoints, err)
	}
	if c.cause == nil || !interrupted(err) {
		c.cause = err
	}
	return c.pause(attempt)
}

// over reports whether the call's time has ended, or its store. c.ctx ends a moment after the store.
func (c *call) over() bool { return c.ctx.Err() != nil || c.s.ctx.Err() != nil }

// ended is the error of a call that is over.
func (c *call) ended() error {
	if c.s.ctx.Err() != nil {
		return context.Cause(c.s.ctx)
	}
	if errors.Is(c.ctx.Err(), context.Canceled) {
		return fmt.Errorf("store: %s: %w", c.op, context.Cause(c.ctx))
	}
	e := &store.TimeoutError{Op: c.op, Missing: slices.Clone(c.missing), Keys: len(c.keys), Waited: time.Since(c.begin)}
	if c.cause != nil {
		e.Err = fmt.Errorf("etcd at %s: %w", c.s.endpoints, c.cause)
	}
	return e
}

// pause waits longer from attempt to attempt, and half of that at random, lest all ranks come back at once.
func (c *call) pause(attempt int) error {
	d := 2 * time.Millisecond << min(attempt, 8)
	t := time.NewTimer(d/2 + rand.N(d))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-c.ctx.Done():
		return c.ended()
	}
}

// interrupted reports whether an error only says that a context has ended, and not what was in the way.
func interrupted(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		code(err) == codes.Canceled || code(err) == codes.DeadlineExceeded
}

// code is what kind of error etcd's client has returned.
func code(err error) codes.Code {
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return e.Code()
	}
	return status.Code(err)
}

// maxHandshakes is how often a handshake of TLS may fail; that of a server that is just going down does.
const maxHandshakes = 3

// passing reports whether another attempt may end otherwise.
func passing(err error, attempt int) bool {
	switch code(err) {
	case codes.Unavailable:
		text := err.Error()
		return attempt+1 < maxHandshakes || !strings.Contains(text, "tls: ") && !strings.Contains(text, "x509: ")
	case codes.DeadlineExceeded, codes.Aborted:
		return true
	case codes.ResourceExhausted:
		return errors.Is(err, rpctypes.ErrTooManyRequests)
	case codes.OutOfRange:
		return errors.Is(err, rpctypes.ErrCompacted)
	}
	return errors.Is(err, context.DeadlineExceeded)
}
