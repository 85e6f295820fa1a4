package shm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/hostmem"
)

const patience = 30 * time.Second

// exchange connects the ranks of one process.
func exchange(size int) func(rank int) func(context.Context, []byte) ([][]byte, error) {
	var mu sync.Mutex
	type round struct {
		all  [][]byte
		left int
		done chan struct{}
	}
	var rounds []*round
	return func(rank int) func(context.Context, []byte) ([][]byte, error) {
		next := 0
		return func(ctx context.Context, payload []byte) ([][]byte, error) {
			mu.Lock()
			if next == len(rounds) {
				rounds = append(rounds, &round{make([][]byte, size), size, make(chan struct{})})
			}
			r := rounds[next]
			next++
			r.all[rank] = payload
			if r.left--; r.left == 0 {
				close(r.done)
			}
			mu.Unlock()
			select {
			case <-r.done:
				return r.all, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}

func open(c fabric.Config) (*Fabric, error) {
	f, err := fabric.Open(context.Background(), Name, c)
	if err != nil {
		return nil, err
	}
	return f.(*Fabric), nil
}

// openAll opens every rank of a world in this process and returns what each got.
func openAll(size int, configure func(*fabric.Config)) ([]*Fabric, []error) {
	ranks, errs := make([]*Fabric, size), make([]error, size)
	x := exchange(size)
	var wg sync.WaitGroup
	for r := range size {
		wg.Go(func() {
			c := fabric.Config{Rank: r, Size: size, Exchange: x(r), HostID: "here", Timeout: patience}
			if configure != nil {
				configure(&c)
			}
			ranks[r], errs[r] = open(c)
		})
	}
	wg.Wait()
	return ranks, errs
}

func openWorld(t testing.TB, size int, options map[string]string) []*Fabric {
	t.Helper()
	ranks, errs := openAll(size, func(c *fabric.Config) { c.Options = options })
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return ranks
}

// closeAll closes the ranks at once.
func closeAll(t testing.TB, ranks []*Fabric) {
	t.Helper()
	if err := closeWorld(ranks); err != nil {
		t.Error(err)
	}
}

func closeWorld(ranks []*Fabric) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	errs := make([]error, len(ranks))
	var wg sync.WaitGroup
	for r, f := range ranks {
		wg.Go(func() { errs[r] = f.Close(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func newWaiter() *fabric.Waiter {
	w := fabric.NewWaiter(fabric.NewAbort())
	w.Begin(nil, patience)
	return w
}

func message(peer, tag int, buf []byte) *fabric.Msg {
	m := &fabric.Msg{Peer: peer, Key: fabric.Key{Comm: 1, Class: fabric.PointToPoint, Tag: uint64(tag)},
		Buf: unsafe.Pointer(unsafe.SliceData(buf)), Len: len(buf)}
	m.Reset(nil)
	return m
}

func post(f *Fabric, send bool, m *fabric.Msg) *fabric.Msg {
	if send {
		f.Send(m)
	} else {
		f.Recv(m)
	}
	return m
}

// each runs body for every rank at once.
func each(t testing.TB, ranks []*Fabric, body func(f *Fabric, w *fabric.Waiter) error) {
	t.Helper()
	errs := make([]error, len(ranks))
	var wg sync.WaitGroup
	for i, f := range ranks {
		wg.Go(func() {
			if err := body(f, newWaiter()); err != nil {
				errs[i] = fmt.Errorf("rank %d: %w", i, err)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// checkLeaks fails the test if it leaves goroutines, descriptors, segments or
// mappings behind. Call it first, so that it looks last.
func checkLeaks(t *testing.T) {
	t.Helper()
	hostmem.Trim()
	files, before := openFiles(t), hostmem.ReadStats()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		hostmem.Trim()
		if after := hostmem.ReadStats(); after.Segments != before.Segments || after.Mappings != before.Mappings {
			t.Errorf("%d segments and %d mappings are left of %d and %d", after.Segments, after.Mappings, before.Segments,
				before.Mappings)
		}
		if n := openFiles(t); n != files {
			t.Errorf("%d files are open; %d were at the start", n, files)
		}
		goleak.VerifyNone(t, ignore)
	})
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
