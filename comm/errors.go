package comm

import "github.com/chorus-comms/chorus/comm/backend"

// Package backend declares the errors, as backends make them, too. These are their names for programs. Each repeats its
// fields, which go doc doesn't show of an alias.

// InvalidArgumentError reports arguments that were refused before any byte moved.
// The communicator stays usable.
//
//	type InvalidArgumentError struct {
//		Where // Comm, Op, Seq, Reporter
//		Detail string
//		Err    error // the cause, if it has one of its own, such as a device's; else nil
//	}
type InvalidArgumentError = backend.InvalidArgumentError

// MismatchError reports that two ranks take part in different operations under
// the same sequence number. It breaks the communicator on every rank, unless it's
// a message that does not fit its Recv.
//
//	type MismatchError struct {
//		Where // Comm, Op, Seq, Reporter
//		RankA, RankB int
//		OpA, OpB     string // each side's operation in full: kind, dtype, count, root, reduction
//		Attendance // Elapsed, Arrived, Missing, Unknown, Refused, Doing
//	}
type MismatchError = backend.MismatchError

// TimeoutError reports that an operation's time was over: its timeout, or its
// context's deadline. A collective that timed out breaks the communicator on every rank.
//
//	type TimeoutError struct {
//		Where // Comm, Op, Seq, Reporter
//		Attendance // Elapsed, Arrived, Missing, Unknown, Refused, Doing
//	}
type TimeoutError = backend.TimeoutError

// PeerLostError reports that a rank died or its link broke.
//
//	type PeerLostError struct {
//		Where // Comm, Op, Seq, Reporter
//		Peer  int // the lost rank, or -1 if it is not a member of this communicator
//		Cause string
//		Attendance // Elapsed, Arrived, Missing, Unknown, Refused, Doing
//	}
type PeerLostError = backend.PeerLostError

// AbortedError reports that a rank called Abort, or gave up in the middle of a
// collective because its context was cancelled. A Recv whose message was withdrawn by its
// sender when it was on its way fails with it too, without consequences for the communicator.
//
//	type AbortedError struct {
//		Where // Comm, Op, Seq, Reporter
//		By     int // the rank that aborted
//		Reason string
//		Err    error // on rank By: the reason as it was given; nil elsewhere
//	}
type AbortedError = backend.AbortedError

// PanicError reports that a hook of an operation, or other code of the program that it called, as a context's, has
// panicked or has ended its goroutine with runtime.Goexit. It breaks the communicator: on this rank the *[AbortedError]
// of every other operation has it as Err, and the other ranks' have its text as their Reason.
//
// A panic on the goroutine of a call is passed on to the caller, once the communicator is broken. A panic on a
// goroutine of package comm, where the caller couldn't recover it, is the operation's error. That is so for operations
// that are asynchronous, had to wait for their turn, or are on a stream.
//
//	type PanicError struct {
//		Where // Comm, Op, Seq, Reporter
//		Hook  string // the hook's kind and function, as in "pre-hook main.check"; "" if it was no hook
//		Value any    // what it has panicked with; nil for runtime.Goexit
//		Stack []byte // of its goroutine, as runtime/debug has it
//		Err   error  // what the operation had failed with before its completion hook ran; may be nil
//	}
type PanicError = backend.PanicError

// UnsupportedError reports what a backend, a device or this machine cannot do.
//
//	type UnsupportedError struct {
//		Where // Comm, Op, Seq, Reporter
//		Detail string
//	}
type UnsupportedError = backend.UnsupportedError

// InternalError reports what should not have happened.
//
//	type InternalError struct {
//		Where // Comm, Op, Seq, Reporter
//		Err error
//	}
type InternalError = backend.InternalError

// FinalizedError reports a call on a communicator after Finalize.
//
//	type FinalizedError struct {
//		Where // Comm, Op, Seq, Reporter
//	}
type FinalizedError = backend.FinalizedError

// CanceledError reports that a context had ended before the operation began, or
// before a message, or one-sided operation, was through. The communicator stays usable.
//
//	type CanceledError struct {
//		Where // Comm, Op, Seq, Reporter
//		Err error // the context's cause
//	}
type CanceledError = backend.CanceledError

// UnsettledError wraps the error of a failed collective whose tensors other ranks of this host may
// still write to, at any time. Those ranks did not confirm in time that they no longer use the
// tensors, since they don't run at all. This rank is one of them if its device has not copied in time
// what there was of a result. Err is the error itself, which errors.As and errors.Is find.
//
//	type UnsettledError struct {
//		Err   error
//		Ranks []int
//	}
type UnsettledError = backend.UnsettledError

// Attendance says who took part in an operation of all ranks that failed, as far as the rank that reports could learn.
// It's empty for what concerns no such operation.
//
//	type Attendance struct {
//		Elapsed time.Duration // how long the operation, and so each rank that is missing, was waited for
//		Arrived []int         // ranks known to have entered the operation
//		Missing []int         // ranks known not to have entered it
//		Unknown []int         // ranks of which this rank could not learn
//		// Refused says of missing ranks why the call that they made was refused there, before
//		// anything moved, if that's why they are missing: "all_reduce: output is nil".
//		Refused map[int]string
//		// Doing says of missing ranks what they do instead, if they could say so: `in barrier #1 of "part", at train.go:79
//		// (main.step), for 502ms`.
//		Doing map[int]string
//	}
type Attendance = backend.Attendance

// Where says which operation of which communicator an error belongs to.
//
//	type Where struct {
//		Comm     string // communicator name
//		Op       string // operation, such as "all_reduce"; empty outside of one
//		Seq      uint64 // sequence number of the operation on its communicator; 0 outside of one
//		Reporter int    // the rank that reports
//	}
type Where = backend.Where
