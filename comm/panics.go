package comm

import (
	"reflect"
	"runtime"
	"runtime/debug"
	"time"
)

// panicReason is a PanicError as the reason of an abort.
type panicReason struct{ err *PanicError }

func (r panicReason) Error() string { return r.err.Reason() }
func (r panicReason) Unwrap() error { return r.err }

// running is the hook of a call that runs, for PanicError.
type running struct {
	hook any   // *PreHook, *CompletionHook
	err  error // passed to a completion hook
}

func (r *running) name() string {
	switch f := r.hook.(type) {
	case *PreHook:
		return hookName("pre-hook", *f)
	case *CompletionHook:
		return hookName("completion hook", *f)
	}
	return ""
}

// hookName returns a hook's kind with the name of its function.
func hookName(kind string, f any) string {
	if fn := runtime.FuncForPC(reflect.ValueOf(f).Pointer()); fn != nil {
		return kind + " " + fn.Name()
	}
	return kind
}

// calls are what may be on a goroutine: a call, or several.
type calls interface {
	current() *call                   // whose hook runs, if one does; else any, or nil
	release(c *Comm, why *PanicError) // gives back what the goroutine holds for them
}

func (o *call) current() *call { return o }

func (o *call) release(c *Comm, _ *PanicError) { c.releaseCall() }

// panicked breaks the communicator because of what a deferred function has recovered, nil for Goexit, in an operation.
// under may be nil. The goroutine still has the stack of it.
func (c *Comm) panicked(op string, under calls, value any) *PanicError {
	e := &PanicError{Where: c.at(op), Value: value, Stack: debug.Stack()}
	var o *call
	if under != nil {
		o = under.current()
	}
	if o != nil {
		e.Op, e.Seq, e.Hook, e.Err = o.Kind.String(), o.Seq, o.running.name(), o.running.err
	}
	// The panic may have come from the backend, with its locks held.
	told := make(chan struct{})
	go func() {
		defer close(told)
		c.b.Abort(panicReason{e})
	}()
	select {
	case <-told:
	case <-time.After(abortTime):
	}
	if o != nil {
		c.rec.End(o.record, &o.Op, e)
		o.stage.end()
		c.report(o, e)
	} else {
		c.failed(e)
	}
	return e
}

// abortTime bounds an Abort that may not return.
const abortTime = time.Second

// attempt runs f on a goroutine of this package, and passes how it ended to then, which is called in any case.
func (c *Comm) attempt(op string, under calls, f func() error, then func(error)) {
	err, returned := error(nil), false
	defer func() {
		if !returned {
			err = c.panicked(op, under, recover())
			c.fatal(err)
		}
		then(err)
	}()
	err = f()
	returned = true
}

// abortCall is due in a deferred function if a call has panicked, with a value, or ended its goroutine while it held
// the lane, or was in the gate. It gives that back, and breaks the communicator. The panic goes on.
func (c *Comm) abortCall(under calls, value any) {
	under.release(c, c.panicked("", under, value))
	if value != nil {
		panic(value)
	}
}

// rethrow panics again with the value of a PanicError, once nothing is held for the caller any more. It's for
// operations that ran on their caller's goroutine and whose context has panicked. It returns any other error.
func rethrow(err error) error {
	switch e := err.(type) {
	case *PanicError:
		panic(e.Value)
	case *UnsettledError:
		rethrow(e.Err)
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			rethrow(err)
		}
	}
	return err
}

const panickedReason = "its program panicked"

// panicking reports whether the calling goroutine runs deferred functions because of a panic.
func panicking() bool {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		if f.Function == "runtime.gopanic" {
			return true
		}
		if !more {
			return false
		}
	}
}
