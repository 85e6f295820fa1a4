package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/internal/sys"
)

// Cleanup says when a FileStore removes its file. All stores on one file must
// agree, and PyTorch processes have the style of their version.
type Cleanup uint8

const (
	// CleanupRefcount is that of PyTorch 2: the store that is closed last
	// removes the file, if world-size stores have been closed by then.
	CleanupRefcount Cleanup = iota
	// CleanupCount is that of PyTorch 1.13: the store whose closing is the
	// world-size-th removes the file.
	CleanupCount
)

// FileOptions configures a FileStore.
type FileOptions struct {
	// WorldSize is how many stores will be opened on the file; the last to be
	// closed removes it. With 0 or less the file is never removed.
	WorldSize int
	// Cleanup is the way in which that is found out.
	Cleanup Cleanup
	// Timeout bounds calls whose context has no deadline; 0 is DefaultTimeout.
	Timeout time.Duration
}

// fileChunk is how much of a file is read at a time, so that one that isn't a store's costs no memory.
const fileChunk = 64 << 10

// minTorn is how many bytes an incomplete record has at least if no whole one is in front of it: a length and the
// beginning of a key. Fewer don't show that the file is a store's.
const minTorn = 5

// pollInterval is how often a FileStore looks whether a key has come.
const pollInterval = 10 * time.Millisecond

// A FileStore keeps its keys in a file that all ranks can reach: one on their
// host, or on a network file system whose locks work (flock(2)). It reads and
// writes the format of PyTorch's FileStore.
//
// A wait reads the file every 10 ms. A file that an earlier job left behind holds that job's keys:
// give each job's file a name of its own.
type FileStore struct {
	path string
	opts FileOptions
	done context.Context // ends when the store is closed
	stop context.CancelFunc

	lock   chan struct{} // holds one token; guards what follows
	closed bool
	file   fs.FileInfo       // which file was read
	pos    int64             // up to where
	values map[string][]byte // keys as they are in the file
	once   sync.Once
	err    error // of Close
}

var _ Extended = (*FileStore)(nil)

// OpenFile opens a store in the file at path, which is created if need be. A file that has something else in it is an
// error, and isn't written to.
func OpenFile(ctx context.Context, path string, opts FileOptions) (*FileStore, error) {
	s := &FileStore{path: path, opts: opts, lock: make(chan struct{}, 1), values: map[string][]byte{}}
	s.done, s.stop = context.WithCancel(context.Background())
	s.lock <- struct{}{}
	var err error
	if opts.Cleanup == CleanupRefcount {
		_, err = s.add(ctx, fileRefs, 1)
	} else {
		_, err = s.NumKeys(ctx)
	}
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("store: open %s: %w", path, err)
	}
	return s, nil
}

// Path returns the path of the file.
func (s *FileStore) Path() string { return s.path }

// access opens the file, locks it, reads what is new, has work look at s.values,
// and writes the record that work returns, if any.
func (s *FileStore) access(ctx context.Context, op string, write bool, work func() (record []byte, err error)) error {
	begin := time.Now()
	select {
	case <-s.lock:
		defer func() { s.lock <- struct{}{} }()
	case <-ctx.Done():
		return ended(ctx, op, begin, 0, nil, nil)
	}
	if s.closed {
		return ErrClosed
	}
	f, err := s.openLocked(ctx, write)
	if err != nil {
		if ctx.Err() != nil {
			return ended(ctx, op, begin, 0, nil, err)
		}
		return fmt.Errorf("store: %s: %w", op, err)
	}
	if f == nil { // no process has written yet
		clear(s.values)
		s.file, s.pos = nil, 0
	} else {
		defer f.Close() // which unlocks
		if err := s.refresh(f, write); err != nil {
			return fmt.Errorf("store: %s: read %s: %w", op, s.path, err)
		}
	}
	record, err := work()
	if err != nil || record == nil {
		return err
	}
	if len(record) > maxRequest {
		return fmt.Errorf("store: %s: %d bytes, at most %d go into a file at once", op, len(record), maxRequest)
	}
	for rest := record; len(rest) > 0; {
		key, _, n, err := nextRecord(rest)
		if err != nil {
			return fmt.Errorf("store: %s: %w", op, err)
		}
		if len(key) > maxTornKey {
			return fmt.Errorf("store: %s: a key of %d bytes, at most %d go into a file", op, len(key), maxTornKey)
		}
		rest = rest[n:]
	}
	// One write, so that a killed process hardly ever leaves half a record.
	if _, err := f.WriteAt(record, s.pos); err != nil {
		return fmt.Errorf("store: %s: write: %w", op, err)
	}
	_, err = replay(s.values, record)
	s.pos += int64(len(record))
	return err
}

// openLocked opens and locks the file. For a reader it is nil if there is none.
func (s *FileStore) openLocked(ctx context.Context, write bool) (*os.File, error) {
	flag := os.O_RDONLY
	if write {
		flag = os.O_RDWR | os.O_CREATE
	}
	f, _, err := sys.OpenRegularAs(s.path, flag, 0o644)
	if !write && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", s.path, err)
	}
	if err := flock(ctx, f, write); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", s.path, err)
	}
	return f, nil
}

// flock locks f for this process alone, or for those that read. It asks again and again, because a process that blocks
// in the kernel can't be woken at a deadline.
func flock(ctx context.Context, f *os.File, alone bool) error {
	pause := 50 * time.Microsecond
	for {
		taken, err := tryLock(f, alone)
		if err == nil || !taken {
			return err
		}
		if !sleep(ctx, pause) {
			return err
		}
		pause = min(2*pause, 2*time.Millisecond)
	}
}

// refresh reads what was written since the last access. A writer, which holds
// the lock alone, cuts off the half record that a killed process left.
func (s *FileStore) refresh(f *os.File, write bool) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if s.file == nil || !os.SameFile(info, s.file) || info.Size() < s.pos { // another file got the name
		s.pos = 0
		clear(s.values)
	}
	s.file = info
	for chunk := int64(fileChunk); s.pos < info.Size(); {
		rest := info.Size() - s.pos
		news := make([]byte, min(rest, chunk))
		n, err := f.ReadAt(news, s.pos)
		if err != nil && err != io.EOF {
			return err
		}
		done, err := replay(s.values, news[:n])
		s.pos += int64(done)
		switch {
		case err != nil:
			return err
		case done > 0:
		case rest > chunk && n == len(news): // a record is longer than the chunk
			chunk *= 2
		case s.pos == 0 && n < minTorn:
			return errNotLog
		case write:
			return f.Truncate(s.pos)
		default:
			return nil
		}
	}
	return nil
}

// context makes a call end at its deadline and when the store is closed.
func (s *FileStore) context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := deadline(ctx, s.opts.Timeout)
	stop := context.AfterFunc(s.done, cancel)
	return ctx, func() { stop(); cancel() }
}

// call is access with the deadline of an ordinary call.
func (s *FileStore) call(ctx context.Context, op string, write bool, work func() ([]byte, error)) error {
	ctx, cancel := s.context(ctx)
	defer cancel()
	return s.orClosed(s.access(ctx, op, write, work))
}

func (s *FileStore) orClosed(err error) error {
	if err != nil && s.done.Err() != nil {
		return ErrClosed
	}
	return err
}

// Set implements Store.
func (s *FileStore) Set(ctx context.Context, key string, value []byte) error {
	return s.call(ctx, "set", true, func() ([]byte, error) {
		return appendRecord(nil, fileUser+key, value), nil
	})
}

// await looks at the file until it holds all keys and then calls found.
func (s *FileStore) await(ctx context.Context, op string, keys []string, found func()) error {
	ctx, cancel := s.context(ctx)
	defer cancel()
	begin := time.Now()
	missing := keys
	for {
		err := s.access(ctx, op, false, func() ([]byte, error) {
			missing = s.missing(keys)
			if len(missing) == 0 {
				found()
			}
			return nil, nil
		})
		if err == nil && len(missing) == 0 {
			return nil
		}
		if err == nil && !sleep(ctx, pollInterval) {
			err = ended(ctx, op, begin, len(keys), missing, nil)
		}
		if t, ok := errors.AsType[*TimeoutError](err); ok {
			t.Missing, t.Keys = missing, len(keys)
		}
		if err != nil {
			return s.orClosed(err)
		}
	}
}

func (s *FileStore) missing(keys []string) []string {
	var out []string
	for _, k := range keys {
		if _, ok := s.values[fileUser+k]; !ok {
			out = append(out, k)
		}
	}
	return out
}

// Get implements Store.
func (s *FileStore) Get(ctx context.Context, key string) (value []byte, err error) {
	err = s.await(ctx, "get", []string{key}, func() { value = bytes.Clone(s.values[fileUser+key]) })
	return value, err
}

// Wait implements Store.
func (s *FileStore) Wait(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	return s.await(ctx, "wait", keys, func() {})
}

// MultiGet implements Extended.
func (s *FileStore) MultiGet(ctx context.Context, keys ...string) (values [][]byte, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	err = s.await(ctx, "multi_get", keys, func() {
		for _, k := range keys {
			values = append(values, bytes.Clone(s.values[fileUser+k]))
		}
	})
	return values, err
}

// Check implements Store.
func (s *FileStore) Check(ctx context.Context, keys ...string) (all bool, err error) {
	err = s.call(ctx, "check", false, func() ([]byte, error) {
		all = len(s.missing(keys)) == 0
		return nil, nil
	})
	return all, err
}

// Add implements Store.
func (s *FileStore) Add(ctx context.Context, key string, delta int64) (int64, error) {
	return s.add(ctx, fileUser+key, delta)
}

// add adds to a key as it is in the file.
func (s *FileStore) add(ctx context.Context, key string, delta int64) (sum int64, err error) {
	err = s.call(ctx, "add", true, func() (_ []byte, err error) {
		if sum, err = addText(s.values[key], delta); err != nil {
			return nil, fmt.Errorf("store: add: key %q %w", key, err)
		}
		return appendRecord(nil, key, strconv.AppendInt(nil, sum, 10)), nil
	})
	return sum, err
}

// CompareSet implements Store.
func (s *FileStore) CompareSet(ctx context.Context, key string, expected, desired []byte) (result []byte, err error) {
	err = s.call(ctx, "compare_set", true, func() ([]byte, error) {
		current, ok := s.values[fileUser+key]
		answer, store := compareSet(current, ok, expected, desired)
		result = bytes.Clone(answer)
		if !store {
			return nil, nil
		}
		return appendRecord(nil, fileUser+key, desired), nil
	})
	return result, err
}

// Delete implements Store. It always reports true, as PyTorch's does.
func (s *FileStore) Delete(ctx context.Context, key string) (bool, error) {
	err := s.call(ctx, "delete", true, func() ([]byte, error) {
		return appendRecord(nil, fileDelete+fileUser+key, nil), nil
	})
	return err == nil, err
}

// NumKeys implements Store. It counts the bookkeeping key of CleanupRefcount.
func (s *FileStore) NumKeys(ctx context.Context) (n int64, err error) {
	err = s.call(ctx, "num_keys", false, func() ([]byte, error) {
		n = int64(len(s.values))
		return nil, nil
	})
	return n, err
}

// Append implements Extended.
func (s *FileStore) Append(ctx context.Context, key string, value []byte) error {
	return s.call(ctx, "append", true, func() ([]byte, error) {
		return appendRecord(nil, fileUser+key, slices.Concat(s.values[fileUser+key], value)), nil
	})
}

// MultiSet implements Extended. All keys appear at once.
func (s *FileStore) MultiSet(ctx context.Context, keys []string, values [][]byte) error {
	if err := sameLength(keys, values); err != nil {
		return err
	}
	return s.call(ctx, "multi_set", true, func() (log []byte, _ error) {
		for i, k := range keys {
			log = appendRecord(log, fileUser+k, values[i])
		}
		return log, nil
	})
}

// ListKeys implements Extended, without the bookkeeping keys.
func (s *FileStore) ListKeys(ctx context.Context) (keys []string, err error) {
	err = s.call(ctx, "list_keys", false, func() ([]byte, error) {
		keys = stripPrefix(slices.Sorted(maps.Keys(s.values)), fileUser)
		return nil, nil
	})
	return keys, err
}

// QueuePush implements Extended: a FileStore has no queues.
func (s *FileStore) QueuePush(context.Context, string, []byte) error {
	return unsupported("queue_push", "a file store")
}

// QueuePop implements Extended: a FileStore has no queues.
func (s *FileStore) QueuePop(context.Context, string) ([]byte, error) {
	return nil, unsupported("queue_pop", "a file store")
}

// QueueLen implements Extended: a FileStore has no queues.
func (s *FileStore) QueueLen(context.Context, string) (int64, error) {
	return 0, unsupported("queue_len", "a file store")
}

// Barrier implements Extended by leaving it to the function of the same name.
func (s *FileStore) Barrier(context.Context, string, int) error {
	return unsupported("barrier", "a file store")
}

// Close implements Store. It counts this store out, and removes the file if it is
// the last one.
func (s *FileStore) Close() error {
	s.once.Do(func() {
		s.stop()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		s.err = s.leave(ctx)
	})
	return s.err
}

// leave does the bookkeeping of Close. A file that was removed stays so.
func (s *FileStore) leave(ctx context.Context) error {
	if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) {
		<-s.lock
		s.closed = true
		s.lock <- struct{}{}
		return nil
	}
	return s.access(ctx, "close", true, func() ([]byte, error) {
		s.closed = true
		finished, err := addText(s.values[fileFinished], 1)
		if err != nil {
			return nil, err
		}
		log := appendRecord(nil, fileFinished, strconv.AppendInt(nil, finished, 10))
		last := finished == int64(s.opts.WorldSize)
		if s.opts.Cleanup == CleanupRefcount {
			refs, err := addText(s.values[fileRefs], -1)
			if err != nil {
				return nil, err
			}
			log = appendRecord(log, fileRefs, strconv.AppendInt(nil, refs, 10))
			last = refs == 0 && finished >= int64(s.opts.WorldSize)
		}
		if last && s.opts.WorldSize > 0 {
			return nil, os.Remove(s.path)
		}
		return log, nil
	})
}
