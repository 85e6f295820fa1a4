package comm

import (
	"errors"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm/backend"
)

// lateError is the error of New on a rank that waited in vain for others. It is a *TimeoutError, too, which says
// who came and who didn't; its words are New's.
type lateError struct {
	error
	timeout TimeoutError
}

// late makes a *lateError of an error of New, if that's what it is.
func late(name string, err error) error {
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
	return &lateError{err, TimeoutError{Where: Where{Comm: name, Op: "new", Rank: e.Rank}, Attendance: a}}
}

func (e *lateError) Unwrap() error        { return e.error }
func (e *lateError) Is(target error) bool { return target == ErrTimeout }

// At and Attended are for those who ask any error for its place and for who was there.
func (e *lateError) At() backend.Where             { return e.timeout.At() }
func (e *lateError) Attended() *backend.Attendance { return e.timeout.Attended() }

// As gives errors.As the *TimeoutError.
func (e *lateError) As(target any) bool {
	t, ok := target.(**TimeoutError)
	if ok {
		*t = &e.timeout
	}
	return ok
}
