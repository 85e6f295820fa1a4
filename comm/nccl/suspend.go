package nccl

import (
	"context"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
)

// usable is why there can be no operation now; nil if there can.
func (r *rank) usable(at backend.Where) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Raised() || r.c == 0 || r.asleep {
		return r.unusable(at)
	}
	return nil
}

// unusable is usable if there can be none, of a caller that has the lock.
func (r *rank) unusable(at backend.Where) error {
	if r.asleep && !r.Raised() {
		return &backend.InvalidArgumentError{Where: at, Detail: "the communicator is suspended; Resume it first"}
	}
	return r.Err(at)
}

// Suspend implements backend.Suspender.
func (r *rank) Suspend(ctx context.Context) error {
	return r.slumber(ctx, "suspend", "ncclCommSuspend", true, func(c abi.Comm) abi.Result {
		return r.lib.Suspend(c, abi.SuspendMemory)
	})
}

// Resume implements backend.Suspender.
func (r *rank) Resume(ctx context.Context) error {
	return r.slumber(ctx, "resume", "ncclCommResume", false, func(c abi.Comm) abi.Result { return r.lib.Resume(c) })
}

func (r *rank) slumber(ctx context.Context, op, call string, asleep bool, f func(c abi.Comm) abi.Result) error {
	at, begin := r.In(op), time.Now()
	if err := r.lib.need(at, "suspend"); err != nil {
		return err
	}
	unbind, err := r.dev.Bind()
	if err != nil {
		return &backend.InternalError{Where: at, Err: err}
	}
	defer unbind()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.Raised() || r.c == 0:
		return r.Err(at)
	case r.asleep == asleep:
		return &backend.InvalidArgumentError{Where: at,
			Detail: map[bool]string{true: "the communicator is suspended", false: "the communicator is not suspended"}[asleep]}
	}
	err = r.lib.failed(call, f(r.c), r.c)
	if err == nil {
		err = r.await(ctx, call, r.c)
	}
	if err == nil {
		r.asleep = asleep
	}
	return r.outcome(ctx, at, time.Since(begin), err)
}
