package base

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/internal/sys"
)

// Life is one rank's part of a communicator, from Begin to its first failure or its end. The zero Life has not begun.
type Life struct {
	at     backend.Where
	abort  *fabric.Abort
	report func(from uint64, cause error)

	// Reporting counts the goroutines that are reporting a failure to the other ranks. Shared, if it isn't nil, counts
	// those that do so for several communicators.
	Reporting Pending
	Shared    *Pending

	ended    uint64       // the last operation that this rank has finished: sys.StoreRelaxed
	returned atomic.Bool  // an operation has returned the failure
	breaking atomic.Int32 // causes that wait for this rank to end earlier operations
}

// Begin begins the life of a rank's part of the communicator called name. tell sends the other ranks the first cause of
// a failure that this rank has found. Operations from number from on fail; 0: at once.
func (l *Life) Begin(name string, rank int, tell func(from uint64, cause error)) {
	l.at, l.abort, l.report = backend.Where{Comm: name, Reporter: rank}, fabric.NewAbort(), tell
}

// Where says of which rank of which communicator an error is.
func (l *Life) Where() backend.Where { return l.at }

// In is Where, in an operation that has no number.
func (l *Life) In(op string) backend.Where {
	at := l.at
	at.Op = op
	return at
}

// Of is Where, in an operation.
func (l *Life) Of(op *backend.Op) backend.Where {
	at := l.at
	at.Op, at.Seq = op.Kind.String(), op.Seq
	return at
}

// Raised reports whether the communicator is broken, or has ended.
func (l *Life) Raised() bool { return l.abort.Raised() }

// Waiter returns a new Waiter, whose waits end when the communicator breaks.
func (l *Life) Waiter() *fabric.Waiter { return fabric.NewWaiter(l.abort) }

// Broken implements backend.Backend.
func (l *Life) Broken() <-chan struct{} { return l.abort.Done() }

// Cause implements backend.Backend.
func (l *Life) Cause() error { return l.abort.Cause() }

// Abort implements backend.Backend.
func (l *Life) Abort(cause error) {
	l.Fail(&backend.AbortedError{Where: l.at, By: l.at.Reporter, Reason: cause.Error(), Err: cause})
}

// Ending implements backend.Ender.
func (l *Life) Ending(why string) {
	l.Reporting.Begin()
	defer l.Reporting.End()
	if l.Break(&backend.AbortedError{Where: l.at, By: l.at.Reporter, Reason: why, Err: errors.New(why)}) {
		l.report(0, &backend.PeerLostError{Where: l.at, Peer: l.at.Reporter, Cause: why})
	}
}

// Break breaks the communicator on this rank. It reports whether the cause is the first.
func (l *Life) Break(cause error) bool { return l.abort.Raise(cause) }

// Fail breaks the communicator on this rank, and reports the cause to the others if it's the first.
func (l *Life) Fail(cause error) { l.FailFrom(0, cause) }

// FailFrom is Fail, from an operation on: a rank that is still in an earlier one may end it.
func (l *Life) FailFrom(seq uint64, cause error) {
	l.Reporting.Begin()
	defer l.Reporting.End()
	if l.Break(cause) {
		l.report(seq, cause)
	}
}

// Panicked breaks the communicator because the context of a call has panicked in a wait. It returns the error of that
// call.
func (l *Life) Panicked(at backend.Where, p *fabric.PanicError) error {
	e := &backend.PanicError{Where: at, Value: p.Value, Stack: p.Stack}
	l.Fail(&backend.AbortedError{Where: l.at, By: l.at.Reporter, Reason: e.Reason(), Err: e})
	return e
}

// Ended notes the last operation that this rank has finished. It's for the goroutine of the operation.
func (l *Life) Ended(seq uint64) { sys.StoreRelaxed(&l.ended, seq) }

// BreakFrom breaks the communicator with a cause that another rank has reported, and that makes operations from seq on
// fail. If this rank has earlier operations to end, it gets the time to: the result of an operation shouldn't depend on
// how far the others are ahead. seq 0 means at once.
func (l *Life) BreakFrom(seq uint64, cause error) {
	if !l.behind(seq) {
		l.Break(cause)
		return
	}
	l.breaking.Add(1)
	go func() {
		defer l.breaking.Add(-1)
		for end := time.Now().Add(behindTime); l.behind(seq) && time.Now().Before(end); {
			select {
			case <-l.abort.Done():
				return
			case <-time.After(behindPause):
			}
		}
		l.Break(cause)
	}()
}

// Breaking reports whether a cause waits in BreakFrom.
func (l *Life) Breaking() bool { return l.breaking.Load() > 0 }

// HasEnded reports whether this rank has finished an operation, without a failure.
func (l *Life) HasEnded(seq uint64) bool { return atomic.LoadUint64(&l.ended) >= seq }

// behind reports whether this rank has not yet ended all operations before seq.
func (l *Life) behind(seq uint64) bool { return atomic.LoadUint64(&l.ended)+1 < seq }

const (
	// behindTime bounds how long a rank that is behind may take, which is forever if it waits for one that has failed.
	// It's half of what ranks of one host have to learn of each other's failures; behindPause is how often it looks.
	behindTime  = 500 * time.Millisecond
	behindPause = time.Millisecond
	// reportingTime bounds how long an operation that fails waits until the reports to the others
	// are sent.
	reportingTime = time.Second
)

// Err returns the cause as an error at a place, once it was reported to the others: the caller may end the process,
// and would be blamed if it did so before. The communicator is broken.
func (l *Life) Err(at backend.Where) error {
	l.returned.Store(true)
	l.Reporting.Within(reportingTime)
	if l.Shared != nil {
		l.Shared.Within(reportingTime)
	}
	switch e := l.abort.Cause().(type) {
	case *backend.MismatchError:
		c := *e
		if c.Op == "" {
			c.Where = at
		}
		return &c
	case *backend.TimeoutError:
		c := *e
		return &c
	case *backend.PeerLostError:
		c := *e
		c.Where = at
		return &c
	case *backend.AbortedError:
		c := *e
		c.Where = at
		return &c
	case *backend.InternalError:
		c := *e
		return &c
	case *backend.FinalizedError:
		return &backend.FinalizedError{Where: at}
	default:
		return &backend.InternalError{Where: at, Err: e}
	}
}

// FailureReturned reports whether an operation has returned the failure that broke the communicator.
func (l *Life) FailureReturned() bool { return l.returned.Load() }

// UnreturnedMismatch returns the mismatch that has broken the communicator, if it's of an operation of this rank that
// had returned without an error, and no later one has returned it. Otherwise it returns nil. It's for Finalize.
func (l *Life) UnreturnedMismatch() error {
	e, ok := l.Cause().(*backend.MismatchError)
	if !ok || l.FailureReturned() || e.RankA != l.at.Reporter && e.RankB != l.at.Reporter {
		return nil
	}
	return e
}

// End ends this rank's part, once no goroutine is reporting a failure any more. It reports whether there was
// no failure.
func (l *Life) End() (healthy bool) {
	healthy = l.Break(&backend.FinalizedError{Where: l.at})
	l.Reporting.Wait()
	if l.Shared != nil {
		l.Shared.Wait()
	}
	return healthy
}

// CanceledUnderWay is the error of a collective whose context has ended while it was under way.
func CanceledUnderWay(at backend.Where, err error) error {
	reason := fmt.Sprintf("its context ended in the middle of the operation: %v", err)
	return &backend.AbortedError{Where: at, By: at.Reporter, Reason: reason, Err: err}
}

// CauseOf makes a typed error of why a collective failed that waited for messages. rankOf translates the link's
// numbers, and timedOut makes the error of one whose time is over.
func (l *Life) CauseOf(at backend.Where, ctx context.Context, j *Job, rankOf func(peer int) int, err error,
	timedOut func() error) error {
	var mm *fabric.MismatchError
	var long *fabric.TruncatedError
	var lost *fabric.PeerError
	switch {
	case errors.As(err, &mm):
		return l.Disagreement(rankOf(mm.Peer), &mm.Local, &mm.Remote, cmp.Or(mm.Seq, at.Seq))
	case errors.As(err, &long):
		return j.UnequalBlocks(at, rankOf(long.Peer), long)
	case errors.As(err, &lost):
		return LossOf(at, rankOf(lost.Peer), lost)
	case errors.Is(err, fabric.ErrTimeout), ctx.Err() == context.DeadlineExceeded:
		return timedOut()
	case ctx.Err() != nil:
		return CanceledUnderWay(at, err)
	case errors.Is(err, fabric.ErrCanceled):
		return &backend.AbortedError{Where: at, By: -1, Reason: Withdrew}
	}
	return &backend.InternalError{Where: at, Err: err}
}

// PeerFailed breaks the communicator because of a failure that another rank reports.
func (l *Life) PeerFailed(f *Failure) {
	at := l.at
	at.Op, at.Seq = f.Op, f.Seq
	switch {
	case f.Kind == Lost && f.Rank == at.Reporter: // it may well live: a link can break of which one end doesn't know
		l.Break(&backend.PeerLostError{Where: at, Peer: f.By, Cause: "it has lost its link to this rank: " + f.Text})
	case f.Kind == Timeout:
		l.Break(f.Err(at))
	default:
		l.BreakFrom(f.From, f.Err(at))
	}
}

// ReportTime is how long a rank whose peer has left, or withdrawn a message, in the middle of an operation waits for
// the report of the failure that made the peer do so.
const ReportTime = time.Second

// AwaitReport waits for the report of a failure that may be on its way. The report breaks the communicator before this
// rank's own view does.
func (l *Life) AwaitReport() {
	select {
	case <-l.Broken():
	case <-time.After(ReportTime):
	}
}

// WaitError is the error of a wait that ended early, for a reason that concerns its caller alone: it timed out, its
// context has ended, or the communicator was finalized. The wait was for rank missing; negative if for none in
// particular.
func (l *Life) WaitError(at backend.Where, w *fabric.Waiter, missing int, err error) error {
	switch {
	case l.Raised():
		return l.Err(at)
	case errors.Is(err, fabric.ErrTimeout), w.Ctx.Err() == context.DeadlineExceeded:
		e := &backend.TimeoutError{Where: at, Attendance: backend.Attendance{Elapsed: w.Elapsed()}}
		if missing >= 0 {
			e.Missing = []int{missing}
		}
		return e
	case w.Ctx.Err() != nil:
		return &backend.CanceledError{Where: at, Err: err}
	case errors.Is(err, fabric.ErrClosed):
		return &backend.FinalizedError{Where: at}
	}
	return &backend.InternalError{Where: at, Err: err}
}
