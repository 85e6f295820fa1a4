package tcp_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
)

// end is one rank of a benchmark: a message each way, used again and again.
type end struct {
	f       fabric.Fabric
	w       *fabric.Waiter
	in, out fabric.Msg
	a, b    []byte
}

func newEnd(f fabric.Fabric, n int) *end {
	e := &end{f: f, w: fabric.NewWaiter(fabric.NewAbort()), a: make([]byte, n), b: make([]byte, n)}
	e.w.Begin(nil, 0)
	return e
}

func (e *end) post(m *fabric.Msg, buf []byte) {
	m.Peer, m.Key = 1-e.f.Rank(), fabric.Key{Comm: 1, Class: fabric.PointToPoint}
	m.Buf, m.Len = unsafe.Pointer(unsafe.SliceData(buf)), len(buf)
	m.Reset(e.w)
}

func (e *end) recv() { e.post(&e.in, e.a); e.f.Recv(&e.in) }
func (e *end) send() { e.post(&e.out, e.b); e.f.Send(&e.out) }

func (e *end) wait(b *testing.B, m *fabric.Msg) {
	if err := e.f.Wait(m, e.w); err != nil {
		b.Error(err)
	}
}

// both runs body on two ranks.
func both(b *testing.B, n int, body func(e *end)) {
	ranks := world(b, 2, nil)
	defer func() {
		var wg sync.WaitGroup
		for _, f := range ranks {
			wg.Go(func() { f.Close(context.Background()) })
		}
		wg.Wait()
	}()
	ends := []*end{newEnd(ranks[0], n), newEnd(ranks[1], n)}
	var wg sync.WaitGroup
	wg.Go(func() { body(ends[1]) })
	b.ReportAllocs()
	body(ends[0])
	wg.Wait()
}

func BenchmarkPingPong(b *testing.B) {
	for _, n := range []int{8, 4 << 10, 64 << 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			both(b, n, func(e *end) {
				for range b.N {
					e.recv()
					if e.f.Rank() == 0 {
						e.send()
						e.wait(b, &e.in)
						e.wait(b, &e.out)
					} else {
						e.wait(b, &e.in)
						e.send()
						e.wait(b, &e.out)
					}
				}
			})
		})
	}
}

// BenchmarkStream sends one way.
func BenchmarkStream(b *testing.B) {
	for _, n := range []int{64 << 10, 1 << 20, 16 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(n))
			both(b, n, func(e *end) {
				for range b.N {
					if e.f.Rank() == 0 {
						e.send()
						e.wait(b, &e.out)
					} else {
						e.recv()
						e.wait(b, &e.in)
					}
				}
			})
		})
	}
}

// BenchmarkExchange sends both ways at once, as the steps of a ring do.
func BenchmarkExchange(b *testing.B) {
	for _, n := range []int{8, 64 << 10, 512 << 10, 8 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(n))
			both(b, n, func(e *end) {
				for range b.N {
					e.recv()
					e.send()
					e.wait(b, &e.in)
					e.wait(b, &e.out)
				}
			})
		})
	}
}
