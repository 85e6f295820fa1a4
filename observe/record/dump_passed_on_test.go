package record

import (
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
)

// TestFailurePassedOn has a rank abort a communicator because of a failure of another one. Its dump names the rank that
// aborted: those of the failure have other numbers there.
func TestFailurePassedOn(t *testing.T) {
	lost := &backend.PeerLostError{Where: backend.Where{Comm: "part"}, Peer: 0, Cause: "it died"}
	late := &backend.TimeoutError{Where: backend.Where{Comm: "part"}, Attendance: backend.Attendance{Missing: []int{0}}}
	for _, x := range []struct {
		cause error
		kind  Status
	}{{lost, PeerLost}, {late, TimedOut}} {
		aborted := &backend.AbortedError{Where: backend.Where{Comm: "world"}, By: 3, Err: x.cause}
		f := failure(aborted, time.Now())
		if f.Kind != x.kind.String() || f.Peer == nil || *f.Peer != 3 || f.Missing != nil {
			t.Errorf("%v: %+v", aborted, f)
		}
	}
}
