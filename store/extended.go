package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Extended is what newer stores can do beyond Store. The package-level functions
// of the same names take any Store: they use these methods where they are there
// and build on the plain ones where they are not, and are what most callers want.
//
// A method may still answer with an error that wraps errors.ErrUnsupported: a
// TCPStore learns only from its server what that server can do.
type Extended interface {
	Store
	// Append adds value to the end of what is stored under key.
	Append(ctx context.Context, key string, value []byte) error
	// MultiGet waits until all keys exist and returns their values in order.
	MultiGet(ctx context.Context, keys ...string) ([][]byte, error)
	// MultiSet stores values[i] under keys[i].
	MultiSet(ctx context.Context, keys []string, values [][]byte) error
	// QueuePush adds value to the end of the queue key and wakes one waiter.
	QueuePush(ctx context.Context, key string, value []byte) error
	// QueuePop waits until the queue holds something and takes its head.
	QueuePop(ctx context.Context, key string) ([]byte, error)
	// QueueLen returns how many values the queue holds.
	QueueLen(ctx context.Context, key string) (int64, error)
	// ListKeys lists the keys in order, without queues.
	ListKeys(ctx context.Context) ([]string, error)
	// Barrier returns when size callers have called it with the same key.
	// A key serves one barrier.
	Barrier(ctx context.Context, key string, size int) error
}

// unsupported says that a store lacks an operation which can't be built from the
// plain ones.
func unsupported(op string, what any) error {
	return fmt.Errorf("store: %s: %v lacks it: %w", op, what, errors.ErrUnsupported)
}

// Append adds value to the end of what is stored under key. If the store has no such operation,
// it's a loop of CompareSet, which is atomic too, and wakes waits for the key if CompareSet does.
func Append(ctx context.Context, st Store, key string, value []byte) error {
	if x, ok := st.(Extended); ok {
		if err := x.Append(ctx, key, value); !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	var expected []byte
	for {
		// A missing key answers with expected, so the first round must pass none.
		desired := append(append([]byte(nil), expected...), value...)
		got, err := st.CompareSet(ctx, key, expected, desired)
		if err != nil {
			return err
		}
		if string(got) == string(desired) {
			return nil
		}
		if string(got) == string(expected) { // deleted meanwhile
			got = nil
		}
		expected = got
	}
}

// multiGetter is the part of Extended that MultiGet uses.
type multiGetter interface {
	MultiGet(ctx context.Context, keys ...string) ([][]byte, error)
}

// MultiGet waits until all keys exist and returns their values in order. Without
// help from the store it costs a round trip for each key.
func MultiGet(ctx context.Context, st Store, keys ...string) ([][]byte, error) {
	if x, ok := st.(multiGetter); ok {
		if v, err := x.MultiGet(ctx, keys...); !errors.Is(err, errors.ErrUnsupported) {
			return v, err
		}
	}
	if err := st.Wait(ctx, keys...); err != nil {
		return nil, err
	}
	values := make([][]byte, len(keys))
	for i, k := range keys {
		v, err := st.Get(ctx, k)
		if err != nil {
			return nil, err
		}
		values[i] = v
	}
	return values, nil
}

// MultiSet stores values[i] under keys[i]. Without help from the store it costs a
// round trip for each key, and others may see some of the keys before the rest.
func MultiSet(ctx context.Context, st Store, keys []string, values [][]byte) error {
	if err := sameLength(keys, values); err != nil {
		return err
	}
	if x, ok := st.(Extended); ok {
		if err := x.MultiSet(ctx, keys, values); !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	for i, k := range keys {
		if err := st.Set(ctx, k, values[i]); err != nil {
			return err
		}
	}
	return nil
}

func sameLength(keys []string, values [][]byte) error {
	if len(keys) != len(values) {
		return fmt.Errorf("store: multi_set: %d keys but %d values", len(keys), len(values))
	}
	return nil
}

// QueuePush adds value to the end of the queue key. A queue can't be built from
// the plain operations such that a client that knows real queues sees it, so a
// store without queues gives an error that wraps errors.ErrUnsupported.
func QueuePush(ctx context.Context, st Store, key string, value []byte) error {
	if x, ok := st.(Extended); ok {
		return x.QueuePush(ctx, key, value)
	}
	return unsupported("queue_push", fmt.Sprintf("%T", st))
}

// QueuePop waits until the queue holds something and takes its head; see
// QueuePush for stores without queues.
func QueuePop(ctx context.Context, st Store, key string) ([]byte, error) {
	if x, ok := st.(Extended); ok {
		return x.QueuePop(ctx, key)
	}
	return nil, unsupported("queue_pop", fmt.Sprintf("%T", st))
}

// QueueLen returns how many values the queue holds; see QueuePush for stores
// without queues.
func QueueLen(ctx context.Context, st Store, key string) (int64, error) {
	if x, ok := st.(Extended); ok {
		return x.QueueLen(ctx, key)
	}
	return 0, unsupported("queue_len", fmt.Sprintf("%T", st))
}

// ListKeys lists the keys of a store in order. A store that can't list them
// gives an error that wraps errors.ErrUnsupported.
func ListKeys(ctx context.Context, st Store) ([]string, error) {
	if x, ok := st.(Extended); ok {
		return x.ListKeys(ctx)
	}
	return nil, unsupported("list_keys", fmt.Sprintf("%T", st))
}

// Barrier returns when size callers have called it with the same key, which
// serves one barrier. Without help from the store the callers count themselves at
// key + "/num_members" and the last one sets key + "/last_member", for which the
// others wait; PyTorch uses the same keys. All callers of one barrier must reach
// the store in the same way, as clients of one server do.
func Barrier(ctx context.Context, st Store, key string, size int) error {
	if x, ok := st.(Extended); ok {
		if err := x.Barrier(ctx, key, size); !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	begin := time.Now()
	n, err := st.Add(ctx, key+"/num_members", 1)
	if err != nil {
		return err
	}
	done := key + "/last_member"
	if n >= int64(size) {
		return st.Set(ctx, done, []byte("1"))
	}
	err = st.Wait(ctx, done)
	if t, ok := errors.AsType[*TimeoutError](err); ok {
		return &TimeoutError{Op: "barrier", Missing: t.Missing, Keys: 1, Waited: time.Since(begin), Err: t.Err}
	}
	return err
}
