package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// halvesAndCrowds are the fast paths that no hint chooses: the type of the elements and the number of ranks do. Those
// that hints choose are in package comm.
var halvesAndCrowds = []struct {
	name  string
	dt    dtype.DType
	ranks int
}{
	{"f32", dtype.Float32, 2}, // to compare with
	{"bf16", dtype.BFloat16, 2},
	{"f16", dtype.Float16, 2},
	{"f8", dtype.Float8E4M3FN, 2},
	{"crowd", dtype.Float32, min(16, 4*runtime.NumCPU())},
}

// allReduces makes a world over shared memory in this process. Rank 0 hands its round to timed, in the caller's
// goroutine; the other ranks do n rounds, so timed must.
func allReduces(tb testing.TB, ranks int, dt dtype.DType, bytes int, memory MemoryKind, n int,
	timed func(round func())) {
	tb.Helper()
	const warmup = 20
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	st := store.NewHash(30 * time.Second)
	rank := func(r int, all func(round func() error) error) error {
		c, err := comm.New(ctx, comm.WithRank(r, ranks), comm.WithStore(st), comm.WithFabric("shm"))
		if err != nil {
			return err
		}
		defer c.Finalize(ctx)
		empty := tensor.Zeros
		if memory == Mapped {
			empty = c.Zeros
		}
		x, err := empty(dt, bytes/dt.Size())
		if err != nil {
			return err
		}
		defer x.Free()
		round := func() error { return c.AllReduce(ctx, x, comm.Sum) }
		for range warmup {
			if err := round(); err != nil {
				return err
			}
		}
		return all(round)
	}
	var others sync.WaitGroup
	done := make(chan struct{})
	end := sync.OnceFunc(func() { close(done) })
	for r := 1; r < ranks; r++ {
		others.Go(func() {
			err := rank(r, func(round func() error) error {
				for range n {
					if err := round(); err != nil {
						return err
					}
				}
				<-done // to finalize takes memory
				return nil
			})
			if err != nil {
				tb.Errorf("rank %d: %v", r, err)
			}
		})
	}
	err := rank(0, func(round func() error) (err error) {
		defer end()
		timed(func() {
			if failed := round(); failed != nil {
				err = failed
			}
		})
		return err
	})
	if err != nil {
		tb.Errorf("rank 0: %v", err)
	}
	end()
	others.Wait()
}

func TestHalvesAndCrowdsAllocateNothing(t *testing.T) {
	for _, p := range halvesAndCrowds {
		for _, memory := range []MemoryKind{Mapped, Ordinary} {
			for _, bytes := range []int{16, 64 << 10} {
				const rounds = 50
				allReduces(t, p.ranks, p.dt, bytes, memory, rounds+1, func(round func()) {
					if n := testing.AllocsPerRun(rounds, round); n != 0 {
						t.Errorf("%s, %s, %d bytes: %v allocations", p.name, memory, bytes, n)
					}
				})
			}
		}
	}
}

// BenchmarkAllReduce measures what BenchmarkPaths of package comm leaves out.
func BenchmarkAllReduce(b *testing.B) {
	for _, p := range halvesAndCrowds {
		for _, memory := range []MemoryKind{Mapped, Ordinary} {
			for _, bytes := range []int{16, 256 << 10, 4 << 20} {
				b.Run(fmt.Sprintf("%s/%s/%d", p.name, memory, bytes), func(b *testing.B) {
					b.ReportAllocs()
					b.SetBytes(int64(bytes))
					allReduces(b, p.ranks, p.dt, bytes, memory, b.N, func(round func()) {
						b.ResetTimer()
						for range b.N {
							round()
						}
						b.StopTimer()
					})
				})
			}
		}
	}
}
