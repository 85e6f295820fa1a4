//go:build cgo

package capi

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/store"
)

// storeRef is what a chorus_store stands for: open while the handle or a
// communicator in the making uses it.
type storeRef struct {
	store.Store
	users atomic.Int32
}

// use keeps the store open until drop, unless it's closed already.
func (r *storeRef) use() bool {
	for {
		n := r.users.Load()
		if n == 0 {
			return false
		}
		if r.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (r *storeRef) drop() {
	if r.users.Add(-1) == 0 {
		r.Close()
	}
}

func giveStore(st store.Store, out *C.chorus_store) error {
	r := &storeRef{Store: st}
	r.users.Store(1)
	h := stores.put(r)
	if h == 0 {
		st.Close()
		return errors.New("chorus: too many stores")
	}
	*out = C.chorus_store(h)
	return nil
}

//export goStoreRelease
func goStoreRelease(h C.chorus_store) (status C.chorus_status) {
	defer contain(&status)
	r := stores.take(uint64(h))
	if r == nil {
		return fail(refused("%#x is no store; it may have been released", uint64(h)))
	}
	r.drop()
	return C.CHORUS_OK
}

//export goStoreOpen
func goStoreOpen(address *C.char, ns C.int64_t, out *C.chorus_store, checked C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	if address == nil || out == nil || ns < 0 {
		return fail(refused("chorus_store_open got NULL, or a negative timeout"))
	}
	*out = 0
	at := C.GoString(address)
	limit := timeout(ns)
	if limit == 0 {
		limit = store.DefaultTimeout
	}
	var st store.Store
	err := running(checked, func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		st, err = openStore(ctx, at, limit)
		return err
	}, func() { st.Close() })
	if err == nil {
		err = giveStore(st, out)
	}
	return fail(err)
}

func openStore(ctx context.Context, address string, limit time.Duration) (store.Store, error) {
	st, err := store.Open(ctx, address, store.OpenOptions{Timeout: limit})
	if errors.Is(err, store.ErrOptions) {
		return nil, refused("%v", err)
	}
	return st, err
}

//export goStoreFromCallbacks
func goStoreFromCallbacks(c *C.chorus_store_callbacks, out *C.chorus_store) (status C.chorus_status) {
	defer contain(&status)
	if c == nil || out == nil {
		return fail(refused("chorus_store_from_callbacks got NULL"))
	}
	*out = 0
	if err := sized("chorus_store_callbacks", c.size, unsafe.Sizeof(*c)); err != nil {
		return fail(err)
	}
	if c.set == nil || c.get == nil || c.add == nil || c.wait == nil {
		return fail(refused("a store needs the callbacks set, get, add and wait"))
	}
	own := (*C.chorus_store_callbacks)(C.malloc(C.size_t(unsafe.Sizeof(*c))))
	*own = *c
	return fail(giveStore(&callbackStore{c: own}, out))
}

// callbackStore is a store that the caller implements.
type callbackStore struct {
	c        *C.chorus_store_callbacks // malloc's
	released atomic.Bool
}

// Close tells the caller that its callbacks are done with. It's called once, after the last use.
func (s *callbackStore) Close() error {
	s.released.Store(true)
	C.shim_store_released(s.c)
	C.free(unsafe.Pointer(s.c))
	return nil
}

// turn is how long one callback may wait: a context that has ended meanwhile is
// noticed after it, since nothing can end a callback.
const turn = time.Second

// inTurns lets a callback wait until ctx ends, turn by turn.
func inTurns(ctx context.Context, f func(ns C.int64_t) C.chorus_status) C.chorus_status {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(store.DefaultTimeout)
	}
	for {
		left := time.Until(deadline)
		status := f(C.int64_t(max(1, min(left, turn))))
		if status != C.CHORUS_TIMEOUT || left <= turn || ctx.Err() != nil {
			return status
		}
	}
}

// call runs a callback, and turns its answer into bytes or an error.
func (s *callbackStore) call(ctx context.Context, op string, keys []string,
	f func(r *C.chorus_reply) C.chorus_status) ([]byte, error) {
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, fmt.Errorf("store: %s: %w", op, context.Cause(ctx))
	}
	if s.released.Load() {
		return nil, fmt.Errorf("store: %s: the caller has released the store: %w", op, store.ErrClosed)
	}
	begin := time.Now()
	r := (*C.chorus_reply)(C.calloc(1, C.size_t(unsafe.Sizeof(C.chorus_reply{}))))
	defer func() {
		C.free(r.data)
		C.free(unsafe.Pointer(r.error))
		C.free(unsafe.Pointer(r))
	}()
	status := f(r)
	var why error
	if r.error != nil {
		why = errors.New(C.GoString(r.error))
	}
	switch status {
	case C.CHORUS_OK:
		value := make([]byte, int(r.bytes))
		copy(value, unsafe.Slice((*byte)(r.data), int(r.bytes)))
		return value, nil
	case C.CHORUS_TIMEOUT:
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, fmt.Errorf("store: %s: %w", op, context.Cause(ctx))
		}
		return nil, &store.TimeoutError{Op: op, Missing: s.missing(keys), Keys: len(keys), Waited: time.Since(begin),
			Err: why}
	case C.CHORUS_UNSUPPORTED:
		return nil, fmt.Errorf("store: the caller's store has no %s: %w", op, errors.ErrUnsupported)
	}
	if why == nil {
		why = fmt.Errorf("status %d", status)
	}
	if status == C.CHORUS_PEER_LOST {
		return nil, &store.ConnError{Op: op, Addr: "the caller's store", Uncertain: true, Err: why}
	}
	return nil, fmt.Errorf("store: %s: the caller's store: %w", op, why)
}

// missing finds out which keys don't exist, as far as the caller's store can tell.
func (s *callbackStore) missing(keys []string) []string {
	if s.c.check == nil {
		return keys
	}
	var out []string
	for _, k := range keys {
		if there, err := s.Check(context.Background(), k); err != nil || !there {
			out = append(out, k)
		}
	}
	return out
}

// cKeys makes a C array of C strings.
func cKeys(keys []string) (**C.char, func()) {
	array := (**C.char)(C.calloc(C.size_t(len(keys)+1), C.size_t(unsafe.Sizeof((*C.char)(nil)))))
	list := unsafe.Slice(array, len(keys))
	for i, k := range keys {
		list[i] = C.CString(k)
	}
	return array, func() {
		for _, p := range list {
			C.free(unsafe.Pointer(p))
		}
		C.free(unsafe.Pointer(array))
	}
}

func (s *callbackStore) withKey(ctx context.Context, op, key string,
	f func(k *C.char, r *C.chorus_reply) C.chorus_status) ([]byte, error) {
	k := C.CString(key)
	defer C.free(unsafe.Pointer(k))
	return s.call(ctx, op, []string{key}, func(r *C.chorus_reply) C.chorus_status { return f(k, r) })
}

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

func (s *callbackStore) Set(ctx context.Context, key string, value []byte) error {
	_, err := s.withKey(ctx, "set", key, func(k *C.char, r *C.chorus_reply) C.chorus_status {
		return C.shim_store_set(s.c, k, pointer(value), C.int64_t(len(value)), r)
	})
	return err
}

func (s *callbackStore) Get(ctx context.Context, key string) ([]byte, error) {
	return s.withKey(ctx, "get", key, func(k *C.char, r *C.chorus_reply) C.chorus_status {
		return inTurns(ctx, func(ns C.int64_t) C.chorus_status { return C.shim_store_get(s.c, k, ns, r) })
	})
}

func (s *callbackStore) Add(ctx context.Context, key string, delta int64) (int64, error) {
	var sum C.int64_t
	_, err := s.withKey(ctx, "add", key, func(k *C.char, r *C.chorus_reply) C.chorus_status {
		return C.shim_store_add(s.c, k, C.int64_t(delta), &sum, r)
	})
	return int64(sum), err
}

func (s *callbackStore) Wait(ctx context.Context, keys ...string) error {
	array, free := cKeys(keys)
	defer free()
	_, err := s.call(ctx, "wait", keys, func(r *C.chorus_reply) C.chorus_status {
		return inTurns(ctx, func(ns C.int64_t) C.chorus_status {
			return C.shim_store_wait(s.c, array, C.int32_t(len(keys)), ns, r)
		})
	})
	return err
}

func (s *callbackStore) Check(ctx context.Context, keys ...string) (bool, error) {
	array, free := cKeys(keys)
	defer free()
	var all C.int32_t
	_, err := s.call(ctx, "check", nil, func(r *C.chorus_reply) C.chorus_status {
		return C.shim_store_check(s.c, array, C.int32_t(len(keys)), &all, r)
	})
	return all != 0, err
}

func (s *callbackStore) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	return s.withKey(ctx, "compare_set", key, func(k *C.char, r *C.chorus_reply) C.chorus_status {
		return C.shim_store_compare_set(s.c, k, pointer(expected), C.int64_t(len(expected)), pointer(desired),
			C.int64_t(len(desired)), r)
	})
}

func (s *callbackStore) Delete(ctx context.Context, key string) (bool, error) {
	var existed C.int32_t
	_, err := s.withKey(ctx, "delete", key, func(k *C.char, r *C.chorus_reply) C.chorus_status {
		return C.shim_store_remove(s.c, k, &existed, r)
	})
	return existed != 0, err
}

func (s *callbackStore) NumKeys(ctx context.Context) (int64, error) {
	var n C.int64_t
	_, err := s.call(ctx, "num_keys", nil,
		func(r *C.chorus_reply) C.chorus_status { return C.shim_store_num_keys(s.c, &n, r) })
	return int64(n), err
}
