// Package storetest is the conformance suite for implementations of store.Store.
//
//	func TestMine(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) (a, b store.Store) { ... }, storetest.Options{})
//	}
//
// The function opens an empty store and returns two handles to it, as two ranks
// would have. Handles are closed by the suite. Every test opens its own.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/store"
)

// Options says in what a store differs, where the contract admits it.
type Options struct {
	// DeleteAlwaysTrue is set for stores whose Delete can't tell whether the
	// key was there.
	DeleteAlwaysTrue bool
	// NoQueues and NoListKeys expect errors that wrap errors.ErrUnsupported.
	NoQueues, NoListKeys bool
	// Silent lists operations that do not wake waits for the key: "compare_set", "append".
	Silent []string
	// OneHandle is set if closing one handle closes the other.
	OneHandle bool
}

// A suite is the set-up that all tests of one run share.
type suite struct {
	open func(*testing.T) (a, b store.Store)
	opts Options
}

// Run checks a store.
func Run(t *testing.T, open func(t *testing.T) (a, b store.Store), opts Options) {
	s := suite{open, opts}
	t.Run("SetGet", s.setGet)
	t.Run("Add", s.add)
	t.Run("CompareSet", s.compareSet)
	t.Run("Delete", s.delete)
	t.Run("NumKeys", s.numKeys)
	t.Run("CheckWait", s.checkWait)
	t.Run("WaitIsWoken", s.waitIsWoken)
	t.Run("WaitDoesNotBlockOthers", s.waitDoesNotBlockOthers)
	t.Run("Timeout", s.timeout)
	t.Run("Cancel", s.cancel)
	t.Run("Concurrent", s.concurrent)
	t.Run("Ownership", s.ownership)
	t.Run("Extended", s.extended)
	t.Run("Queues", s.queues)
	t.Run("ListKeys", s.listKeys)
	t.Run("Barrier", s.barrier)
	t.Run("Prefix", s.prefix)
	t.Run("Close", s.close)
}

// start opens the two handles and a context that ends with the test.
func (s suite) start(t *testing.T) (ctx context.Context, a, b store.Store) {
	t.Helper()
	a, b = s.open(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(func() {
		cancel()
		a.Close()
		b.Close()
	})
	return ctx, a, b
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Fatalf("%s: got %q, want %q", what, got, want)
	}
}

func (s suite) setGet(t *testing.T) {
	ctx, a, b := s.start(t)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for key, value := range map[string][]byte{
		"k": []byte("value"), "empty": {}, "": []byte("empty key"), "a/b//c": every, "/lead": []byte("x"),
		"ünïcode\x00\xff": []byte("bytes"), "long": []byte(strings.Repeat("0123456789", 20000)),
	} {
		ok(t, a.Set(ctx, key, value))
		same(t, key, must[[]byte](t)(b.Get(ctx, key)), value)
	}
	ok(t, b.Set(ctx, "k", []byte("newer")))
	same(t, "k", must[[]byte](t)(a.Get(ctx, "k")), []byte("newer"))
}

func (s suite) add(t *testing.T) {
	ctx, a, b := s.start(t)
	for _, step := range []struct{ delta, want int64 }{
		{5, 5}, {-7, -2}, {0, -2}, {math.MaxInt64, math.MaxInt64 - 2}, {2, math.MaxInt64}, {math.MinInt64, -1},
	} {
		same(t, "sum", must[int64](t)(a.Add(ctx, "n", step.delta)), step.want)
		same(t, "text", must[[]byte](t)(b.Get(ctx, "n")), []byte(fmt.Sprint(step.want)))
		a, b = b, a
	}
	ok(t, a.Set(ctx, "text", []byte("41")))
	same(t, "on text", must[int64](t)(b.Add(ctx, "text", 1)), int64(42))
}

func (s suite) compareSet(t *testing.T) {
	ctx, a, b := s.start(t)
	cas := func(expected, desired, want string) {
		t.Helper()
		same(t, "answer", must[[]byte](t)(a.CompareSet(ctx, "k", []byte(expected), []byte(desired))), []byte(want))
		a, b = b, a
	}
	cas("other", "new", "other") // missing: the expected value comes back
	same(t, "stored", must[bool](t)(a.Check(ctx, "k")), false)
	cas("", "first", "first")
	cas("", "second", "first")
	cas("wrong", "second", "first")
	cas("first", "second", "second")
	same(t, "stored", must[[]byte](t)(a.Get(ctx, "k")), []byte("second"))
}

func (s suite) delete(t *testing.T) {
	ctx, a, b := s.start(t)
	ok(t, a.Set(ctx, "k", []byte("v")))
	same(t, "deleted", must[bool](t)(b.Delete(ctx, "k")), true)
	same(t, "check", must[bool](t)(a.Check(ctx, "k")), false)
	same(t, "again", must[bool](t)(a.Delete(ctx, "k")), s.opts.DeleteAlwaysTrue)
	same(t, "sum", must[int64](t)(a.Add(ctx, "k", 3)), int64(3))
	same(t, "check", must[bool](t)(b.Check(ctx, "k")), true)
}

func (s suite) numKeys(t *testing.T) {
	ctx, a, b := s.start(t)
	base := must[int64](t)(a.NumKeys(ctx))
	ok(t, a.Set(ctx, "x", nil))
	ok(t, a.Set(ctx, "x", []byte("1")))
	must[int64](t)(b.Add(ctx, "y", 1))
	same(t, "two more", must[int64](t)(b.NumKeys(ctx)), base+2)
	must[bool](t)(b.Delete(ctx, "x"))
	same(t, "one more", must[int64](t)(a.NumKeys(ctx)), base+1)
}

func (s suite) checkWait(t *testing.T) {
	ctx, a, b := s.start(t)
	same(t, "none", must[bool](t)(a.Check(ctx, "x", "y")), false)
	ok(t, b.Set(ctx, "x", []byte("1")))
	same(t, "one", must[bool](t)(a.Check(ctx, "x", "y")), false)
	same(t, "its own", must[bool](t)(a.Check(ctx, "x")), true)
	ok(t, b.Set(ctx, "y", []byte("1")))
	same(t, "both", must[bool](t)(a.Check(ctx, "x", "y", "x")), true)
	ok(t, a.Wait(ctx, "y", "x", "y"))
	ok(t, a.Wait(ctx))
	same(t, "no keys", must[bool](t)(a.Check(ctx)), true)
}

func (s suite) waitIsWoken(t *testing.T) {
	wakers := map[string]func(ctx context.Context, st store.Store) error{
		"set": func(ctx context.Context, st store.Store) error { return st.Set(ctx, "k", []byte("v")) },
		"add": func(ctx context.Context, st store.Store) error { _, err := st.Add(ctx, "k", 1); return err },
		"compare_set": func(ctx context.Context, st store.Store) error {
			_, err := st.CompareSet(ctx, "k", nil, []byte("v"))
			return err
		},
		"append": func(ctx context.Context, st store.Store) error { return store.Append(ctx, st, "k", []byte("v")) },
		"multi_set": func(ctx context.Context, st store.Store) error {
			return store.MultiSet(ctx, st, []string{"k"}, [][]byte{[]byte("v")})
		},
	}
	for _, name := range s.opts.Silent {
		delete(wakers, name)
	}
	for name, wake := range wakers {
		t.Run(name, func(t *testing.T) {
			ctx, a, b := s.start(t)
			ok(t, b.Set(ctx, "other", nil))
			woken := make(chan error, 2)
			go func() { woken <- a.Wait(ctx, "other", "k") }()
			go func() { _, err := a.Get(ctx, "k"); woken <- err }()
			ok(t, wake(ctx, b))
			ok(t, <-woken)
			ok(t, <-woken)
		})
	}
}

// waitDoesNotBlockOthers has the same handle wait and set.
func (s suite) waitDoesNotBlockOthers(t *testing.T) {
	ctx, a, _ := s.start(t)
	const n = 8
	woken := make(chan error, n)
	for i := range n {
		go func() { woken <- a.Wait(ctx, fmt.Sprint("never before ", i)) }()
	}
	for i := range n {
		ok(t, a.Set(ctx, fmt.Sprint("never before ", i), nil))
	}
	for range n {
		ok(t, <-woken)
	}
}

func (s suite) timeout(t *testing.T) {
	ctx, a, b := s.start(t)
	ok(t, b.Set(ctx, "there", []byte("v")))
	short, cancel := context.WithTimeout(ctx, 150*time.Millisecond)
	defer cancel()
	err := a.Wait(short, "there", "gone", "lost")
	timeout, is := errors.AsType[*store.TimeoutError](err)
	if !is || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("want a timeout, got %v", err)
	}
	same(t, "missing", timeout.Missing, []string{"gone", "lost"})
	same(t, "keys", timeout.Keys, 3)
	if !strings.Contains(err.Error(), `"gone"`) {
		t.Errorf("the message names no key: %v", err)
	}
	// The handle works as before, and a late answer reaches no other call.
	ok(t, b.Set(ctx, "gone", []byte("late")))
	same(t, "after", must[[]byte](t)(a.Get(ctx, "gone")), []byte("late"))
	same(t, "after", must[int64](t)(a.Add(ctx, "n", 4)), int64(4))

	short, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := a.Get(short, "lost"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("get: want a timeout, got %v", err)
	}
	if _, err := store.MultiGet(short, a, "there", "lost"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("multi_get: want a timeout, got %v", err)
	}
}

func (s suite) cancel(t *testing.T) {
	ctx, a, b := s.start(t)
	why := errors.New("enough")
	stop, cancel := context.WithCancelCause(ctx)
	result := make(chan error, 1)
	go func() { result <- a.Wait(stop, "never") }()
	cancel(why)
	err := <-result
	if _, is := errors.AsType[*store.TimeoutError](err); is || !errors.Is(err, why) {
		t.Fatalf("want the cause, got %v", err)
	}
	ok(t, b.Set(ctx, "k", []byte("v")))
	same(t, "after", must[[]byte](t)(a.Get(ctx, "k")), []byte("v"))
}

func (s suite) concurrent(t *testing.T) {
	ctx, a, b := s.start(t)
	const workers, rounds = 6, 15
	var wg sync.WaitGroup
	for i := range workers {
		st := []store.Store{a, b}[i%2]
		wg.Go(func() {
			for range rounds {
				if _, err := st.Add(ctx, "n", 1); err != nil {
					t.Error(err)
				}
				for { // a lost update would be a lost character
					old, err := st.CompareSet(ctx, "cas", nil, []byte("x"))
					if err != nil {
						t.Error(err)
						return
					}
					if string(old) == "x" {
						break
					}
				}
			}
			if err := store.Append(ctx, st, "log", []byte{byte('a' + i)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	same(t, "sum", must[[]byte](t)(a.Get(ctx, "n")), []byte(fmt.Sprint(workers*rounds)))
	log := must[[]byte](t)(b.Get(ctx, "log"))
	slices.Sort(log)
	same(t, "log", log, []byte("abcdef"))
}

// ownership changes slices after they were passed and after they were returned.
func (s suite) ownership(t *testing.T) {
	ctx, a, _ := s.start(t)
	v := []byte("value")
	ok(t, a.Set(ctx, "k", v))
	v[0] = 'X'
	got := must[[]byte](t)(a.Get(ctx, "k"))
	same(t, "stored", got, []byte("value"))
	got[0] = 'Y'
	same(t, "stored", must[[]byte](t)(a.Get(ctx, "k")), []byte("value"))
	must[[]byte](t)(a.CompareSet(ctx, "k", []byte("value"), v))
	v[0] = 'Z'
	same(t, "stored", must[[]byte](t)(a.Get(ctx, "k")), []byte("Xalue"))
}

func (s suite) extended(t *testing.T) {
	ctx, a, b := s.start(t)
	ok(t, store.Append(ctx, a, "log", []byte("one")))
	ok(t, store.Append(ctx, b, "log", []byte(",two")))
	ok(t, store.Append(ctx, b, "log", nil))
	ok(t, store.MultiSet(ctx, a, []string{"x", "y"}, [][]byte{[]byte("1"), {}}))
	same(t, "values", must[[][]byte](t)(store.MultiGet(ctx, b, "y", "log", "x")), []string{"", "one,two", "1"})
	if got := must[[][]byte](t)(store.MultiGet(ctx, b)); len(got) != 0 {
		t.Errorf("no keys gave %q", got)
	}
	if store.MultiSet(ctx, a, []string{"x"}, nil) == nil {
		t.Error("a key without a value was accepted")
	}
}

func (s suite) queues(t *testing.T) {
	ctx, a, b := s.start(t)
	err := store.QueuePush(ctx, a, "q", []byte("1"))
	if s.opts.NoQueues {
		_, popErr := store.QueuePop(ctx, a, "q")
		_, lenErr := store.QueueLen(ctx, a, "q")
		for _, err := range []error{err, popErr, lenErr} {
			if !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("want an error that wraps ErrUnsupported, got %v", err)
			}
		}
		return
	}
	ok(t, err)
	ok(t, store.QueuePush(ctx, b, "q", []byte("2")))
	same(t, "length", must[int64](t)(store.QueueLen(ctx, b, "q")), int64(2))
	same(t, "check", must[bool](t)(b.Check(ctx, "q")), true)
	same(t, "first", must[[]byte](t)(store.QueuePop(ctx, b, "q")), []byte("1"))
	same(t, "second", must[[]byte](t)(store.QueuePop(ctx, a, "q")), []byte("2"))
	same(t, "length", must[int64](t)(store.QueueLen(ctx, a, "q")), int64(0))
	got := make(chan string, 3)
	for range cap(got) {
		go func() {
			v, err := store.QueuePop(ctx, a, "q")
			got <- fmt.Sprint(string(v), err)
		}()
	}
	var all []string
	for i := range cap(got) {
		ok(t, store.QueuePush(ctx, b, "q", fmt.Append(nil, "v", i)))
		all = append(all, <-got)
	}
	same(t, "popped", all, []string{"v0<nil>", "v1<nil>", "v2<nil>"})
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := store.QueuePop(short, a, "q"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an empty queue gave %v", err)
	}
}

func (s suite) listKeys(t *testing.T) {
	ctx, a, b := s.start(t)
	ok(t, a.Set(ctx, "b", nil))
	ok(t, a.Set(ctx, "a/c", nil))
	keys, err := store.ListKeys(ctx, b)
	if s.opts.NoListKeys {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("want an error that wraps ErrUnsupported, got %v", err)
		}
		return
	}
	ok(t, err)
	same(t, "keys", keys, []string{"a/c", "b"})
	same(t, "keys of a prefix", must[[]string](t)(store.ListKeys(ctx, store.NewPrefix("a", b))), []string{"c"})
}

func (s suite) barrier(t *testing.T) {
	ctx, a, b := s.start(t)
	const n = 5
	passed := make(chan error, n)
	for i := range n - 1 {
		go func() { passed <- store.Barrier(ctx, []store.Store{a, b}[i%2], "gate", n) }()
	}
	// They are all counted, and none has passed. An Add of 0 or a Get would not
	// do to find out: on PyTorch's server the one wakes who stands at the
	// barrier, and the other is not woken by its arrivals.
	for counted := ""; counted != fmt.Sprint(n-1); {
		for _, key := range []string{"gate", "gate/num_members"} {
			if must[bool](t)(a.Check(ctx, key)) {
				counted = string(must[[]byte](t)(a.Get(ctx, key)))
			}
		}
	}
	select {
	case err := <-passed:
		t.Fatalf("one of %d passed a barrier of %d: %v", n-1, n, err)
	default:
	}
	ok(t, store.Barrier(ctx, a, "gate", n))
	for range n - 1 {
		ok(t, <-passed)
	}
	ok(t, store.Barrier(ctx, b, "alone", 1))
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := store.Barrier(short, a, "too few", 2); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("want a timeout, got %v", err)
	}
}

func (s suite) prefix(t *testing.T) {
	ctx, a, b := s.start(t)
	inner := store.NewPrefix("in", store.NewPrefix("out", a))
	ok(t, inner.Set(ctx, "k", []byte("v")))
	same(t, "nested key", must[[]byte](t)(b.Get(ctx, "out/in/k")), []byte("v"))
	same(t, "view", must[[]byte](t)(store.NewPrefix("out/in", b).Get(ctx, "k")), []byte("v"))
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	err := inner.Wait(short, "k", "missing")
	timeout, is := errors.AsType[*store.TimeoutError](err)
	if !is {
		t.Fatalf("want a timeout, got %v", err)
	}
	same(t, "missing", timeout.Missing, []string{"missing"})
	ok(t, inner.Close())
	ok(t, a.Set(ctx, "open", nil))
}

func (s suite) close(t *testing.T) {
	ctx, a, b := s.start(t)
	waiting := make(chan error, 1)
	go func() { waiting <- a.Wait(ctx, "never") }()
	ok(t, a.Close())
	if err := <-waiting; !errors.Is(err, store.ErrClosed) {
		t.Errorf("a waiter got %v", err)
	}
	if err := a.Set(ctx, "k", nil); !errors.Is(err, store.ErrClosed) {
		t.Errorf("set after close gave %v", err)
	}
	ok(t, a.Close())
	if !s.opts.OneHandle {
		ok(t, b.Set(ctx, "k", nil))
	}
}
