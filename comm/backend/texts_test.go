package backend

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Errors that quote others have their beginning once.
func TestBeginsOnce(t *testing.T) {
	at := Where{Comm: "world", Op: "reduce", Seq: 3, Rank: 1}
	there := Where{Comm: "part", Op: "new", Rank: 2}
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
