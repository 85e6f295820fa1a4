package comm

import (
	"context"
	"sync/atomic"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// PersistentAllGather is an all-gather that is set up once and run often, always
// into the same output.
//
//	p, err := c.AllGatherInit(out)
//	for ... {
//		err = p.Exec(ctx, in)
//	}
//	err = p.Free()
type PersistentAllGather struct {
	c     *Comm
	out   *tensor.Tensor
	freed atomic.Bool
}

// AllGatherInit prepares all-gathers into out, whose elements are divisible by the world size.
// It's local; every rank calls it with the same size and dtype.
func (c *Comm) AllGatherInit(out *tensor.Tensor) (*PersistentAllGather, error) {
	const op = "all_gather_init"
	if err := c.usable(context.Background(), op); err != nil {
		return nil, err
	}
	if bad := one("output", out, dtype.Invalid); bad != "" {
		return nil, c.invalid(op, "%s", bad)
	}
	if out.NumEl()%c.size != 0 {
		return nil, c.invalid(op, "%d elements are not divisible by the world size %d", out.NumEl(), c.size)
	}
	return &PersistentAllGather{c: c, out: out}, nil
}

// Exec gathers every rank's in, as AllGatherSingle does.
func (p *PersistentAllGather) Exec(ctx context.Context, in *tensor.Tensor, opts ...Option) error {
	if p.freed.Load() {
		return p.c.invalid("all_gather_exec", "it was freed")
	}
	return p.c.AllGatherSingle(ctx, p.out, in, opts...)
}

// Free ends it. It's local; freeing twice is an error.
func (p *PersistentAllGather) Free() error {
	if p.freed.Swap(true) {
		return p.c.invalid("all_gather_free", "it was freed before")
	}
	return nil
}

// Register tells the backend that t will be used often: it prepares for that, and keeps the memory and the mappings
// that peers have of it until Deregister. Memory that it has nothing to prepare of may be registered as well, to no
// effect. It's local.
func (c *Comm) Register(t *tensor.Tensor) error {
	r, err := c.registrar("register", t)
	if err != nil {
		return err
	}
	if t, err = c.touched(t); err != nil {
		return c.deviceError("register", err)
	}
	return r.Register(t)
}

// Deregister ends what Register began; an *InvalidArgumentError if t isn't registered.
func (c *Comm) Deregister(t *tensor.Tensor) error {
	r, err := c.registrar("deregister", t)
	if err != nil {
		return err
	}
	if t, err = c.touched(t); err != nil {
		return c.deviceError("deregister", err)
	}
	return r.Deregister(t)
}

func (c *Comm) registrar(op string, t *tensor.Tensor) (backend.Registrar, error) {
	if err := c.usable(context.Background(), op); err != nil {
		return nil, err
	}
	if bad := one("tensor", t, dtype.Invalid); bad != "" {
		return nil, c.invalid(op, "%s", bad)
	}
	r, ok := c.b.(backend.Registrar)
	if !ok {
		return nil, &UnsupportedError{Where: c.at(op), Detail: "backend " + c.backend + " registers no memory"}
	}
	return r, nil
}
