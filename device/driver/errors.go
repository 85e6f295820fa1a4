package driver

import (
	"fmt"
	"strings"
	"time"
)

// Kind is a kind of error, to be matched with errors.Is.
type Kind string

func (k Kind) Error() string { return string(k) }

// The kinds. The first group are all [ErrInvalidArgument] as well.
const (
	// Null, never allocated, freed already, or not the start of an allocation where it must be.
	ErrInvalidPointer Kind = "invalid pointer"
	ErrOutOfBounds    Kind = "out of bounds"                 // a range that leaves its allocation
	ErrWrongKind      Kind = "wrong kind of memory"          // host memory where device memory is wanted, or the reverse
	ErrWrongDevice    Kind = "wrong device"                  // an index out of range, or things of different devices
	ErrHostAccess     Kind = "device memory is not readable" // the host asked to touch device memory
	ErrInvalidHandle  Kind = "invalid handle"                // a null, destroyed or foreign stream, event or graph
	ErrCapture        Kind = "not permitted with a capture"  // misuse of stream capture

	ErrInvalidArgument Kind = "invalid argument"
	ErrNotFound        Kind = "not found" // a function that a module has not
	ErrOutOfMemory     Kind = "out of memory"
	ErrUnsupported     Kind = "unsupported"
	ErrTimeout         Kind = "timed out"
	ErrCanceled        Kind = "canceled"
	ErrNotReady        Kind = "not ready"    // asked for a result of work that is still under way
	ErrFailed          Kind = "work failed"  // every [*WorkError]
	ErrLoad            Kind = "load failed"  // a driver that could not be loaded
	ErrNoDevice        Kind = "no such type" // a device type that isn't registered
	ErrInternal        Kind = "internal error"
)

// invalid reports whether the kind is one of the first group.
func (k Kind) invalid() bool {
	switch k {
	case ErrInvalidPointer, ErrOutOfBounds, ErrWrongKind, ErrWrongDevice, ErrHostAccess, ErrInvalidHandle, ErrCapture:
		return true
	}
	return false
}

// Error is what a call refuses or fails with.
type Error struct {
	Kind   Kind
	Device string // such as "accinte:1", or the type alone; empty where no device is concerned
	Op     string // the call, such as "copy"; may be empty
	Detail string // what is wrong, with the values
	Err    error  // the cause, if there is one
}

// Errorf returns an *Error. Drivers use it for theirs; a cause is given with %w.
func Errorf(kind Kind, device, op, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	e := &Error{Kind: kind, Device: device, Op: op, Detail: err.Error()}
	if u, ok := err.(interface{ Unwrap() error }); ok {
		e.Err = u.Unwrap()
	}
	return e
}

func (e *Error) Error() string {
	var b strings.Builder
	for _, part := range []string{e.Device, e.Op, string(e.Kind)} {
		if part != "" {
			b.WriteString(part)
			b.WriteString(": ")
		}
	}
	b.WriteString(e.Detail)
	return b.String()
}

// Is matches the error's kind, and ErrInvalidArgument if the kind belongs to it.
func (e *Error) Is(target error) bool {
	return target == e.Kind || target == ErrInvalidArgument && e.Kind.invalid()
}

func (e *Error) Unwrap() error { return e.Err }

// WorkError is the failure of work that was enqueued: of a copy, a kernel, a host function or a replayed graph. Its
// stream carries it until StreamRecover.
type WorkError struct {
	Device string // of the stream on which the work failed
	Stream StreamHandle
	Work   string // such as "copy 4096 bytes device to host", or the name that the caller gave
	At     time.Time
	Err    error
}

func (e *WorkError) Error() string {
	return fmt.Sprintf("%s: stream %#x: %s failed: %v", e.Device, uintptr(e.Stream), e.Work, e.Err)
}

func (e *WorkError) Is(target error) bool { return target == ErrFailed }
func (e *WorkError) Unwrap() error        { return e.Err }
