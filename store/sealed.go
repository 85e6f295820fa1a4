package store

import (
	"context"
	"fmt"

	"github.com/chorus-comms/chorus/secure"
)

// A SealedStore is a view of a store that others can write, such as PyTorch's, in which no value is believed that
// wasn't written with the secret, under this very key. It protects what is stored from being forged, not from being
// read or deleted. Counters are the server's to add up and can't be sealed: Add is the base's, and Get of what Add
// has made is an error.
type SealedStore struct {
	base   Store
	secret secure.Secret
}

var _ Store = (*SealedStore)(nil)

// NewSealed makes a view of base. Closing it closes nothing. Without a secret the view takes values as they are, but a
// sealed one is an error that says what is missing.
func NewSealed(secret secure.Secret, base Store) *SealedStore {
	return &SealedStore{base: base, secret: secret}
}

func (s *SealedStore) seal(key string, value []byte) []byte {
	if s.secret.IsZero() {
		return value
	}
	return s.secret.Seal(key, value)
}

func (s *SealedStore) open(key string, value []byte) ([]byte, error) {
	v, err := s.secret.Open(key, value)
	if err != nil {
		return nil, fmt.Errorf("store: key %q: %w; every rank needs the same one (CHORUS_SECRET_FILE)", key, err)
	}
	return v, nil
}

// Set implements Store.
func (s *SealedStore) Set(ctx context.Context, key string, value []byte) error {
	return s.base.Set(ctx, key, s.seal(key, value))
}

// Get implements Store.
func (s *SealedStore) Get(ctx context.Context, key string) ([]byte, error) {
	v, err := s.base.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	return s.open(key, v)
}

// MultiGet waits until all keys exist and returns their values in order.
func (s *SealedStore) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	values, err := MultiGet(ctx, s.base, keys...)
	for i := 0; err == nil && i < len(values); i++ {
		values[i], err = s.open(keys[i], values[i])
	}
	if err != nil {
		return nil, err
	}
	return values, nil
}

// CompareSet implements Store.
func (s *SealedStore) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	var sealed []byte
	if len(expected) > 0 {
		sealed = s.seal(key, expected)
	}
	v, err := s.base.CompareSet(ctx, key, sealed, s.seal(key, desired))
	if err != nil || len(v) == 0 {
		return v, err
	}
	return s.open(key, v)
}

// Add implements Store.
func (s *SealedStore) Add(ctx context.Context, key string, delta int64) (int64, error) {
	return s.base.Add(ctx, key, delta)
}

// Wait implements Store.
func (s *SealedStore) Wait(ctx context.Context, keys ...string) error {
	return s.base.Wait(ctx, keys...)
}

// Check implements Store.
func (s *SealedStore) Check(ctx context.Context, keys ...string) (bool, error) {
	return s.base.Check(ctx, keys...)
}

// Delete implements Store.
func (s *SealedStore) Delete(ctx context.Context, key string) (bool, error) {
	return s.base.Delete(ctx, key)
}

// NumKeys implements Store.
func (s *SealedStore) NumKeys(ctx context.Context) (int64, error) { return s.base.NumKeys(ctx) }

// Close does nothing; see NewSealed.
func (s *SealedStore) Close() error { return nil }
