package backend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chorus-comms/chorus/internal/wire"
)

// Where says which operation of which communicator an error belongs to.
type Where struct {
	Comm     string // communicator name
	Op       string // operation, such as "all_reduce"; empty outside of one
	Seq      uint64 // sequence number of the operation on its communicator; 0 outside of one
	Reporter int    // the rank that reports
}

func (w Where) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "chorus: rank %d of %q", w.Reporter, w.Comm)
	if w.Op != "" {
		fmt.Fprintf(&b, ": %s", w.Op)
		if w.Seq != 0 {
			fmt.Fprintf(&b, " #%d", w.Seq)
		}
	}
	return b.String()
}

// Beginning is how the texts of Chorus' errors begin, once.
const Beginning = "chorus: "

// BeginsOnce returns the text of an error without the beginnings of others that it quotes.
func BeginsOnce(text string) string {
	before, after, quotes := strings.Cut(text, Beginning)
	if !quotes {
		return text
	}
	return before + Beginning + strings.ReplaceAll(after, Beginning, "")
}

// said is the text of an error at w with a message; errors that the message quotes lose their own
// place.
func (w Where) said(what string) string {
	at := w.String()
	what = strings.TrimPrefix(what, at+": ")
	return at + ": " + strings.ReplaceAll(what, Beginning, "")
}

// At returns where an error happened; all errors of this package have it.
func (w Where) At() Where { return w }

// The kinds of error, for errors.Is. Each concrete type below is one of them.
var (
	ErrInvalidArgument = errors.New("invalid argument")
	ErrMismatch        = errors.New("ranks call different operations")
	ErrTimeout         = errors.New("timed out")
	ErrPeerLost        = errors.New("peer lost")
	ErrAborted         = errors.New("aborted")
	ErrUnsupported     = errors.New("unsupported")
	ErrInternal        = errors.New("internal error")
	ErrFinalized       = errors.New("communicator is finalized")
	ErrCanceled        = errors.New("context ended")
)

// InvalidArgumentError reports arguments that were refused before any byte moved.
// The communicator stays usable.
type InvalidArgumentError struct {
	Where
	Detail string
	Err    error // the cause, if it has one of its own, such as a device's; else nil
}

func (e *InvalidArgumentError) Error() string        { return e.said(e.Detail) }
func (e *InvalidArgumentError) Is(target error) bool { return target == ErrInvalidArgument }
func (e *InvalidArgumentError) Unwrap() error        { return e.Err }

// Attendance says who took part in an operation of all ranks that failed, as far as the rank that reports could learn.
// It's empty for what concerns no such operation.
type Attendance struct {
	Elapsed time.Duration // how long the operation, and so each rank that is missing, was waited for
	Arrived []int         // ranks known to have entered the operation
	Missing []int         // ranks known not to have entered it
	Unknown []int         // ranks of which this rank could not learn
	// Refused says of missing ranks why the call that they made was refused there, before
	// anything moved, if that's why they are missing: "all_reduce: output is nil".
	Refused map[int]string
	// Doing says of missing ranks what they do instead, if they could say so: `in barrier #1 of "part", at train.go:79
	// (main.step), for 502ms`.
	Doing map[int]string
}

// describe appends who was there and who wasn't, and what of the latter is known.
func (a *Attendance) describe(b *strings.Builder) {
	for _, part := range []struct {
		name  string
		ranks []int
	}{{"missing", a.Missing}, {"no answer from", a.Unknown}, {"arrived", a.Arrived}} {
		if len(part.ranks) > 0 {
			fmt.Fprintf(b, "; %s: %s", part.name, Ranks(part.ranks))
		}
	}
	for _, r := range slices.Sorted(maps.Keys(a.Refused)) {
		fmt.Fprintf(b, "; rank %d has refused %s", r, a.Refused[r])
	}
	for _, r := range slices.Sorted(maps.Keys(a.Doing)) {
		if a.Refused[r] == "" {
			fmt.Fprintf(b, "; rank %d is %s", r, a.Doing[r])
		}
	}
}

// after is describe, with the time before it, of an error that happened before the operation's time was over.
func (a *Attendance) after() string {
	if len(a.Arrived) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "; waited %v", a.Elapsed.Round(time.Millisecond))
	a.describe(&b)
	return b.String()
}

// Attended returns the attendance; errors that have one share this method.
func (a *Attendance) Attended() *Attendance { return a }

// MismatchError reports that two ranks take part in different operations under
// the same sequence number. It breaks the communicator on every rank, unless it's
// a message that does not fit its Recv.
type MismatchError struct {
	Where
	RankA, RankB int
	OpA, OpB     string // each side's operation in full: kind, dtype, count, root, reduction
	Attendance
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%v: ranks call different operations: rank %d calls %s, rank %d calls %s%s", e.Where, e.RankA,
		e.OpA, e.RankB, e.OpB, e.after())
}
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }

// TimeoutError reports that an operation's time was over: its timeout, or its
// context's deadline. A collective that timed out breaks the communicator on every rank.
type TimeoutError struct {
	Where
	Attendance
}

func (e *TimeoutError) Error() string {
	var b strings.Builder
	by := ""
	if slices.Contains(e.Missing, e.Reporter) { // which another rank has waited for, and told
		by = "another rank "
	}
	fmt.Fprintf(&b, "%v: %stimed out after %v", e.Where, by, e.Elapsed.Round(time.Millisecond))
	e.describe(&b)
	return b.String()
}

// Is makes the error ErrTimeout and context.DeadlineExceeded.
func (e *TimeoutError) Is(target error) bool {
	return target == ErrTimeout || target == context.DeadlineExceeded
}

// Timeout makes the error a net.Error-like timeout.
func (e *TimeoutError) Timeout() bool { return true }

// PeerLostError reports that a rank died or its link broke.
type PeerLostError struct {
	Where
	Peer  int // the lost rank, or -1 if it is not a member of this communicator
	Cause string
	Attendance
}

func (e *PeerLostError) Error() string {
	who := fmt.Sprint("rank ", e.Peer)
	if e.Peer < 0 {
		who = "a rank outside of it"
	}
	return e.said(fmt.Sprintf("%s is lost: %s%s", who, e.Cause, e.after()))
}
func (e *PeerLostError) Is(target error) bool { return target == ErrPeerLost }

// AbortedError reports that a rank called Abort, or gave up in the middle of a
// collective because its context was cancelled. A Recv whose message was withdrawn by its
// sender when it was on its way fails with it too, without consequences for the communicator.
type AbortedError struct {
	Where
	By     int // the rank that aborted
	Reason string
	Err    error // on rank By: the reason as it was given; nil elsewhere
}

func (e *AbortedError) Error() string {
	return e.said(fmt.Sprintf("aborted by rank %d: %s", e.By, e.Reason))
}
func (e *AbortedError) Is(target error) bool { return target == ErrAborted }
func (e *AbortedError) Unwrap() error        { return e.Err }

// PanicError reports that a hook of an operation, or other code of the program that it called, as a context's, has
// panicked or has ended its goroutine with runtime.Goexit. It breaks the communicator: on this rank the *[AbortedError]
// of every other operation has it as Err, and the other ranks' have its text as their Reason.
//
// A panic on the goroutine of a call is passed on to the caller, once the communicator is broken. A panic on a
// goroutine of package comm, where the caller couldn't recover it, is the operation's error. That is so for operations
// that are asynchronous, had to wait for their turn, or are on a stream.
type PanicError struct {
	Where
	Hook  string // the hook's kind and function, as in "pre-hook main.check"; "" if it was no hook
	Value any    // what it has panicked with; nil for runtime.Goexit
	Stack []byte // of its goroutine, as runtime/debug has it
	Err   error  // what the operation had failed with before its completion hook ran; may be nil
}

func (e *PanicError) Error() string {
	return Where{Comm: e.Comm, Reporter: e.Reporter}.said(e.Reason())
}

// Reason is the error's text as the other ranks have it, who know whose it is.
func (e *PanicError) Reason() string {
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

// CanceledError reports that a context had ended before the operation began, or
// before a message, or one-sided operation, was through. The communicator stays usable.
type CanceledError struct {
	Where
	Err error // the context's cause
}

func (e *CanceledError) Error() string {
	return e.said(fmt.Sprintf("its context has ended: %v", e.Err))
}
func (e *CanceledError) Is(target error) bool { return target == ErrCanceled }
func (e *CanceledError) Unwrap() error        { return e.Err }

// UnsupportedError reports what a backend, a device or this machine cannot do.
type UnsupportedError struct {
	Where
	Detail string
}

func (e *UnsupportedError) Error() string        { return e.said(e.Detail) }
func (e *UnsupportedError) Is(target error) bool { return target == ErrUnsupported }

// InternalError reports what should not have happened.
type InternalError struct {
	Where
	Err error
}

func (e *InternalError) Error() string        { return e.said(fmt.Sprintf("internal error: %v", e.Err)) }
func (e *InternalError) Is(target error) bool { return target == ErrInternal }
func (e *InternalError) Unwrap() error        { return e.Err }

// UnsettledError wraps the error of a failed collective whose tensors other ranks of this host may
// still write to, at any time. Those ranks did not confirm in time that they no longer use the
// tensors, since they don't run at all. This rank is one of them if its device has not copied in time
// what there was of a result. Err is the error itself, which errors.As and errors.Is find.
type UnsettledError struct {
	Err   error
	Ranks []int
}

func (e *UnsettledError) Error() string {
	return fmt.Sprintf("%v; ranks that may still write to the operation's tensors: %s", e.Err, Ranks(e.Ranks))
}
func (e *UnsettledError) Unwrap() error { return e.Err }

// FinalizedError reports a call on a communicator after Finalize.
type FinalizedError struct{ Where }

func (e *FinalizedError) Error() string        { return e.Where.String() + ": communicator is finalized" }
func (e *FinalizedError) Is(target error) bool { return target == ErrFinalized }

// Ranks formats a list of ranks, with runs shortened: "0-3, 7".
func Ranks(ranks []int) string { return wire.RankList(ranks) }
