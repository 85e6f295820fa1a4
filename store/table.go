package store

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
)

// A table is the state of a store that lives in one process: it stands behind
// HashStore and behind TCPServer. Values are never changed in place, so that a
// slice taken under the lock may be read after it.
//
// Callbacks run under the lock: they must not block and must not call back.
type table struct {
	mu       sync.Mutex
	values   map[string][]byte
	queues   map[string][][]byte
	waiters  map[string][]*waiter // by the key they wait for
	parked   map[string][]*waiter // by the key of the barrier they stand at
	watchers map[string][]*watcher
}

// A waiter is woken once, when none of the keys that were missing when it was
// registered is missing any more. A key deleted meanwhile does not count again.
type waiter struct {
	lists   map[string][]*waiter // where it is registered: waiters or parked
	keys    []string             // and under which keys
	missing int
	wake    func()
}

// A watcher is told of every change of one key.
type watcher struct {
	key    string
	change func(kind changeKind, key string, before, after []byte)
}

// changeKind has the values that the wire protocol gives it.
type changeKind byte

const (
	changeUpdated changeKind = iota
	changeCreated
	changeDeleted
)

func newTable() *table {
	return &table{
		values:   map[string][]byte{},
		queues:   map[string][][]byte{},
		waiters:  map[string][]*waiter{},
		parked:   map[string][]*waiter{},
		watchers: map[string][]*watcher{},
	}
}

// put replaces a value and wakes the waits for it. The caller holds t.mu.
func (t *table) put(key string, value []byte) {
	before, existed := t.values[key]
	t.values[key] = value
	kind := changeCreated
	if existed {
		kind = changeUpdated
	}
	t.changed(kind, key, before, value)
	arrived(t.waiters, key, math.MaxInt)
}

func (t *table) changed(kind changeKind, key string, before, after []byte) {
	for _, w := range t.watchers[key] {
		w.change(kind, key, before, after)
	}
}

// arrived counts key as present for its first n waiters. The caller holds the
// table's lock.
func arrived(lists map[string][]*waiter, key string, n int) {
	list := lists[key]
	n = min(n, len(list))
	for _, w := range list[:n] {
		w.missing--
		if w.missing == 0 {
			w.wake()
		}
	}
	if n == len(list) {
		delete(lists, key)
	} else {
		lists[key] = list[n:]
	}
}

// present reports whether WAIT and CHECK see key. The caller holds t.mu.
func (t *table) present(key string) bool {
	if _, ok := t.values[key]; ok {
		return true
	}
	return len(t.queues[key]) > 0
}

func (t *table) set(key string, value []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.put(key, value)
}

func (t *table) multiSet(keys []string, values [][]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, k := range keys {
		t.put(k, values[i])
	}
}

func (t *table) get(key string) ([]byte, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, ok := t.values[key]
	return v, ok
}

// multiGet returns the values of keys, or false if one is missing.
func (t *table) multiGet(keys []string) ([][]byte, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([][]byte, len(keys))
	all := true
	for i, k := range keys {
		v, ok := t.values[k]
		out[i], all = v, all && ok
	}
	return out, all
}

func (t *table) add(key string, delta int64) (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum, err := addText(t.values[key], delta)
	if err != nil {
		return 0, fmt.Errorf("store: add: key %q %w", key, err)
	}
	t.put(key, strconv.AppendInt(nil, sum, 10))
	return sum, nil
}

// addText adds delta to a number kept as text; no text counts as 0.
func addText(value []byte, delta int64) (int64, error) {
	if len(value) == 0 {
		return delta, nil
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("holds %.40q, which is not a number", value)
	}
	return n + delta, nil
}

func (t *table) compareSet(key string, expected, desired []byte) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	current, ok := t.values[key]
	result, store := compareSet(current, ok, expected, desired)
	if store {
		t.put(key, desired)
	}
	return result
}

// compareSet is the rule that all stores share: what to answer, and whether to
// store desired.
func compareSet(current []byte, exists bool, expected, desired []byte) ([]byte, bool) {
	switch {
	case !exists && len(expected) == 0, exists && string(current) == string(expected):
		return desired, true
	case !exists:
		return expected, false
	default:
		return current, false
	}
}

func (t *table) append(key string, value []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.put(key, slices.Concat(t.values[key], value))
}

func (t *table) check(keys []string) bool { return len(t.missing(keys, 1)) == 0 }

// missing lists up to limit of the keys that do not exist.
func (t *table) missing(keys []string, limit int) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	for _, k := range keys {
		if !t.present(k) {
			out = append(out, k)
			if len(out) == limit {
				break
			}
		}
	}
	return out
}

func (t *table) remove(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, ok := t.values[key]
	if ok {
		delete(t.values, key)
		t.changed(changeDeleted, key, before, nil)
	}
	return ok
}

func (t *table) numKeys() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int64(len(t.values))
}

func (t *table) listKeys() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.values))
}

// wait returns nil if all keys exist. Otherwise the call that sets the last key calls wake.
func (t *table) wait(keys []string, wake func()) *waiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := &waiter{lists: t.waiters, wake: wake}
	for _, k := range keys {
		if !t.present(k) {
			w.keys = append(w.keys, k)
			t.waiters[k] = append(t.waiters[k], w)
		}
	}
	w.missing = len(w.keys)
	if w.missing == 0 {
		return nil
	}
	return w
}

// waiting counts the waits for key.
func (t *table) waiting(key string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.waiters[key])
}

// cancel makes sure that w is not woken any more.
func (t *table) cancel(w *waiter) {
	if w == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.missing == 0 {
		return
	}
	for _, k := range w.keys {
		list := slices.DeleteFunc(w.lists[k], func(x *waiter) bool { return x == w })
		if len(list) == 0 {
			delete(w.lists, k)
		} else {
			w.lists[k] = list
		}
	}
	w.missing = 0
}

// barrier counts one arrival at key. It returns nil if size have arrived, and has
// woken the others then; otherwise the last to arrive calls wake.
func (t *table) barrier(key string, size int64, wake func()) (*waiter, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := addText(t.values[key], 1)
	if err != nil {
		return nil, fmt.Errorf("store: barrier: key %q %w", key, err)
	}
	t.put(key, strconv.AppendInt(nil, n, 10))
	if n >= size {
		arrived(t.parked, key, math.MaxInt)
		return nil, nil
	}
	w := &waiter{lists: t.parked, keys: []string{key}, missing: 1, wake: wake}
	t.parked[key] = append(t.parked[key], w)
	return w, nil
}

func (t *table) push(key string, value []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queues[key] = append(t.queues[key], value)
	arrived(t.waiters, key, 1)
}

// pop takes the oldest value of a queue and returns the length before.
func (t *table) pop(key string) ([]byte, int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[key]
	if len(q) == 0 {
		return nil, 0
	}
	if len(q) == 1 {
		delete(t.queues, key)
	} else {
		t.queues[key] = q[1:]
	}
	return q[0], int64(len(q))
}

func (t *table) queueLen(key string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int64(len(t.queues[key]))
}

func (t *table) watch(w *watcher) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watchers[w.key] = append(t.watchers[w.key], w)
}

func (t *table) unwatch(w *watcher) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := slices.DeleteFunc(t.watchers[w.key], func(x *watcher) bool { return x == w })
	if len(list) == 0 {
		delete(t.watchers, w.key)
	} else {
		t.watchers[w.key] = list
	}
}
