package shm

import (
	"context"
	"fmt"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/hostmem"
)

// benchSizes are small enough for a slot, for the ring, and large enough to be copied out of the sender's memory.
var benchSizes = []int{8, 4 << 10, 1 << 20}

func init() {
	bodies["echo"] = func(f *Fabric, w *fabric.Waiter) error { return echo(f, w, make([]byte, 1<<20)) }
	bodies["echo mapped"] = func(f *Fabric, w *fabric.Waiter) error {
		b, err := hostmem.AllocZero(1 << 20)
		if err != nil {
			return err
		}
		defer b.Free()
		return echo(f, w, b.Bytes())
	}
	bodies["barrier"] = func(f *Fabric, w *fabric.Waiter) error { return barriers(f, w, nil) }
}

// echo returns every message of rank 0 until an empty one comes.
func echo(f *Fabric, w *fabric.Waiter, buf []byte) error {
	m := message(0, 0, buf)
	for {
		m.Len = len(buf)
		m.Reset(w)
		f.Recv(m)
		w.Begin(nil, patience)
		if err := f.Wait(m, w); err != nil {
			return err
		}
		n := m.N
		if n == 0 {
			return nil
		}
		m.Len = n
		m.Reset(w)
		f.Send(m)
		if err := f.Wait(m, w); err != nil {
			return err
		}
	}
}

func BenchmarkPingPong(b *testing.B) {
	for _, kind := range []string{"mapped", "cma", "staged"} {
		for _, n := range benchSizes {
			b.Run(fmt.Sprintf("%s/%d", kind, n), func(b *testing.B) {
				body, options := "echo", map[string]string{}
				buf := make([]byte, n)
				switch kind {
				case "mapped":
					body = "echo mapped"
					block, err := hostmem.AllocZero(n)
					if err != nil {
						b.Fatal(err)
					}
					defer block.Free()
					buf = block.Bytes()
				case "staged":
					options["cma"] = "off"
				}
				j := startJob(b, 2, body, options)
				w := newWaiter()
				m := message(1, 0, buf)
				trip := func() {
					m.Reset(w)
					j.Send(m)
					w.Begin(nil, patience)
					if err := j.Wait(m, w); err != nil {
						b.Fatal(err)
					}
					m.Reset(w)
					j.Recv(m)
					if err := j.Wait(m, w); err != nil {
						b.Fatal(err)
					}
				}
				for range 100 {
					trip()
				}
				b.SetBytes(2 * int64(n))
				b.ReportAllocs()
				for b.Loop() {
					trip()
				}
				m.Len = 0
				m.Reset(w)
				j.Send(m)
				j.finish(b, 1)
			})
		}
	}
}

// barriers synchronizes until stop says so; the stage of rank 0 tells the others.
func barriers(f *Fabric, w *fabric.Waiter, more func() bool) error {
	sp, err := f.Space(context.Background(), 3, f.Locals(), 4096)
	if err != nil {
		return err
	}
	defer sp.Close()
	var desc fabric.Desc
	for seq := uint64(1); ; seq++ {
		w.Begin(nil, patience)
		if err := sp.Begin(w, seq, &desc, fabric.Place{}, fabric.Place{}); err != nil {
			return err
		}
		last := (*uint32)(sp.Inline(sp.Self()))
		*last = 0
		if more != nil && !more() {
			*last = 1
		}
		sp.Notify(1)
		if err := sp.AwaitAll(w, 1); err != nil {
			return err
		}
		over := *(*uint32)(unsafe.Pointer(sp.Inline(0))) != 0
		sp.End()
		if over {
			return nil
		}
	}
}

func BenchmarkSpaceBarrier(b *testing.B) {
	for _, size := range []int{2, 8} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			j := startJob(b, size, "barrier", nil)
			b.ReportAllocs()
			if err := barriers(j.Fabric, newWaiter(), b.Loop); err != nil {
				b.Fatal(err)
			}
			for r := 1; r < size; r++ {
				defer j.children[r].Wait()
			}
			j.finish(b)
		})
	}
}

// BenchmarkSpaceOpen opens and closes the space of three ranks, as New and every Split do.
func BenchmarkSpaceOpen(b *testing.B) {
	for _, stage := range []int{64 << 10, 8 << 20} {
		b.Run(fmt.Sprint(stage), func(b *testing.B) {
			ranks := openWorld(b, 3, nil)
			for comm := uint32(1); b.Loop(); comm++ {
				each(b, ranks, func(f *Fabric, _ *fabric.Waiter) error {
					sp, err := f.Space(context.Background(), comm, f.Locals(), stage)
					if err != nil {
						return err
					}
					return sp.Close()
				})
			}
		})
	}
}
