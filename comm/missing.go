package comm

import (
	"errors"
	"slices"

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
	for r := range e.Size {
		if !slices.Contains(e.Missing, r) {
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
