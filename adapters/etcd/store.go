package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/chorus-comms/chorus/store"
)

// A Store keeps its keys in etcd. All that have opened the same prefix see the same keys.
type Store struct {
	client    *clientv3.Client
	endpoints string // for errors
	prefix    string // with a slash at the end
	data      string // what all keys of the store begin with in etcd
	opts      Options
	id        string // of this client, among all

	ctx   context.Context // ends when the store is closed, or its keys have expired, with the error of all calls
	end   context.CancelCauseFunc
	lease clientv3.LeaseID
	alive chan struct{} // closed when the lease isn't renewed any more

	mu      sync.Mutex
	idle    []*writer
	writers int
	closed  sync.Once
	pushed  atomic.Uint64 // how many entries of queues this client has made
}

var _ store.Extended = (*Store)(nil)

// Set implements store.Store.
func (s *Store) Set(ctx context.Context, key string, value []byte) error {
	return s.MultiSet(ctx, []string{key}, [][]byte{value})
}

// maxWrites is how many keys one transaction changes; etcd's limit is 128 by default. maxBytes is what their values
// have together, unless there is only one; etcd's limit is 1.5 MiB.
const (
	maxWrites = 100
	maxBytes  = 1 << 20
)

// MultiSet implements store.Extended. A hundred keys, of a mebibyte together, appear at once.
func (s *Store) MultiSet(ctx context.Context, keys []string, values [][]byte) error {
	if len(keys) != len(values) {
		return fmt.Errorf("store: multi_set: %d keys but %d values", len(keys), len(values))
	}
	c, done := s.call(ctx, "set", keys...)
	defer done()
	var writes []clientv3.Op
	size := 0
	flush := func() error {
		if len(writes) == 0 {
			return nil
		}
		_, err := s.commit(c, nil, writes)
		writes, size = nil, 0
		return err
	}
	for i, k := range keys {
		if slices.Contains(keys[i+1:], k) { // the last value counts, and etcd wants a key once
			continue
		}
		if len(writes) == maxWrites || size+len(values[i]) > maxBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		writes = append(writes, s.put(s.valueKey(k), values[i]))
		size += len(values[i])
	}
	return flush()
}

// put is a write below the prefix.
func (s *Store) put(key string, value []byte) clientv3.Op {
	return clientv3.OpPut(key, string(value), clientv3.WithLease(s.lease))
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	c, done := s.call(ctx, "get", key)
	defer done()
	values, err := s.values(c)
	if err != nil {
		return nil, err
	}
	return values[0], nil
}

// MultiGet implements store.Extended.
func (s *Store) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	c, done := s.call(ctx, "multi_get", keys...)
	defer done()
	return s.values(c)
}

// Wait implements store.Store.
func (s *Store) Wait(ctx context.Context, keys ...string) error {
	c, done := s.call(ctx, "wait", keys...)
	defer done()
	return s.wait(c)
}

// Check implements store.Store.
func (s *Store) Check(ctx context.Context, keys ...string) (bool, error) {
	c, done := s.call(ctx, "check", keys...)
	defer done()
	missing, _, err := s.missing(c, keys)
	return err == nil && len(missing) == 0, err
}

// Add implements store.Store.
func (s *Store) Add(ctx context.Context, key string, delta int64) (sum int64, err error) {
	c, done := s.call(ctx, "add", key)
	defer done()
	err = s.modify(c, key, func(v []byte, _ bool) ([]byte, change, error) {
		sum = 0
		if len(v) > 0 {
			if sum, err = strconv.ParseInt(string(v), 10, 64); err != nil {
				return nil, keep, fmt.Errorf("store: add: key %q holds %.40q, which is not a number", key, v)
			}
		}
		sum += delta
		return strconv.AppendInt(nil, sum, 10), replace, nil
	})
	return sum, err
}

// CompareSet implements store.Store.
func (s *Store) CompareSet(ctx context.Context, key string, expected, desired []byte) (result []byte, err error) {
	c, done := s.call(ctx, "compare_set", key)
	defer done()
	err = s.modify(c, key, func(v []byte, exists bool) ([]byte, change, error) {
		switch {
		case !exists && len(expected) == 0, exists && bytes.Equal(v, expected):
			result = desired
			return desired, replace, nil
		case !exists:
			result = expected
		default:
			result = v
		}
		return nil, keep, nil
	})
	return bytes.Clone(result), err
}

// Append implements store.Extended.
func (s *Store) Append(ctx context.Context, key string, value []byte) error {
	c, done := s.call(ctx, "append", key)
	defer done()
	return s.modify(c, key, func(v []byte, _ bool) ([]byte, change, error) {
		return slices.Concat(v, value), replace, nil
	})
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, key string) (existed bool, err error) {
	c, done := s.call(ctx, "delete", key)
	defer done()
	err = s.modify(c, key, func(_ []byte, exists bool) ([]byte, change, error) {
		if existed = exists; !exists {
			return nil, keep, nil
		}
		return nil, remove, nil
	})
	return existed, err
}

// NumKeys implements store.Store. Entries of queues count.
func (s *Store) NumKeys(ctx context.Context) (n int64, err error) {
	c, done := s.call(ctx, "num_keys")
	defer done()
	err = s.try(c, func(ctx context.Context) error {
		r, err := s.client.Get(ctx, s.data, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil {
			n = r.Count
		}
		return err
	})
	return n, err
}

// ListKeys implements store.Extended.
func (s *Store) ListKeys(ctx context.Context) (keys []string, err error) {
	c, done := s.call(ctx, "list_keys")
	defer done()
	err = s.try(c, func(ctx context.Context) error {
		r, err := s.client.Get(ctx, s.data, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		keys = nil
		for _, kv := range r.Kvs {
			if k, isValue := strings.CutSuffix(string(kv.Key[len(s.data):]), "="); isValue {
				keys = append(keys, unescape.Replace(k))
			}
		}
		return nil
	})
	slices.Sort(keys)
	return keys, err
}

// Barrier implements store.Extended by leaving it to the function of the same name.
func (s *Store) Barrier(context.Context, string, int) error {
	return fmt.Errorf("store: barrier: an etcd store lacks it: %w", errors.ErrUnsupported)
}

// valueKey is where etcd has the value of a key; what begins with it is an entry of the key's queue.
func (s *Store) valueKey(key string) string { return s.data + escape.Replace(key) + "=" }

var (
	escape   = strings.NewReplacer("%", "%25", "=", "%3D")
	unescape = strings.NewReplacer("%25", "%", "%3D", "=")
)
