package comm

import (
	"context"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/tensor"
)

// An executor carries out the prepared operations of a communicator. There are four. The hostExecutor runs them on the
// caller's goroutine, or in the lane's queue. The streamExecutor puts them on a stream of the device as functions of
// the host. The stagedExecutor has the hostExecutor run them on copies of the device's memory. The libraryExecutor has
// the backend's library put them on a stream. A communicator gets its executor when it's made; Bind exchanges the host's
// for that of a device.
type executor interface {
	// carryOut does an operation, or issues it: a valid collective with those behind it in its batch, the messages of a
	// round, or an operation on a window. A collective that holds the lane gives it back.
	carryOut(o *call) error
}

// placement is where the operations of a communicator run, and where the tensors are that they take.
type placement struct {
	executor
	c      *Comm
	host   bool           // tensors of the host
	device *device.Device // tensors of this device; may be nil
	dev    *streams       // what it has for the device; nil for the host
}

// placementOn is the placement for what newStreams has returned.
func (c *Comm) placementOn(s *streams) *placement {
	h := hostExecutor{c}
	if s == nil {
		return &placement{c: c, executor: h, host: true}
	}
	s.hostExecutor = h
	p := &placement{c: c, host: s.host, device: s.dev, dev: s, executor: &streamExecutor{s}}
	if s.staged {
		p.executor = stagedExecutor{&streamExecutor{s}}
	}
	if s.library != nil {
		s.library.enq.BeforeStop(s.library.noteDone)
		p.executor = s.library
	}
	return p
}

// dev is what the communicator has for its device; nil if it's the host's.
func (c *Comm) dev() *streams { return c.placement.Load().dev }

// library is the executor of a backend that puts operations on streams by itself; nil if it's another one.
func (p *placement) library() *libraryExecutor {
	if p.dev == nil {
		return nil
	}
	return p.dev.library
}

// view is a tensor as the backend wants it.
func (p *placement) view(t *tensor.Tensor) (*tensor.Tensor, error) {
	if p.library() != nil {
		return t, nil
	}
	return t.EngineView()
}

// refuse ends a collective that isn't valid, and doesn't hold the lane. Ranks that wait for it learn why. It returns
// the reason.
func (p *placement) refuse(o *call, why error) error {
	p.c.rec.Refused(why)
	if p.dev != nil {
		p.dev.refuse(o, why)
		return why
	}
	return p.c.refuse(o.Kind.String(), why)
}

// quiesce waits until collectives that were enqueued are done, and messages are posted. That they failed is for
// others to see.
func (p *placement) quiesce(ctx context.Context) error {
	if p.dev == nil {
		return nil
	}
	return p.dev.quiesce(ctx)
}

// exclude keeps a library's operations from being enqueued until resume is called.
func (p *placement) exclude() (resume func()) {
	if p.library() == nil {
		return func() {}
	}
	p.dev.mu.Lock()
	return p.dev.mu.Unlock
}

// close gives back what there is for the device.
func (p *placement) close() {
	if p.dev != nil {
		p.dev.close()
	}
}
