package comm

import "github.com/chorus-comms/chorus/comm/backend"

// The vocabulary that programs and backends share is declared in package
// backend; these are its names here.
type (
	Kind         = backend.Kind
	Reduction    = backend.Reduction
	Capabilities = backend.Capabilities
	Traffic      = backend.Traffic
)

// The kinds of error, for errors.Is.
var (
	ErrInvalidArgument = backend.ErrInvalidArgument
	ErrMismatch        = backend.ErrMismatch
	ErrTimeout         = backend.ErrTimeout
	ErrPeerLost        = backend.ErrPeerLost
	ErrAborted         = backend.ErrAborted
	ErrUnsupported     = backend.ErrUnsupported
	ErrInternal        = backend.ErrInternal
	ErrFinalized       = backend.ErrFinalized
	ErrCanceled        = backend.ErrCanceled
)

// AnySource, as the source of Recv, accepts a message from every rank.
const AnySource = backend.AnySource
