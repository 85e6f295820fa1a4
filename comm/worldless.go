package comm

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/device"
)

// openWorldless makes a communicator without a world.
func (o *newOptions) openWorldless(abort bool) *Comm {
	o.rank, o.size = -1, 0
	o.masterAddr = bootstrap.MasterHost(os.Getenv)
	return newComm(&worldless{name: o.backend, comm: o.name, broken: make(chan struct{})}, o, abort)
}

// worldless is the backend of a communicator without a world: it can only be aborted, and end.
type worldless struct {
	name, comm string
	device     atomic.Pointer[device.Device] // which Bind gave it, for its world
	once       sync.Once
	broken     chan struct{}
	cause      error // valid once broken is closed
}

func (w *worldless) refuse(op string) error {
	return &InvalidArgumentError{Where: Where{Comm: w.comm, Reporter: -1, Op: op}, Detail: noWorld}
}

const noWorld = "the communicator has no world yet; Reconfigure or Regroup gives it one"

// bind reports whether d is the communicator's device, as the first that is given becomes.
func (w *worldless) bind(d *device.Device) bool {
	return w.device.CompareAndSwap(nil, d) || w.device.Load() == d
}

// Capabilities implements backend.Backend.
func (w *worldless) Capabilities() Capabilities { return Capabilities{Name: w.name, Abort: true} }

// Submit implements backend.Backend.
func (w *worldless) Submit(op *backend.Op) error { return w.refuse(op.Kind.String()) }

// Wait implements backend.Backend.
func (w *worldless) Wait(op *backend.Op) error { return w.refuse(op.Kind.String()) }

// Split implements backend.Backend.
func (w *worldless) Split(context.Context, string, []int, time.Duration, map[string]string) (backend.Backend, error) {
	return nil, w.refuse("split")
}

// Abort implements backend.Backend.
func (w *worldless) Abort(cause error) {
	w.end(&AbortedError{Where: w.where(), By: -1, Reason: cause.Error(), Err: cause})
}

func (w *worldless) where() Where { return Where{Comm: w.comm, Reporter: -1} }

func (w *worldless) end(cause error) {
	w.once.Do(func() {
		w.cause = cause
		close(w.broken)
	})
}

// Broken implements backend.Backend.
func (w *worldless) Broken() <-chan struct{} { return w.broken }

// Cause implements backend.Backend.
func (w *worldless) Cause() error {
	select {
	case <-w.broken:
		return w.cause
	default:
		return nil
	}
}

// Finalize implements backend.Backend.
func (w *worldless) Finalize(context.Context) error {
	w.end(&FinalizedError{Where: w.where()})
	return nil
}
