package backend

import (
	"context"
	"time"

	"github.com/chorus-comms/chorus/tensor"
)

// Access tells how a peer's window can be reached.
type Access uint8

// The kinds of access.
const (
	Separate Access = iota // only by the window's operations
	Unified                // also by loads and stores: Map works
)

func (a Access) String() string {
	if a == Unified {
		return "unified"
	}
	return "separate"
}

// Target names a place in a rank's window: an offset in elements.
type Target struct {
	Rank   int
	Offset int
}

// Window is memory of every rank that the others reach without its taking part. Of a backend that's an Enqueuer, what
// moves data and signals puts that on the stream of the context (device.WithStream), and returns when it's there;
// tensors are the device's. Offsets count elements of the window's dtype. All methods may be called from any goroutine;
// bounds and dtypes are checked before anything moves.
type Window interface {
	// Put writes src into the target. When it returns src may be reused; the data is visible to
	// the target after Fence, or after a Signal that follows the Put.
	Put(ctx context.Context, src *tensor.Tensor, to Target, timeout time.Duration) error
	// Get reads the target into dst.
	Get(ctx context.Context, dst *tensor.Tensor, from Target, timeout time.Duration) error
	// Accumulate combines src into the target, each element atomically.
	Accumulate(ctx context.Context, src *tensor.Tensor, r ReduceKind, to Target, timeout time.Duration) error
	// FetchOp combines the one-element src into the target atomically and puts the old value into old.
	FetchOp(ctx context.Context, old, src *tensor.Tensor, r ReduceKind, to Target, timeout time.Duration) error
	// CompareAndSwap stores desired into the target if it equals expected (bit by bit), atomically, and puts the old
	// value into old. All are one element of an integer, boolean or floating dtype.
	CompareAndSwap(ctx context.Context, old, expected, desired *tensor.Tensor, to Target, timeout time.Duration) error
	// Signal adds one to the target's counter for this rank, after this rank's earlier Puts there.
	Signal(ctx context.Context, peer, slot int, timeout time.Duration) error
	// WaitSignal waits for one signal from the peer and consumes it.
	WaitSignal(ctx context.Context, peer, slot int, timeout time.Duration) error
	// Fence completes all of this rank's earlier operations at their targets, of one peer, or of all with peer -1.
	Fence(ctx context.Context, peer int, timeout time.Duration) error
	// Map returns the peer's memory as a tensor, if Access is Unified. It is valid until Close.
	Map(peer int) (*tensor.Tensor, error)
	// Access tells how the peer's memory can be reached.
	Access(peer int) Access
	// Size returns the number of elements in the peer's window.
	Size(peer int) int
	// Close is collective: it ends the window after all operations on it.
	Close(ctx context.Context, timeout time.Duration) error
}

// SignalSlots is how many independent signal counters there are between each two ranks of a window.
const SignalSlots = 64
