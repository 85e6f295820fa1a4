package comm

import (
	"errors"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm/backend"
)

// joinTimeoutError is the error of New on a rank whose wait for others timed out. It is a *TimeoutError, too, which
// says which ranks came and which didn't; its text is New's.
type joinTimeoutError struct {
	error
	timeout TimeoutError
}

// joinTimeout makes a *joinTimeoutError of an error of New whose wait timed out.
func joinTimeout(name string, err error) error {
	e, ok := errors.AsType[*bootstrap.MissingRanksError](err)
	if !ok {
		return err
	}
	a := backend.Attendance{Elapsed: e.Waited, Missing: e.Missing}
	for r, missing := 0, e.Missing; r < e.Size; r++ { // both in order
		if len(missing) > 0 && missing[0] == r {
			missing = missing[1:]
		} else {
			a.Arrived = append(a.Arrived, r)
		}
	}
	return &joinTimeoutError{err, TimeoutError{Where: Where{Comm: name, Op: "new", Reporter: e.Reporter}, Attendance: a}}
}

func (e *joinTimeoutError) Unwrap() error        { return e.error }
func (e *joinTimeoutError) Is(target error) bool { return target == ErrTimeout }

// At and Attended are for callers that ask any error for its place and for the ranks that came.
func (e *joinTimeoutError) At() backend.Where             { return e.timeout.At() }
func (e *joinTimeoutError) Attended() *backend.Attendance { return e.timeout.Attended() }

// As gives errors.As the *TimeoutError.
func (e *joinTimeoutError) As(target any) bool {
	t, ok := target.(**TimeoutError)
	if ok {
		*t = &e.timeout
	}
	return ok
}
