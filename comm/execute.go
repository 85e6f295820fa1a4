package comm

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/observe/record"
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
	if err == nil && o.plain { // all that finish does for it
		c.rec.Done(&o.Op)
		if o.value != nil {
			c.report(o, nil)
		}
		return nil
	}
	return c.finish(o, err)
}

// submit passes a call to the backend, behind its pre-hooks. If it fails, the call has ended.
func (c *Comm) submit(o *call) error {
	if c.hooks.Load() != nil {
		if err := c.before(o); err != nil {
			return err
		}
	}
	return c.b.Submit(&o.Op)
}

// finish ends every call that has begun, with what the backend or a pre-hook has returned.
func (c *Comm) finish(o *call, err error) error {
	err = o.stage.finish(o, err)
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

// refused reports to the backend a collective that doesn't reach it, since other ranks may be waiting for it. It's the
// collective's turn.
func (c *Comm) refused(op string, why error) {
	if b, ok := c.b.(backend.Messenger); ok && !errors.Is(why, ErrFinalized) {
		b.Refused(op, why)
	}
}

// refuse is refused when the collectives before are done. It returns the reason.
func (c *Comm) refuse(op string, why error) error {
	if c.lane.tryAcquire() {
		c.refused(op, why)
		c.lane.release()
	} else {
		c.lane.after(func() { c.refused(op, why) })
	}
	return why
}

// exclusive runs f in the order of the collectives and waits for it; kind and n are for the recorder.
func (c *Comm) exclusive(kind record.Special, n int, f func() error) error {
	var err error
	defer c.placement.Load().exclude()()
	record := c.rec.BeginSpecial(kind, n)
	<-c.lane.after(func() { c.attempt(kind.String(), nil, f, func(e error) { err = e }) })
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

// abortProcess ends the process with an error, once the other ranks have it, too.
func (c *Comm) abortProcess(err error, site uint16, why string) {
	if p, ok := c.b.(backend.Parter); ok {
		p.Part()
	}
	if f, ok := record.SiteFrame(uintptr(site)); ok {
		fmt.Fprintf(os.Stderr, "%v; it was called at %s:%d (%s)\n", err, f.File, f.Line, f.Name)
	} else {
		fmt.Fprintln(os.Stderr, err)
	}
	fmt.Fprintf(os.Stderr, "chorus: aborting the process, %s\n", why)
	syscall.Kill(os.Getpid(), syscall.SIGABRT)
	select {}
}
