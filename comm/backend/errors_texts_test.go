package backend

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// Errors that quote others have their beginning once.
func TestBeginsOnce(t *testing.T) {
	at := Where{Comm: "world", Op: "reduce", Seq: 3, Reporter: 1}
	there := Where{Comm: "part", Op: "new", Reporter: 2}
	quoted := (&UnsupportedError{Where: there, Detail: "no such thing"}).Error()
	for _, err := range []error{
		&InvalidArgumentError{Where: at, Detail: quoted}, &UnsupportedError{Where: at, Detail: quoted},
		&PeerLostError{Where: at, Peer: 2, Cause: quoted}, &AbortedError{Where: at, By: 2, Reason: quoted},
		&CanceledError{Where: at, Err: errors.New(quoted)}, &InternalError{Where: at, Err: fmt.Errorf("x: %s", quoted)},
		&PanicError{Where: at, Value: quoted},
	} {
		s := err.Error()
		if strings.Count(s, "chorus:") != 1 || !strings.HasPrefix(s, `chorus: rank 1 of "world"`) ||
			!strings.Contains(s, `rank 2 of "part": new: no such thing`) {
			t.Errorf("%T: %s", err, s)
		}
	}
}

// One name has one meaning in all errors: Reporter is the rank that reports, Peer the lost one, By the one that aborted.
// Rank would be any of them.
func TestNamesOfRanks(t *testing.T) {
	for _, err := range []error{&InvalidArgumentError{}, &MismatchError{}, &TimeoutError{}, &PeerLostError{},
		&AbortedError{}, &PanicError{}, &CanceledError{}, &UnsupportedError{}, &InternalError{}, &FinalizedError{}} {
		kind := reflect.TypeOf(err).Elem()
		has := func(name string) bool { _, ok := kind.FieldByName(name); return ok }
		_, lost := err.(*PeerLostError)
		_, aborted := err.(*AbortedError)
		if has("Rank") || !has("Reporter") || has("Peer") != lost || has("By") != aborted {
			t.Errorf("%v: Rank %t, Reporter %t, Peer %t, By %t", kind, has("Rank"), has("Reporter"), has("Peer"), has("By"))
		}
	}
}
