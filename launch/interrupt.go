package launch

import (
	"context"
	"errors"
	"syscall"
)

// untilSignal returns a context that ends with ctx, or when a signal arrives that ends the job. It is for the times
// when no rank runs. Call stop when the wait is over, and before other code reads the signals: it returns the failure
// that such a signal was, which arrives nowhere else; nil if there was none.
func (j *Job) untilSignal(ctx context.Context, node int, host string) (waiting context.Context, stop func() *Failure) {
	waiting, cancel := context.WithCancel(ctx)
	ended := make(chan *Failure, 1)
	go func() {
		for {
			select {
			case sig := <-j.Signals:
				if sig == syscall.SIGUSR1 || sig == syscall.SIGUSR2 {
					continue // meant for the ranks, and there are none
				}
				cancel()
				ended <- &Failure{Kind: Interrupted, Node: node, Host: host, Signal: sig.(syscall.Signal)}
				return
			case <-waiting.Done():
				ended <- nil
				return
			}
		}
	}()
	return waiting, func() *Failure { cancel(); return <-ended }
}

// interrupted returns why the job doesn't go on after a time when no rank ran: a signal here, which the peers are told
// of, or else err, which may be a failure elsewhere. It explains the failure.
func (r *runner) interrupted(signal *Failure, attempt int, err error) error {
	f := signal
	switch {
	case f == nil && !errors.As(err, &f):
		return err
	case signal != nil && r.peers != nil:
		f.Attempt = attempt
		f = r.peers.Failed(f)
	}
	r.explain(f)
	return f
}
