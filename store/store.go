package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// DefaultTimeout bounds every call whose context has no deadline of its own.
const DefaultTimeout = 300 * time.Second

// A Store is a small map of byte strings that all ranks of a job can reach.
//
// Every call ends: at the deadline of its context, or, where the context has
// none, after the store's timeout (DefaultTimeout unless an option says
// otherwise). A call that ends that way returns a *TimeoutError that names the
// keys that were missing; a cancelled context gives an error that wraps
// context.Cause.
//
// All methods may be called from any number of goroutines, and a caller that
// waits does not hold up the others. Values passed in are not retained after
// the call returns; values returned belong to the caller. When a method that
// changes the store returns nil, the change is visible to every other client.
type Store interface {
	// Set stores value under key, replacing what was there.
	Set(ctx context.Context, key string, value []byte) error
	// Get waits until key exists and returns its value.
	Get(ctx context.Context, key string) ([]byte, error)
	// Add adds delta to the decimal number stored under key, where a missing
	// key counts as 0, and returns the sum. The number is kept as ASCII text,
	// so that Get sees "42"; it wraps around like any int64.
	Add(ctx context.Context, key string, delta int64) (int64, error)
	// Wait returns when all keys exist.
	Wait(ctx context.Context, keys ...string) error
	// Check reports whether all keys exist now.
	Check(ctx context.Context, keys ...string) (bool, error)
	// CompareSet stores desired if the value under key equals expected, or if
	// key is missing and expected is empty. It returns the value that stands
	// under key afterwards, except that for a missing key and a non-empty
	// expected it returns expected and stores nothing (as PyTorch does). Waits for the key are
	// woken, but not by PyTorch's servers without libuv.
	CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error)
	// Delete removes key and reports whether it was there. A FileStore always
	// reports true.
	Delete(ctx context.Context, key string) (bool, error)
	// NumKeys counts all keys of the store, bookkeeping keys included; through
	// a prefix it still counts the whole store.
	NumKeys(ctx context.Context) (int64, error)
	// Close releases what the store holds. Calls that wait return ErrClosed.
	// Closing twice is allowed.
	Close() error
}

// ErrClosed is returned by calls on a store that was closed.
var ErrClosed = errors.New("store: closed")

// A TimeoutError says that a call reached its deadline.
// errors.Is(err, context.DeadlineExceeded) holds for it.
type TimeoutError struct {
	Op      string        // the operation, such as "get"
	Missing []string      // the keys that did not exist at the deadline
	Keys    int           // how many keys the call waited for
	Waited  time.Duration // how long it waited
	Err     error         // what stood in the way, if it was not a missing key
}

func (e *TimeoutError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "store: %s timed out after %v", e.Op, e.Waited.Round(time.Millisecond))
	if len(e.Missing) > 0 {
		const shown = 8
		fmt.Fprintf(&b, ": %d of %d keys missing: ", len(e.Missing), e.Keys)
		for i, k := range e.Missing {
			if i == shown {
				fmt.Fprintf(&b, " and %d more", len(e.Missing)-shown)
				break
			}
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%q", k)
		}
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

// Unwrap makes the error match context.DeadlineExceeded as well as its cause.
func (e *TimeoutError) Unwrap() []error {
	if e.Err == nil {
		return []error{context.DeadlineExceeded}
	}
	return []error{context.DeadlineExceeded, e.Err}
}

// Timeout reports true, as net.Error has it.
func (e *TimeoutError) Timeout() bool { return true }

// deadline gives ctx the store's timeout unless it has a deadline of its own.
func deadline(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	return context.WithTimeout(ctx, timeout)
}

// ended turns the end of ctx into the error that the caller sees.
func ended(ctx context.Context, op string, begin time.Time, keys int, missing []string, cause error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("store: %s: %w", op, context.Cause(ctx))
	}
	return &TimeoutError{Op: op, Missing: missing, Keys: keys, Waited: time.Since(begin), Err: cause}
}
