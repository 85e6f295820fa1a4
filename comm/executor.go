package comm

import (
	"context"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/tensor"
)

// An executor carries out the prepared operations of a communicator. There are three. The hostExecutor runs them on the
// caller's goroutine, or in the lane's queue. The streamExecutor puts them on a stream of the device as functions of
// the host. The libraryExecutor has the backend's library put them on a stream. A communicator gets its executor when
// it's made; Bind exchanges the host's for that of a device.
type executor interface {
	// callerRuns reports whether the caller's goroutine executes a collective that holds the lane.
	callerRuns(o *call) bool
	// inline starts a collective that holds the lane on the caller's goroutine, on a stream, and sees to the rest of it.
	// It reports false if it has done nothing.
	inline(o *call) bool
	// run does any other collective, or issues it, with those behind it in its batch. The call doesn't hold the lane.
	run(o *call) error
	// refuse ends a collective that isn't valid, and doesn't hold the lane. Ranks that wait for it learn why. It returns
	// the reason.
	refuse(o *call, why error) error
	// joins reports whether collectives of a batch are one call of the backend, though their caller waits for them.
	joins(o *call) bool
	// messages carries out sends and receives.
	messages(r *round) error
	// window carries out an operation on a device's window.
	window(w *Window, o *call, x windowOp) error

	// work is the part of a new Work that the device needs.
	work() *deviceWork
	// view is a tensor as the backend wants it.
	view(t *tensor.Tensor) (*tensor.Tensor, error)
	// quiesce waits until collectives that were enqueued are done, and messages are posted. That they failed is for
	// others to see.
	quiesce(ctx context.Context) error
	// idle reports whether nothing that the backend has put on a stream is under way, noticed or not yet.
	idle() bool
	// exclude keeps operations from being enqueued until resume is called.
	exclude() (resume func())
	// close gives back what the executor has for its device.
	close()
}

// placement is where the operations of a communicator run, and where the tensors are that they take.
type placement struct {
	executor
	host   bool           // tensors of the host
	device *device.Device // tensors of this device; may be nil
	dev    *streams       // what it has for the device
}

// executorOf chooses the executor for what newStreams has returned.
func (c *Comm) executorOf(s *streams) *placement {
	h := hostExecutor{c}
	if s == nil {
		return &placement{executor: h, host: true}
	}
	s.hostExecutor = h
	p := &placement{host: s.host, device: s.dev, dev: s, executor: &streamExecutor{streams: s}}
	if s.enq != nil {
		x := &libraryExecutor{streams: s}
		s.enq.BeforeStop(x.noteDone)
		p.executor = x
	}
	return p
}

// dev is what the communicator has for its device; nil if it's the host's.
func (c *Comm) dev() *streams { return c.placement.Load().dev }
