package launch

import (
	"context"
	"errors"
	"syscall"
)

// untilSignal returns a context that ends with ctx, or when a signal arrives that ends the job; its cause is then the
// *Failure. It is for the times when no rank runs. Call stop before anybody else reads the signals.
func (j *Job) untilSignal(ctx context.Context, node int, host string) (waiting context.Context, stop func()) {
	waiting, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case sig := <-j.Signals:
				if sig == syscall.SIGUSR1 || sig == syscall.SIGUSR2 {
					continue // meant for the ranks, and there are none
				}
				cancel(&Failure{Kind: Interrupted, Node: node, Host: host, Signal: sig.(syscall.Signal)})
			case <-waiting.Done():
				return
			}
		}
	}()
	return waiting, func() { cancel(nil); <-ended }
}

// interrupted replaces an error that came about while no rank ran by the failure behind it, if there is one: an
// interruption here, which the peers are told of, or a failure elsewhere. It explains the failure.
func (r *runner) interrupted(waiting context.Context, attempt int, err error) error {
	if err == nil {
		return nil
	}
	f, ok := context.Cause(waiting).(*Failure)
	if ok && r.peers != nil {
		f.Attempt = attempt
		f = r.peers.failed(f)
	}
	if !ok && !errors.As(err, &f) {
		return err
	}
	r.explain(f)
	return f
}
