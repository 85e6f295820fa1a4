package comm_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// twins makes two communicators of two ranks each, the second one beside the first.
func twins(t *testing.T) (first, second []*comm.Comm) {
	t.Helper()
	st := store.NewHash(time.Minute)
	first, second = make([]*comm.Comm, 2), make([]*comm.Comm, 2)
	var wg sync.WaitGroup
	for r := range 2 {
		wg.Go(func() {
			var err error
			options := []comm.NewOption{comm.WithRank(r, 2), comm.WithStore(st), comm.WithTimeout(20 * time.Second)}
			if first[r], err = comm.New(t.Context(), options...); err == nil {
				second[r], err = comm.New(t.Context(), append(options, comm.WithName("twin"), comm.WithBeside(first[r]))...)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() {
		for r := range 2 {
			first[r].Finalize(context.Background())
			second[r].Finalize(context.Background())
		}
	})
	return first, second
}

// A failure of one of two communicators breaks the other one, with the same cause, on all ranks.
func TestBeside(t *testing.T) {
	for _, way := range []string{"first", "second"} {
		t.Run(way, func(t *testing.T) {
			a, b := twins(t)
			if way == "second" {
				a, b = b, a
			}
			var wg sync.WaitGroup
			for r := range 2 {
				wg.Go(func() {
					err := a[r].AllReduce(t.Context(), tensor.Of(make([]float32, 3+r)), comm.Sum)
					if !errors.Is(err, comm.ErrMismatch) {
						t.Errorf("rank %d: %v", r, err)
					}
					<-b[r].Broken()
					err = b[r].AllReduce(t.Context(), tensor.Of(make([]float32, 3)), comm.Sum)
					if !errors.Is(err, comm.ErrMismatch) {
						t.Errorf("rank %d, the other communicator: %v", r, err)
					}
				})
			}
			wg.Wait()
		})
	}
}

// The end of one is no failure of the other.
func TestBesideAfterItsEnd(t *testing.T) {
	first, second := twins(t)
	var wg sync.WaitGroup
	for r := range 2 {
		wg.Go(func() {
			if err := first[r].Finalize(t.Context()); err != nil {
				t.Error(err)
			}
			if err := second[r].AllReduce(t.Context(), tensor.Of(make([]float32, 3)), comm.Sum); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// New gives up when the communicator beside breaks, and says by what.
func TestBesideWhileBeginning(t *testing.T) {
	first, _ := twins(t)
	time.AfterFunc(50*time.Millisecond, func() { first[1].Abort(errors.New("enough")) })
	begin := time.Now()
	_, err := comm.New(t.Context(), comm.WithRank(0, 2), comm.WithStore(store.NewHash(time.Minute)), comm.WithName("late"),
		comm.WithBeside(first[0]), comm.WithTimeout(30*time.Second))
	if aborted := (*comm.AbortedError)(nil); !errors.As(err, &aborted) || aborted.By != 1 {
		t.Error(err)
	}
	if waited := time.Since(begin); waited > 15*time.Second {
		t.Errorf("it waited for %v", waited)
	}
}
