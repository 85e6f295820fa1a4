package comm

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/observe"
)

// execute has the backend do all of a collective, on the goroutine that holds the lane for it.
func (c *Comm) execute(o *call) error {
	var err error
	if c.hooks.Load() != nil {
		if o.record == 0 {
			o.record = c.rec.Begin(&o.Op, o.work != nil) // before a hook, which may hang
		}
		err = c.submit(o)
	} else {
		err = c.b.Submit(&o.Op)
	}
	if o.record == 0 { // it's recorded while this rank's announcement is on its way to the others
		o.record = c.rec.Begin(&o.Op, o.work != nil)
	}
	if err == nil {
		err = c.b.Wait(&o.Op)
	}
	return c.finish(o, err)
}

// submit passes a call to the backend, behind its pre-hooks. If it fails, the call has ended.
func (c *Comm) submit(o *call) error {
	if h := c.hooks.Load(); h != nil {
		if err := c.before(h, o); err != nil {
			return err
		}
	}
	return c.b.Submit(&o.Op)
}

// finish ends every call that has begun, with what the backend or a pre-hook has returned.
func (c *Comm) finish(o *call, err error) error {
	c.rec.End(o.record, &o.Op, err)
	if err != nil || o.value != nil || o.from != nil {
		c.report(o, err)
	}
	if o.hooks != nil {
		c.completed(o, err)
	}
	if err != nil {
		c.fatal(err)
	}
	return err
}

// refuse reports to the backend a collective that doesn't reach it, when it's the collective's
// turn, since the others may be waiting for it. It returns the reason.
func (c *Comm) refuse(op string, owner bool, why error) error {
	b, ok := c.b.(backend.Messenger)
	switch {
	case !ok || errors.Is(why, ErrFinalized):
	case owner:
		b.Refused(op, why)
	default:
		c.lane.enqueue(func() { b.Refused(op, why) })
	}
	return why
}

// exclusive runs f in the order of the collectives and waits for it; kind and n are for the recorder.
func (c *Comm) exclusive(kind observe.Special, n int, f func() error) error {
	var err error
	if c.dev() != nil && c.dev().enq != nil { // nothing is enqueued meanwhile
		c.dev().mu.Lock()
		defer c.dev().mu.Unlock()
	}
	record := c.rec.BeginSpecial(kind, n)
	done := make(chan struct{})
	c.lane.enqueue(func() {
		c.attempt(kind.String(), nil, f, func(e error) {
			err = e
			close(done)
		})
	})
	<-done
	c.rec.Drop(record, err)
	if err != nil {
		c.failed(err)
		c.fatal(err)
	}
	return err
}

// failed has the rank dumped if an error broke the communicator, or the wait for a message timed out: the caller,
// which gets the error, may end the process.
func (c *Comm) failed(err error) {
	if cause := c.b.Cause(); cause != nil {
		c.rec.Failed(cause)
	} else if errors.Is(err, ErrTimeout) {
		c.rec.Late()
	}
}

// fatal aborts the process if an option asks for it, on errors that break the communicator and when the wait for a
// message times out.
func (c *Comm) fatal(err error) {
	if !c.abortOnError || errors.Is(err, ErrInvalidArgument) || errors.Is(err, ErrFinalized) ||
		c.b.Cause() == nil && !errors.Is(err, ErrTimeout) {
		return
	}
	c.abortProcess(err, 0, "as TORCHCOMM_ABORT_ON_ERROR or WithAbortOnError asks")
}

// fatalBehind aborts the process if the communicator was told to by [WithAbortBehind], for an operation on a stream
// that has failed and was called at a site. It doesn't for an abort of this rank's own, or if a call has the error.
func (c *Comm) fatalBehind(err error, site uint16) {
	if e, ok := errors.AsType[*AbortedError](err); ok && e.By == c.rank || !c.abortBehind || c.b.Cause() == nil ||
		errors.Is(err, ErrFinalized) || c.dev().errorReturned.Load() {
		return
	}
	c.abortProcess(err, site, "since what the stream has behind the operation would go on without its results "+
		"(WithAbortBehind; in Python TORCH_NCCL_ASYNC_ERROR_HANDLING)")
}

// abortProcess ends the process with an error, once the other ranks have it, too.
func (c *Comm) abortProcess(err error, site uint16, why string) {
	if p, ok := c.b.(backend.Parter); ok {
		p.Part()
	}
	if f, ok := observe.SiteFrame(uintptr(site)); ok {
		fmt.Fprintf(os.Stderr, "%v; it was called at %s:%d (%s)\n", err, f.File, f.Line, f.Name)
	} else {
		fmt.Fprintln(os.Stderr, err)
	}
	fmt.Fprintf(os.Stderr, "chorus: aborting the process, %s\n", why)
	syscall.Kill(os.Getpid(), syscall.SIGABRT)
	select {}
}
