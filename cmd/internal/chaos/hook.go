package chaos

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/chorus-comms/chorus/comm"
)

var errHook = errors.New("the hook has had enough")

// spoil gives a communicator a hook that panics, or ends its goroutine, at the next operation.
func (r *rank) spoil(c *comm.Comm) {
	var did atomic.Bool
	strike := func() {
		if did.Swap(true) {
			return
		}
		r.in.fire()
		if r.p.Fault.Wrong&1 != 0 {
			runtime.Goexit()
		}
		panic(errHook)
	}
	if r.p.Fault.Wrong&2 != 0 {
		c.RegisterCompletionHook(func(comm.OpInfo, error) { strike() })
	} else {
		c.RegisterPreHook(func(comm.OpInfo) error { strike(); return nil })
	}
}

// contained takes a step, and recovers from what a hook panics with on its goroutine, as a program may.
func (r *rank) contained(c *comm.Comm, k int, do func() error) error {
	f := r.p.Fault
	if f.Kind != Panic || !r.in.culprit() {
		return do()
	}
	if k == f.Step {
		r.spoil(c)
	}
	ended := make(chan error, 1)
	go func() {
		err, returned := error(nil), false
		defer func() {
			if !returned {
				if value := recover(); value != nil && value != errHook {
					panic(value)
				}
				err = c.Err() // the cause, which is to be the panic
				if p := (*comm.PanicError)(nil); !errors.As(err, &p) {
					err = fmt.Errorf("a hook has panicked, but what broke the communicator is: %v", err)
				}
			}
			ended <- err
		}()
		err = do()
		returned = true
	}()
	return <-ended
}
