package nccl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/tensor"
)

// symmetric is a segment of the library's memory that a communicator has a window of, for the kernels that use memory
// at the same place on all ranks.
type symmetric struct {
	addr   uintptr
	window abi.Window
}

// RegisterSymmetric implements backend.Symmetric. The library pairs the windows of all ranks by the order of the calls,
// which is that of the allocations here.
func (r *rank) RegisterSymmetric(ctx context.Context, blocks []*tensor.Tensor, timeout time.Duration) error {
	const op = "register_symmetric"
	at := r.In(op)
	for _, capability := range []string{"windows", "allocation"} {
		if err := r.lib.need(at, capability); err != nil {
			return err
		}
	}
	if r.known.pool == nil {
		return &backend.UnsupportedError{Where: at, Detail: fmt.Sprintf("%s has no allocator", r.dev.Name())}
	}
	return r.symmetrically(ctx, op, timeout, blocks, r.allocated, func(ctx context.Context, b *tensor.Tensor) error {
		w := new(abi.Window)
		err := r.call(ctx, "ncclCommWindowRegister", func() abi.Result {
			return r.lib.WindowRegister(r.c, address(b), uint64(b.NBytes()), w, abi.WindowSymmetric)
		})
		if err == nil && *w == 0 {
			return &backend.UnsupportedError{Where: at,
				Detail: fmt.Sprintf("%v has no symmetric memory here: ncclCommWindowRegister gives no window", r.lib)}
		}
		if err == nil {
			r.symmetric = append(r.symmetric, symmetric{address(b), *w})
			r.known.pool.expose(address(b))
		}
		return err
	})
}

// DeregisterSymmetric implements backend.Symmetric.
func (r *rank) DeregisterSymmetric(ctx context.Context, blocks []*tensor.Tensor, timeout time.Duration) error {
	return r.symmetrically(ctx, "deregister_symmetric", timeout, blocks, r.registeredAt,
		func(ctx context.Context, b *tensor.Tensor) error {
			i, err := r.registeredAt(b)
			if err != nil {
				return err
			}
			s := r.symmetric[i]
			r.symmetric = slices.Delete(r.symmetric, int(i), int(i)+1)
			err = r.call(ctx, "ncclCommWindowDeregister", func() abi.Result {
				return r.lib.WindowDeregister(r.c, s.window)
			})
			r.known.pool.cover(s.addr)
			return err
		})
}

// allocated is the place of a block in the order of allocations, if it can be registered.
func (r *rank) allocated(b *tensor.Tensor) (uint64, error) {
	p := r.known.pool
	p.mu.Lock()
	s, ours := p.segments[address(b)]
	p.mu.Unlock()
	switch _, err := r.registeredAt(b); {
	case !ours || s.bytes != int64(b.NBytes()):
		return 0, fmt.Errorf("%d bytes at %#x are no allocation of %s's own memory (ncclMemAlloc)", b.NBytes(), address(b),
			r.lib.name)
	case err == nil:
		return 0, fmt.Errorf("the %d bytes at %#x are registered", b.NBytes(), address(b))
	}
	return s.since, nil
}

// registeredAt is the place of a block in the order of registrations.
func (r *rank) registeredAt(b *tensor.Tensor) (uint64, error) {
	i := slices.IndexFunc(r.symmetric, func(s symmetric) bool { return s.addr == address(b) })
	if i < 0 {
		return 0, fmt.Errorf("the %d bytes at %#x are not registered as symmetric memory", b.NBytes(), address(b))
	}
	return uint64(i), nil
}

// layout is what a rank tells the others of its blocks.
type layout struct {
	Bytes  []int  `json:"b,omitempty"`
	Unable string `json:"u,omitempty"` // why there can be none
}

// symmetrically calls f for each block in the order that place gives, the same on all ranks, when these agree on the
// sizes.
func (r *rank) symmetrically(ctx context.Context, op string, timeout time.Duration, blocks []*tensor.Tensor,
	place func(b *tensor.Tensor) (uint64, error), f func(ctx context.Context, b *tensor.Tensor) error) error {
	at := r.In(op)
	if err := r.usable(at); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r.symmetrics++
	blocks, mine := r.arranged(blocks, place)
	all, err := tellAll(ctx, r, r.st, fmt.Sprintf("symmetric/%d", r.symmetrics), mine)
	if err != nil {
		return r.absent(at, timeout, err)
	}
	if err := agreed(at, op, all); err != nil {
		return err
	}
	unbind, err := r.dev.Bind()
	if err != nil {
		return &backend.InternalError{Where: at, Err: err}
	}
	defer unbind()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range blocks {
		if r.c == 0 {
			return r.Err(at)
		}
		err := f(ctx, b)
		if errors.Is(err, backend.ErrUnsupported) {
			return err
		}
		if err := r.outcome(ctx, at, timeout, err); err != nil {
			return err
		}
	}
	return nil
}

// arranged puts blocks in the order of their places.
func (r *rank) arranged(blocks []*tensor.Tensor, place func(b *tensor.Tensor) (uint64, error)) ([]*tensor.Tensor,
	layout) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := map[uint64]*tensor.Tensor{}
	for _, b := range blocks {
		p, err := place(b)
		if err == nil && at[p] != nil {
			err = fmt.Errorf("the %d bytes at %#x are given twice", b.NBytes(), address(b))
		}
		if err != nil {
			return nil, layout{Unable: err.Error()}
		}
		at[p] = b
	}
	var sorted []*tensor.Tensor
	var mine layout
	for _, p := range slices.Sorted(maps.Keys(at)) {
		sorted = append(sorted, at[p])
		mine.Bytes = append(mine.Bytes, at[p].NBytes())
	}
	return sorted, mine
}

// agreed says why ranks with these blocks can't register or deregister them; nil if they can.
func agreed(at backend.Where, op string, all []layout) error {
	if mine := all[at.Reporter]; mine.Unable != "" {
		return &backend.InvalidArgumentError{Where: at, Detail: mine.Unable}
	}
	for q, theirs := range all {
		if theirs.Unable != "" {
			return &backend.InvalidArgumentError{Where: at, Detail: fmt.Sprintf("rank %d can't: %s", q, theirs.Unable)}
		}
		if !slices.Equal(theirs.Bytes, all[0].Bytes) {
			say := func(l layout) string { return fmt.Sprintf("%s(blocks of %d bytes)", op, l.Bytes) }
			return &backend.MismatchError{Where: at, RankA: 0, OpA: say(all[0]), RankB: q, OpB: say(theirs)}
		}
	}
	return nil
}

// call makes a call of the library that may wait for other ranks, within the time of ctx. The caller has the lock, and
// the device is current.
func (r *rank) call(ctx context.Context, name string, f func() abi.Result) error {
	c := r.c
	if r.blocking {
		return r.apart(ctx, r.Broken(), func() error { return r.lib.failed(name, f(), c) })
	}
	err := r.lib.failed(name, f(), c)
	if err == nil {
		err = r.await(ctx, name, c)
	}
	return err
}

// leaveSymmetric ends what is known of symmetric memory, and returns what was. The caller has the lock.
func (r *rank) leaveSymmetric() []symmetric {
	all := r.symmetric
	r.symmetric = nil
	return all
}
