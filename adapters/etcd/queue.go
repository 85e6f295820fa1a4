package etcd

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// entries is the range of the entries of a key's queue, which begins behind the value.
func (s *Store) entries(key string) (from string, to clientv3.OpOption) {
	at := s.valueKey(key)
	return at + "\x00", clientv3.WithRange(clientv3.GetPrefixRangeEnd(at))
}

// head returns the oldest entry of a queue, nil if there is none, and the revision at which that holds.
func (s *Store) head(c *call, key string) (head *mvccpb.KeyValue, revision int64, err error) {
	from, to := s.entries(key)
	err = s.try(c, func(ctx context.Context) error {
		r, err := s.client.Get(ctx, from, to, clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend),
			clientv3.WithLimit(1))
		if err != nil {
			return err
		}
		head, revision = nil, r.Header.Revision
		if len(r.Kvs) > 0 {
			head = r.Kvs[0]
		}
		return nil
	})
	return head, revision, err
}

// QueuePush implements store.Extended.
func (s *Store) QueuePush(ctx context.Context, key string, value []byte) error {
	c, done := s.call(ctx, "queue_push", key)
	defer done()
	entry := fmt.Sprintf("%s%s.%d", s.valueKey(key), s.id, s.pushed.Add(1))
	_, err := s.commit(c, nil, []clientv3.Op{s.put(entry, value)})
	return err
}

// QueuePop implements store.Extended.
func (s *Store) QueuePop(ctx context.Context, key string) ([]byte, error) {
	c, done := s.call(ctx, "queue_pop", key)
	defer done()
	for {
		head, revision, err := s.head(c, key)
		if err != nil {
			return nil, err
		}
		if head == nil {
			c.missing = c.keys
			if err := s.appears(c, key, revision+1); err != nil {
				return nil, err
			}
			continue
		}
		at := string(head.Key)
		there := clientv3.Compare(clientv3.ModRevision(at), "=", head.ModRevision)
		taken, err := s.commit(c, []clientv3.Cmp{there}, []clientv3.Op{clientv3.OpDelete(at)})
		if taken || err != nil {
			return head.Value, err
		}
	}
}

// QueueLen implements store.Extended.
func (s *Store) QueueLen(ctx context.Context, key string) (n int64, err error) {
	c, done := s.call(ctx, "queue_len", key)
	defer done()
	from, to := s.entries(key)
	err = s.try(c, func(ctx context.Context) error {
		r, err := s.client.Get(ctx, from, to, clientv3.WithCountOnly())
		if err == nil {
			n = r.Count
		}
		return err
	})
	return n, err
}
