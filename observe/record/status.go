package record

import (
	"errors"

	"github.com/chorus-comms/chorus/comm/backend"
)

// Status is how an operation ended.
type Status uint8

// How operations end. The names stand in dumps.
const (
	Pending Status = iota // it hasn't
	Done
	Refused // before anything moved; the communicator stays usable
	TimedOut
	Mismatch
	PeerLost
	Aborted
	Failed
)

var statusNames = [...]string{"pending", "ok", "refused", "timeout", "mismatch", "peer_lost", "aborted", "failed"}

func (s Status) String() string { return statusNames[min(int(s), len(statusNames)-1)] }

func statusOf(err error) Status {
	switch {
	case err == nil:
		return Done
	case errors.Is(err, backend.ErrInvalidArgument), errors.Is(err, backend.ErrCanceled), errors.Is(err,
		backend.ErrUnsupported), errors.Is(err, backend.ErrFinalized):
		return Refused
	case errors.Is(err, backend.ErrTimeout):
		return TimedOut
	case errors.Is(err, backend.ErrMismatch):
		return Mismatch
	case errors.Is(err, backend.ErrPeerLost):
		return PeerLost
	case errors.Is(err, backend.ErrAborted):
		return Aborted
	default:
		return Failed
	}
}
