package store

import (
	"context"
	"errors"
	"strings"
)

// PrefixStore is a view of another store in which every key k stands for
// prefix + "/" + k, exactly as in PyTorch, so that both find the same keys.
// Nested views put the outermost prefix last: the view "b" of the view "a"
// turns k into a/b/k.
type PrefixStore struct {
	base   Store
	prefix string
}

var _ Extended = (*PrefixStore)(nil)

// NewPrefix makes a view of base. Closing a view does nothing: base belongs to the caller, and may
// have other views.
func NewPrefix(prefix string, base Store) *PrefixStore {
	return &PrefixStore{base: base, prefix: prefix + "/"}
}

func (s *PrefixStore) key(k string) string { return s.prefix + k }

func (s *PrefixStore) keys(keys []string) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = s.prefix + k
	}
	return out
}

// stripPrefix keeps the keys that begin with prefix, without it.
func stripPrefix(keys []string, prefix string) []string {
	out := keys[:0]
	for _, k := range keys {
		if rest, ok := strings.CutPrefix(k, prefix); ok {
			out = append(out, rest)
		}
	}
	return out
}

// named makes the keys of a timeout those that the caller passed.
func (s *PrefixStore) named(err error) error {
	t, ok := errors.AsType[*TimeoutError](err)
	if !ok {
		return err
	}
	own := *t
	own.Missing = stripPrefix(append([]string(nil), t.Missing...), s.prefix)
	return &own
}

// Set implements Store.
func (s *PrefixStore) Set(ctx context.Context, key string, value []byte) error {
	return s.named(s.base.Set(ctx, s.key(key), value))
}

// Get implements Store.
func (s *PrefixStore) Get(ctx context.Context, key string) ([]byte, error) {
	v, err := s.base.Get(ctx, s.key(key))
	return v, s.named(err)
}

// Add implements Store.
func (s *PrefixStore) Add(ctx context.Context, key string, delta int64) (int64, error) {
	n, err := s.base.Add(ctx, s.key(key), delta)
	return n, s.named(err)
}

// Wait implements Store.
func (s *PrefixStore) Wait(ctx context.Context, keys ...string) error {
	return s.named(s.base.Wait(ctx, s.keys(keys)...))
}

// Check implements Store.
func (s *PrefixStore) Check(ctx context.Context, keys ...string) (bool, error) {
	ok, err := s.base.Check(ctx, s.keys(keys)...)
	return ok, s.named(err)
}

// CompareSet implements Store.
func (s *PrefixStore) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	v, err := s.base.CompareSet(ctx, s.key(key), expected, desired)
	return v, s.named(err)
}

// Delete implements Store.
func (s *PrefixStore) Delete(ctx context.Context, key string) (bool, error) {
	ok, err := s.base.Delete(ctx, s.key(key))
	return ok, s.named(err)
}

// NumKeys implements Store: it counts the whole store, as PyTorch does.
func (s *PrefixStore) NumKeys(ctx context.Context) (int64, error) {
	n, err := s.base.NumKeys(ctx)
	return n, s.named(err)
}

// Append implements Extended.
func (s *PrefixStore) Append(ctx context.Context, key string, value []byte) error {
	return s.named(Append(ctx, s.base, s.key(key), value))
}

// MultiGet implements Extended.
func (s *PrefixStore) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	v, err := MultiGet(ctx, s.base, s.keys(keys)...)
	return v, s.named(err)
}

// MultiSet implements Extended.
func (s *PrefixStore) MultiSet(ctx context.Context, keys []string, values [][]byte) error {
	return s.named(MultiSet(ctx, s.base, s.keys(keys), values))
}

// QueuePush implements Extended.
func (s *PrefixStore) QueuePush(ctx context.Context, key string, value []byte) error {
	return s.named(QueuePush(ctx, s.base, s.key(key), value))
}

// QueuePop implements Extended.
func (s *PrefixStore) QueuePop(ctx context.Context, key string) ([]byte, error) {
	v, err := QueuePop(ctx, s.base, s.key(key))
	return v, s.named(err)
}

// QueueLen implements Extended.
func (s *PrefixStore) QueueLen(ctx context.Context, key string) (int64, error) {
	n, err := QueueLen(ctx, s.base, s.key(key))
	return n, s.named(err)
}

// ListKeys implements Extended: only the keys of this view, without the prefix.
func (s *PrefixStore) ListKeys(ctx context.Context) ([]string, error) {
	keys, err := ListKeys(ctx, s.base)
	if err != nil {
		return nil, s.named(err)
	}
	return stripPrefix(keys, s.prefix), nil
}

// Barrier implements Extended.
func (s *PrefixStore) Barrier(ctx context.Context, key string, size int) error {
	return s.named(Barrier(ctx, s.base, s.key(key), size))
}

// Close does nothing; see NewPrefix.
func (s *PrefixStore) Close() error { return nil }
