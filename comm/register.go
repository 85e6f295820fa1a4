package comm

import (
	"context"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// Register tells the backend that t will be used often: it prepares for that, and keeps the memory and the mappings
// that peers have of it until Deregister. Memory that it has nothing to prepare of may be registered as well, to no
// effect. It's local.
func (c *Comm) Register(t *tensor.Tensor) error {
	r, err := c.registrar("register", t)
	if err != nil {
		return err
	}
	if t, err = c.placement.Load().view(t); err != nil {
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
	if t, err = c.placement.Load().view(t); err != nil {
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
