package comm

import (
	"context"
	"fmt"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/observe/record"
)

// Suspend gives up the device memory that the backend's library holds for the communicator, until Resume: for a program
// that needs it while it doesn't communicate. All ranks call it; it comes after the operations that were issued before.
// Operations are refused until then. A backend without such memory, or a library that can't give it up, is an
// *[UnsupportedError].
func (c *Comm) Suspend(ctx context.Context) error {
	return c.suspended(ctx, record.Suspend, backend.Suspender.Suspend)
}

// Resume takes the memory again that Suspend has given up. All ranks call it.
func (c *Comm) Resume(ctx context.Context) error {
	return c.suspended(ctx, record.Resume, backend.Suspender.Resume)
}

func (c *Comm) suspended(ctx context.Context, what record.Special,
	f func(backend.Suspender, context.Context) error) error {
	op := what.String()
	if ctx == nil {
		ctx = context.Background()
	}
	if err := c.usable(ctx, op); err != nil {
		return c.refuse(op, err)
	}
	s, ok := c.b.(backend.Suspender)
	if !ok {
		return &UnsupportedError{Where: c.at(op),
			Detail: fmt.Sprintf("backend %q holds no memory that it could give up", c.backend)}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.timeout.Load()))
	defer cancel()
	if err := c.placement.Load().quiesce(ctx); err != nil {
		return c.refuse(op, err)
	}
	return c.exclusive(what, 0, func() error { return f(s, ctx) })
}
