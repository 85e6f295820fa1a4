package store

import (
	"bytes"
	"context"
	"sync"
	"time"
)

// HashStore is a store within one process: for ranks that are goroutines, for
// tests, and, through TCPServer.Local, for the process that serves the others.
type HashStore struct {
	table   *table
	prefix  string // what every key gets in the table
	timeout time.Duration

	once   sync.Once
	closed chan struct{}
}

var _ Extended = (*HashStore)(nil)

// NewHash makes an empty store. A timeout of 0 means DefaultTimeout.
func NewHash(timeout time.Duration) *HashStore { return newHash(newTable(), "", timeout) }

func newHash(t *table, prefix string, timeout time.Duration) *HashStore {
	return &HashStore{table: t, prefix: prefix, timeout: timeout, closed: make(chan struct{})}
}

func (s *HashStore) key(k string) string { return s.prefix + k }

func (s *HashStore) keys(keys []string) []string {
	if s.prefix == "" {
		return keys
	}
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = s.prefix + k
	}
	return out
}

// begin reports why a call can't start.
func (s *HashStore) begin(ctx context.Context, op string) error {
	select {
	case <-s.closed:
		return ErrClosed
	default:
	}
	if ctx.Err() != nil {
		return ended(ctx, op, time.Now(), 0, nil, nil)
	}
	return nil
}

// wait blocks until register returns no waiter or its callback ran.
func (s *HashStore) wait(ctx context.Context, op string, keys []string, register func(wake func()) (*waiter,
	error)) error {
	if err := s.begin(ctx, op); err != nil {
		return err
	}
	ctx, cancel := deadline(ctx, s.timeout)
	defer cancel()
	start := time.Now()
	done := make(chan struct{})
	w, err := register(func() { close(done) })
	if err != nil || w == nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-s.closed:
		s.table.cancel(w)
		return ErrClosed
	case <-ctx.Done():
		s.table.cancel(w)
		select {
		case <-done: // it came at the last moment
			return nil
		default:
		}
		missing := s.table.missing(s.keys(keys), -1)
		for i, k := range missing {
			missing[i] = k[len(s.prefix):]
		}
		return ended(ctx, op, start, len(keys), missing, nil)
	}
}

func (s *HashStore) waitKeys(ctx context.Context, op string, keys ...string) error {
	return s.wait(ctx, op, keys, func(wake func()) (*waiter, error) {
		return s.table.wait(s.keys(keys), wake), nil
	})
}

// Set implements Store.
func (s *HashStore) Set(ctx context.Context, key string, value []byte) error {
	if err := s.begin(ctx, "set"); err != nil {
		return err
	}
	s.table.set(s.key(key), bytes.Clone(value))
	return nil
}

// Get implements Store.
func (s *HashStore) Get(ctx context.Context, key string) ([]byte, error) {
	ctx, cancel := deadline(ctx, s.timeout)
	defer cancel()
	for {
		if err := s.waitKeys(ctx, "get", key); err != nil {
			return nil, err
		}
		if v, ok := s.table.get(s.key(key)); ok { // else deleted between the two, or a queue
			return bytes.Clone(v), nil
		}
		if s.table.queueLen(s.key(key)) > 0 {
			return nil, unsupported("get", "a queue, such as "+key+",")
		}
	}
}

// Add implements Store.
func (s *HashStore) Add(ctx context.Context, key string, delta int64) (int64, error) {
	if err := s.begin(ctx, "add"); err != nil {
		return 0, err
	}
	return s.table.add(s.key(key), delta)
}

// Wait implements Store.
func (s *HashStore) Wait(ctx context.Context, keys ...string) error {
	return s.waitKeys(ctx, "wait", keys...)
}

// Check implements Store.
func (s *HashStore) Check(ctx context.Context, keys ...string) (bool, error) {
	if err := s.begin(ctx, "check"); err != nil {
		return false, err
	}
	return s.table.check(s.keys(keys)), nil
}

// CompareSet implements Store.
func (s *HashStore) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	if err := s.begin(ctx, "compare_set"); err != nil {
		return nil, err
	}
	return bytes.Clone(s.table.compareSet(s.key(key), expected, bytes.Clone(desired))), nil
}

// Delete implements Store.
func (s *HashStore) Delete(ctx context.Context, key string) (bool, error) {
	if err := s.begin(ctx, "delete"); err != nil {
		return false, err
	}
	return s.table.remove(s.key(key)), nil
}

// NumKeys implements Store.
func (s *HashStore) NumKeys(ctx context.Context) (int64, error) {
	if err := s.begin(ctx, "num_keys"); err != nil {
		return 0, err
	}
	return s.table.numKeys(), nil
}

// Append implements Extended.
func (s *HashStore) Append(ctx context.Context, key string, value []byte) error {
	if err := s.begin(ctx, "append"); err != nil {
		return err
	}
	s.table.append(s.key(key), value)
	return nil
}

// MultiGet implements Extended.
func (s *HashStore) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	ctx, cancel := deadline(ctx, s.timeout)
	defer cancel()
	for {
		if err := s.waitKeys(ctx, "multi_get", keys...); err != nil {
			return nil, err
		}
		if values, ok := s.table.multiGet(s.keys(keys)); ok {
			for i, v := range values {
				values[i] = bytes.Clone(v)
			}
			return values, nil
		}
	}
}

// MultiSet implements Extended.
func (s *HashStore) MultiSet(ctx context.Context, keys []string, values [][]byte) error {
	if err := s.begin(ctx, "multi_set"); err != nil {
		return err
	}
	if err := sameLength(keys, values); err != nil {
		return err
	}
	own := make([][]byte, len(values))
	for i, v := range values {
		own[i] = bytes.Clone(v)
	}
	s.table.multiSet(s.keys(keys), own)
	return nil
}

// QueuePush implements Extended.
func (s *HashStore) QueuePush(ctx context.Context, key string, value []byte) error {
	if err := s.begin(ctx, "queue_push"); err != nil {
		return err
	}
	s.table.push(s.key(key), bytes.Clone(value))
	return nil
}

// QueuePop implements Extended.
func (s *HashStore) QueuePop(ctx context.Context, key string) ([]byte, error) {
	ctx, cancel := deadline(ctx, s.timeout)
	defer cancel()
	for {
		if v, n := s.table.pop(s.key(key)); n > 0 {
			return v, nil
		}
		if err := s.waitKeys(ctx, "queue_pop", key); err != nil {
			return nil, err
		}
	}
}

// QueueLen implements Extended.
func (s *HashStore) QueueLen(ctx context.Context, key string) (int64, error) {
	if err := s.begin(ctx, "queue_len"); err != nil {
		return 0, err
	}
	return s.table.queueLen(s.key(key)), nil
}

// ListKeys implements Extended. A store shared with TCP clients may hold keys
// that have no counterpart here, such as "init/"; they are left out.
func (s *HashStore) ListKeys(ctx context.Context) ([]string, error) {
	if err := s.begin(ctx, "list_keys"); err != nil {
		return nil, err
	}
	return stripPrefix(s.table.listKeys(), s.prefix), nil
}

// Barrier implements Extended.
func (s *HashStore) Barrier(ctx context.Context, key string, size int) error {
	return s.wait(ctx, "barrier", nil, func(wake func()) (*waiter, error) {
		return s.table.barrier(s.key(key), int64(size), wake)
	})
}

// Close implements Store. It wakes the waits on this HashStore.
func (s *HashStore) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}
