package comm

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"runtime/debug"
	"time"
)

// PanicError reports that a hook of an operation, or other code of the program that it called, as a context's, has panicked or has ended
// its goroutine with runtime.Goexit. It breaks the communicator: on this rank the *[AbortedError] of every other operation has it
// as Err, and the other ranks' have its text as their Reason.
//
// What panics on the goroutine of a call goes on to its caller, when the communicator is broken. On a goroutine of this package,
// where nobody could recover it, it's the operation's error: of one that is asynchronous, or had to wait for its turn, or is on a stream.
type PanicError struct {
	Where
	Hook  string // the hook's kind and function, as in "pre-hook main.check"; "" if it was no hook
	Value any    // what it has panicked with; nil for runtime.Goexit
	Stack []byte // of its goroutine, as runtime/debug has it
	Err   error  // what the operation had failed with before its completion hook ran; may be nil
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("chorus: rank %d of %q: %s", e.Rank, e.Comm, e.what())
}

// what is the error's text as the other ranks have it, who know whose it is.
func (e *PanicError) what() string {
	text := e.Op
	if e.Seq != 0 {
		text += fmt.Sprintf(" #%d", e.Seq)
	}
	if text != "" && e.Hook != "" {
		text += ": "
	}
	text += e.Hook
	if e.Value == nil {
		return text + " ended its goroutine with runtime.Goexit"
	}
	return fmt.Sprintf("%s panicked: %v", text, e.Value)
}

// Is makes the error ErrAborted, which the others get.
func (e *PanicError) Is(target error) bool { return target == ErrAborted }

// Unwrap returns the operation's own error, and the value if it's one.
func (e *PanicError) Unwrap() []error {
	var all []error
	if e.Err != nil {
		all = append(all, e.Err)
	}
	if err, ok := e.Value.(error); ok {
		all = append(all, err)
	}
	return all
}

// panicReason is a PanicError as the reason of an abort.
type panicReason struct{ err *PanicError }

func (r panicReason) Error() string { return r.err.what() }
func (r panicReason) Unwrap() error { return r.err }

// running is the hook of a call that runs, for PanicError.
type running struct {
	hook any   // *PreHook, *CompletionHook
	err  error // what a completion hook is told
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
	current() *call // whose hook runs, if one does
}

func (o *call) current() *call { return o }

// panicked breaks the communicator because of what a deferred function has recovered, nil for Goexit, in an operation.
// under may be nil. The goroutine still has the stack of it.
func (c *Comm) panicked(op string, under calls, value any) *PanicError {
	e := &PanicError{Where: c.at(op), Value: value, Stack: debug.Stack()}
	var o *call
	if under != nil {
		o = under.current()
		e.Op, e.Seq, e.Hook, e.Err = o.Kind.String(), o.Seq, o.running.name(), o.running.err
	}
	// What has panicked may be the backend, with its locks held.
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
		o.report()
	}
	c.failed(e)
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
		}
		then(err)
	}()
	err = f()
	returned = true
}

// unwindLane is deferred by the goroutine of a call while it holds the lane. If the call doesn't return but panics, or ends the
// goroutine, the lane is given back.
func (c *Comm) unwindLane(o *call, held *bool) {
	if !*held {
		return
	}
	value := recover()
	c.panicked(o.Kind.String(), o, value)
	c.disown()
	if value != nil {
		panic(value)
	}
}

// unwindGate is unwindLane for a transfer, which is in the gate.
func (c *Comm) unwindGate(o *call, held *bool) {
	if !*held {
		return
	}
	value := recover()
	err := c.panicked(o.Kind.String(), o, value)
	c.gate.exit()
	if o.work != nil {
		o.work.settle(err)
	}
	if value != nil {
		panic(value)
	}
}

var errPanicked = errors.New("its program panicked")

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
