package etcd

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// values waits until the keys of a call exist, and returns their values in order.
func (s *Store) values(c *call) ([][]byte, error) {
	for {
		if err := s.wait(c); err != nil {
			return nil, err
		}
		values, complete, err := s.read(c)
		if err != nil || complete {
			return values, err
		}
		// A key was deleted between the two, or it's a queue.
		for _, k := range c.keys {
			if head, _, err := s.head(c, k); err != nil {
				return nil, err
			} else if head != nil {
				return nil, fmt.Errorf("store: %s: %q is a queue, which has no value: %w", c.op, k, errors.ErrUnsupported)
			}
		}
	}
}

// maxReads is how many keys one transaction reads.
const maxReads = 100

// read returns the values of the keys of a call as they are now, in order, and whether all of them exist.
func (s *Store) read(c *call) (values [][]byte, complete bool, err error) {
	complete = true
	for rest := c.keys; len(rest) > 0 && complete; {
		n := min(len(rest), maxReads)
		var ops []clientv3.Op
		for _, k := range rest[:n] {
			ops = append(ops, clientv3.OpGet(s.valueKey(k)))
		}
		rest = rest[n:]
		err := s.try(c, func(ctx context.Context) error {
			r, err := s.client.Txn(ctx).Then(ops...).Commit()
			if err != nil {
				return err
			}
			for _, one := range r.Responses {
				kvs := one.GetResponseRange().Kvs
				if len(kvs) == 0 {
					complete = false
					return nil
				}
				values = append(values, append([]byte{}, kvs[0].Value...))
			}
			return nil
		})
		if err != nil {
			return nil, false, err
		}
	}
	return values, complete, nil
}

// missing returns those of keys that don't exist, and a revision at which they didn't. A queue exists while it holds
// something.
func (s *Store) missing(c *call, keys []string) (missing []string, revision int64, err error) {
	for len(keys) > 0 {
		n := min(len(keys), maxReads)
		var ops []clientv3.Op
		for _, k := range keys[:n] {
			ops = append(ops, clientv3.OpGet(s.valueKey(k), clientv3.WithPrefix(), clientv3.WithCountOnly()))
		}
		err := s.try(c, func(ctx context.Context) error {
			r, err := s.client.Txn(ctx).Then(ops...).Commit()
			if err != nil {
				return err
			}
			if revision == 0 {
				revision = r.Header.Revision
			}
			for i, one := range r.Responses {
				if one.GetResponseRange().Count == 0 {
					missing = append(missing, keys[i])
				}
			}
			return nil
		})
		if err != nil {
			return nil, 0, err
		}
		keys = keys[n:]
	}
	return missing, revision, nil
}

// wait returns when all keys of a call exist.
func (s *Store) wait(c *call) error {
	rest := c.keys
	for {
		missing, revision, err := s.missing(c, rest)
		if err != nil {
			return err
		}
		c.missing = missing
		if len(missing) == 0 {
			return nil
		}
		rest = missing
		if err := s.appears(c, missing[0], revision+1); err != nil {
			return err
		}
	}
}

var errWatchEnded = status.Error(codes.Unavailable, "the watch has ended")

// appears returns when a key, or an entry of its queue, has been written at a revision or later. It may return before,
// after an interruption.
func (s *Store) appears(c *call, key string, from int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(c.ctx))
	defer cancel()
	changes := s.client.Watch(ctx, s.valueKey(key), clientv3.WithPrefix(), clientv3.WithRev(from),
		clientv3.WithFilterDelete())
	for r := range changes {
		if err := r.Err(); err != nil {
			return c.failed(err, 0)
		}
		if len(r.Events) > 0 {
			return nil
		}
	}
	return c.failed(errWatchEnded, 0)
}
