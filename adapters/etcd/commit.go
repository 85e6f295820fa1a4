package etcd

import (
	"context"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A writer numbers the changes of one goroutine at a time, in a key of etcd.
type writer struct {
	key      string
	revision int64 // of the key, as the writer has left it
	number   uint64
}

// takeWriter returns a writer that no other goroutine uses.
func (s *Store) takeWriter() *writer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.idle); n > 0 {
		w := s.idle[n-1]
		s.idle = s.idle[:n-1]
		return w
	}
	s.writers++
	return &writer{key: s.prefix + "writers/" + s.id + "." + strconv.Itoa(s.writers)}
}

func (s *Store) giveWriter(w *writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, w)
}

// commit carries out writes if the conditions hold, and says whether it has. It repeats the transaction until one has
// been answered, though the members that got the others may have carried them out, or still may.
//
// So each transaction also needs the writer's key as the writer has left it, and changes it: at most one of the
// repetitions is carried out. The others read the key, whose number says whether an earlier one was. If none was, the
// key is changed nevertheless. A transaction that is still on its way can't be carried out then, though the conditions
// may hold again.
func (s *Store) commit(c *call, conditions []clientv3.Cmp, writes []clientv3.Op) (committed bool, err error) {
	w := s.takeWriter()
	w.number++
	done, refused := strconv.FormatUint(w.number, 10), "refused "+strconv.FormatUint(w.number, 10)
	if len(conditions) > 0 {
		conditions = conditions[:len(conditions):len(conditions)]
	}
	conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(w.key), "=", w.revision))
	writes = append(writes[:len(writes):len(writes)], s.put(w.key, []byte(done)))
	otherwise := []clientv3.Op{clientv3.OpGet(w.key)}
	err = s.try(c, func(ctx context.Context) error {
		r, err := s.client.Txn(ctx).If(conditions...).Then(writes...).Else(otherwise...).Commit()
		if err != nil { // and the next one closes the door
			otherwise = []clientv3.Op{clientv3.OpGet(w.key), clientv3.OpTxn(
				[]clientv3.Cmp{clientv3.Compare(clientv3.Value(w.key), "=", done)}, nil,
				[]clientv3.Op{s.put(w.key, []byte(refused))})}
			return err
		}
		if committed = r.Succeeded; committed {
			w.revision = r.Header.Revision
			return nil
		}
		if kvs := r.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 && string(kvs[0].Value) == done {
			committed, w.revision = true, kvs[0].ModRevision
		} else if len(otherwise) > 1 {
			w.revision = r.Header.Revision
		}
		return nil
	})
	if err == nil { // else nobody knows what will become of the writer's key
		s.giveWriter(w)
	}
	return committed, err
}

// change says what becomes of a key.
type change int

const (
	keep change = iota
	replace
	remove
)

// modify changes a key in one step. decide gets its value, and returns what becomes of it; it's called again if another
// client was faster.
func (s *Store) modify(c *call, key string, decide func(value []byte, exists bool) ([]byte, change, error)) error {
	at := s.valueKey(key)
	for attempt := 0; ; attempt++ {
		var value []byte
		var revision int64
		err := s.try(c, func(ctx context.Context) error {
			r, err := s.client.Get(ctx, at)
			if err == nil && len(r.Kvs) > 0 {
				value, revision = r.Kvs[0].Value, r.Kvs[0].ModRevision
			}
			return err
		})
		if err != nil {
			return err
		}
		next, what, err := decide(value, revision != 0)
		if err != nil || what == keep {
			return err
		}
		write := s.put(at, next)
		if what == remove {
			write = clientv3.OpDelete(at)
		}
		unchanged := clientv3.Compare(clientv3.ModRevision(at), "=", revision)
		committed, err := s.commit(c, []clientv3.Cmp{unchanged}, []clientv3.Op{write})
		if committed || err != nil {
			return err
		}
		if err := c.pause(attempt); err != nil {
			return err
		}
	}
}
