package engine

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/device/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A unit that becomes free goes to the highest level first, and within a level to the first request.
func TestUnitsByPriority(t *testing.T) {
	u := &units{free: 1, waiting: make([][]chan struct{}, 2)}
	u.acquire(0)
	order := make(chan int, 6)
	waiting := func() int {
		u.mu.Lock()
		defer u.mu.Unlock()
		return len(u.waiting[0]) + len(u.waiting[1])
	}
	for i, level := range []int{0, 1, 0, 1, 1, 0} {
		go func() {
			u.acquire(level)
			order <- i
			u.release()
		}()
		for waiting() != i+1 {
			runtime.Gosched() // until it's its turn to be queued, so that the order of coming is known
		}
	}
	u.release()
	var got []int
	for range 6 {
		got = append(got, <-order)
	}
	if want := []int{1, 3, 4, 0, 2, 5}; !slices.Equal(got, want) {
		t.Errorf("served in the order %v, want %v", got, want)
	}
	free := func() int {
		u.mu.Lock()
		defer u.mu.Unlock()
		return u.free
	}
	for free() != 1 { // the last still has to give its unit back
		runtime.Gosched()
	}
}

// A function that ends its goroutine, as a test's FailNow does, fails the stream and doesn't stop it, alone or in a
// graph.
func TestGoexit(t *testing.T) {
	e := New("test", &Space{}, Device{Units: 1, Levels: 1})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s, err := e.StreamCreate(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer e.StreamDestroy(s)
	gone := func() error { runtime.Goexit(); return nil }
	run := func(name string, enqueue func() error) {
		t.Helper()
		if err := enqueue(); err != nil {
			t.Fatal(err)
		}
		if err := e.StreamRecover(ctx, s); err == nil {
			t.Errorf("%s: no error", name)
		}
		ran := false
		e.HostFunc(s, "next", func() error { ran = true; return nil })
		if err := e.StreamSynchronize(ctx, s); err != nil || !ran {
			t.Errorf("%s: work after it ran: %v, %v", name, ran, err)
		}
	}
	run("function", func() error { return e.HostFunc(s, "gone", gone) })
	run("kernel", func() error { return e.Launch(s, "gone", nil, func([]unsafe.Pointer) error { return gone() }) })
	e.CaptureBegin(s)
	e.HostFunc(s, "gone", gone)
	g, err := e.CaptureEnd(s)
	if err != nil {
		t.Fatal(err)
	}
	x, err := e.Instantiate(g)
	if err != nil {
		t.Fatal(err)
	}
	defer e.GraphDestroy(g)
	defer e.ExecDestroy(x)
	run("graph", func() error { return e.GraphLaunch(x, s) })
	run("graph again", func() error { return e.GraphLaunch(x, s) })
	if e.devs[0].units.free != 1 {
		t.Error("a unit is lost")
	}
}

// An idle stream has no goroutine; TestMain sees to it that none is left.
func TestTimeoutNamesTheWork(t *testing.T) {
	e := New("test", &Space{}, Device{Units: 1, Levels: 1})
	s, _ := e.StreamCreate(0, 0)
	gate := make(chan struct{})
	e.HostFunc(s, "all_reduce #18", func() error { <-gate; return nil })
	e.HostFunc(s, "next", func() error { return nil })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	err := e.StreamSynchronize(ctx, s)
	close(gate)
	if err == nil {
		t.Fatal("no error")
	}
	var x *driver.Error
	if x, _ = err.(*driver.Error); x == nil || x.Kind != driver.ErrTimeout {
		t.Fatal(err)
	}
	for _, want := range []string{`"all_reduce #18"`, "2 more behind"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if err := e.StreamSynchronize(context.Background(), s); err != nil {
		t.Error(err)
	}
	e.StreamDestroy(s)
}

// The tasks that a stream keeps for reuse don't grow with the work that it has run.
func TestTasksAreReused(t *testing.T) {
	e := New("test", &Space{}, Device{Units: 1, Levels: 1})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	h, err := e.StreamCreate(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	v, err := e.EventCreate(0, false)
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.streams.Find("look", h)
	if err != nil {
		t.Fatal(err)
	}
	kept := func() (n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for spare := s.spare; spare != nil; spare = spare.next {
			n++
		}
		if n != s.spares {
			t.Errorf("%d tasks are kept, and counted as %d", n, s.spares)
		}
		return n
	}
	// Never more than 4 at a time: two functions, the record of an event, and that of the wait for the stream.
	for range 1000 {
		for _, err := range []error{
			e.HostFunc(h, "a", func() error { return nil }), e.EventRecord(v, h), e.HostFunc(h, "b",
				func() error { return nil }),
			e.StreamSynchronize(ctx, h),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := kept(); n > 4 {
		t.Errorf("%d tasks are kept of 4 at a time", n)
	}
	gate := make(chan struct{})
	hold := func() error { <-gate; return nil }
	for range 2 * mostSpares {
		if err := e.HostFunc(h, "many", hold); err != nil {
			t.Fatal(err)
		}
	}
	close(gate)
	if err := e.StreamSynchronize(ctx, h); err != nil {
		t.Fatal(err)
	}
	if n := kept(); n != mostSpares {
		t.Errorf("%d tasks are kept, want %d", n, mostSpares)
	}
	if err := e.StreamDestroy(h); err != nil {
		t.Fatal(err)
	}
}

// A look at a device, a wait whose context has ended, says that there is work to do, and not what another stream has
// failed with: the device isn't done.
func TestLookAtADevice(t *testing.T) {
	e := New("test", &Space{}, Device{Units: 1, Levels: 1})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	bad := errors.New("on purpose")
	for range 20 { // streams are looked at in any order
		var streams [2]driver.StreamHandle
		for i := range streams {
			var err error
			if streams[i], err = e.StreamCreate(0, 0); err != nil {
				t.Fatal(err)
			}
		}
		release := make(chan struct{})
		err := errors.Join(e.HostFunc(streams[0], "bad", func() error { return bad }),
			e.HostFunc(streams[1], "long", func() error { <-release; return nil }))
		if failed := e.StreamSynchronize(t.Context(), streams[0]); err != nil || !errors.Is(failed, bad) {
			t.Fatal(err, failed)
		}
		if err := e.Synchronize(over, 0); !errors.Is(err, driver.ErrCanceled) {
			t.Errorf("with work to do: %v", err)
		}
		close(release)
		if err := e.Synchronize(t.Context(), 0); !errors.Is(err, bad) {
			t.Errorf("in the end: %v", err)
		}
		if err := e.Synchronize(over, 0); !errors.Is(err, bad) {
			t.Errorf("a look at what is done: %v", err)
		}
		for _, s := range streams {
			if err := e.StreamDestroy(s); err != nil {
				t.Fatal(err)
			}
		}
	}
}
