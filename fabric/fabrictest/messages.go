package fabrictest

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/fabric"
)

func testIdentity(t *testing.T, s *suite) {
	ranks := s.world(t, 3)
	for i, r := range ranks {
		if r.Rank() != i || r.Size() != 3 {
			t.Errorf("fabric %d says it's rank %d of %d", i, r.Rank(), r.Size())
		}
		sh, ok := r.bare.(fabric.Sharer)
		if !ok {
			continue
		}
		if hosts := sh.Hosts(); len(hosts) != 3 || hosts[0] != 0 || !slices.Equal(hosts,
			ranks[0].bare.(fabric.Sharer).Hosts()) {
			t.Errorf("rank %d: hosts %v; rank 0's are %v", i, hosts, ranks[0].bare.(fabric.Sharer).Hosts())
		}
	}
}

// sizes are those at which fabrics change their ways.
func (s *suite) sizes() []int {
	return []int{0, 1, 3, 8, 47, 48, 49, 64, 1023, 1024, 1025, 4095, 4096, 4097, 16<<10 + 1,
		64<<10 - 1, 64 << 10, 64<<10 + 1, 256<<10 - 8, 1 << 20, 1<<20 + 3, s.large}
}

// testSizes sends every size, to a receive that was posted before, and to one
// that is posted after the message was sent.
func testSizes(t *testing.T, s *suite) {
	for _, posted := range []bool{true, false} {
		t.Run(fmt.Sprintf("posted=%v", posted), func(t *testing.T) {
			each(t, s.world(t, 2), func(r *rank) {
				for i, n := range s.sizes() {
					switch {
					case r.Rank() == 0 && posted:
						r.hear(1, i)
						r.wait(r.send(1, p2p(i), pattern(i, n)))
					case r.Rank() == 0:
						m := r.send(1, p2p(i), pattern(i, n))
						r.tell(1, i)
						r.wait(m)
					default:
						if !posted {
							r.hear(0, i)
						}
						buf := make([]byte, n)
						m := r.recv(0, p2p(i), buf)
						if posted {
							r.tell(0, i)
						}
						r.wait(m)
						expect(m, n, 0)
						verify(buf, i)
					}
				}
			})
		})
	}
}

// testShortMessage receives into a buffer that is longer than the message, and
// checks that the rest of it isn't touched.
func testShortMessage(t *testing.T, s *suite) {
	each(t, s.world(t, 2), func(r *rank) {
		for i, n := range []int{0, 5, 5000, 300_000} {
			if r.Rank() == 0 {
				r.wait(r.send(1, p2p(i), pattern(i, n)))
				continue
			}
			buf := pattern(99, n+4000)
			want := pattern(99, n+4000)
			m := r.recv(0, p2p(i), buf)
			r.wait(m)
			expect(m, n, 0)
			verify(buf[:n], i)
			if string(buf[n:]) != string(want[n:]) {
				fail("a message of %d bytes changed what lies behind it", n)
			}
		}
	})
}

// testOrderPerKey sends messages of mixed sizes under one key.
func testOrderPerKey(t *testing.T, s *suite) {
	const count = 120
	sizes := []int{0, 8, 200_000, 64, 70_000, 1, 1 << 20, 4000}
	each(t, s.world(t, 2), func(r *rank) {
		var ms []*fabric.Msg
		bufs := make([][]byte, count)
		for i := range count {
			n := sizes[i%len(sizes)]
			if r.Rank() == 0 {
				ms = append(ms, r.send(1, p2p(3), pattern(i, n)))
			} else {
				bufs[i] = make([]byte, n)
				ms = append(ms, r.recv(0, p2p(3), bufs[i]))
			}
			if i%16 == 15 {
				r.wait(ms...)
				ms = ms[:0]
			}
		}
		r.wait(ms...)
		if r.Rank() == 1 {
			for i, b := range bufs {
				verify(b, i)
			}
		}
	})
}

// testKeys receives in another order than what was sent: messages that differ in
// communicator, class or tag don't wait for each other.
func testKeys(t *testing.T, s *suite) {
	var keys []fabric.Key
	for _, comm := range []uint32{1, 2, 1 << 31} {
		for _, class := range []fabric.Class{fabric.Collective, fabric.PointToPoint, fabric.Internal} {
			for _, tag := range []uint64{0, 1, 1 << 63} {
				keys = append(keys, fabric.Key{Comm: comm, Class: class, Tag: tag})
			}
		}
	}
	for _, n := range []int{16, 100_000} {
		each(t, s.world(t, 2), func(r *rank) {
			var ms []*fabric.Msg
			for i, k := range keys {
				if r.Rank() == 0 {
					ms = append(ms, r.send(1, k, pattern(i, n)))
				}
			}
			for i := len(keys) - 1; i >= 0 && r.Rank() == 1; i-- {
				buf := make([]byte, n)
				r.wait(r.recv(0, keys[i], buf))
				verify(buf, i)
			}
			r.wait(ms...)
		})
	}
}

// testAnySource receives from any source, and checks that each sender's messages keep their order.
func testAnySource(t *testing.T, s *suite) {
	const per = 30
	each(t, s.world(t, 4), func(r *rank) {
		size := func(from, i int) int { return []int{8, 90_000, 0, 1500}[(from+i)%4] }
		if r.Rank() != 0 {
			var ms []*fabric.Msg
			for i := range per {
				ms = append(ms, r.send(0, p2p(1), pattern(1000*r.Rank()+i, size(r.Rank(), i))))
			}
			r.wait(ms...)
			return
		}
		next := make([]int, 4)
		for range 3 * per {
			buf := make([]byte, 90_000)
			m := r.recv(fabric.AnySource, p2p(1), buf)
			r.wait(m)
			if m.From < 1 || m.From > 3 {
				fail("message from rank %d", m.From)
			}
			i := next[m.From]
			next[m.From]++
			expect(m, size(m.From, i), m.From)
			verify(buf[:m.N], 1000*m.From+i)
		}
	})
}

// testAnySourceAndOne mixes receives from anyone with receives from one rank:
// the one that was posted first gets the message.
func testAnySourceAndOne(t *testing.T, s *suite) {
	each(t, s.world(t, 2), func(r *rank) {
		const count = 12
		if r.Rank() == 0 {
			r.hear(1, 0)
			for i := range count {
				r.wait(r.send(1, p2p(0), pattern(i, 100+i)))
			}
			return
		}
		var ms []*fabric.Msg
		var bufs [][]byte
		for i := range count {
			bufs = append(bufs, make([]byte, 200))
			from := 0
			if i%3 == 0 {
				from = fabric.AnySource
			}
			ms = append(ms, r.recv(from, p2p(0), bufs[i]))
		}
		r.tell(0, 0)
		r.wait(ms...)
		for i, m := range ms {
			expect(m, 100+i, 0)
			verify(bufs[i][:m.N], i)
		}
	})
}

func testSelf(t *testing.T, s *suite) {
	each(t, s.world(t, 2), func(r *rank) {
		for i, n := range []int{0, 9, 300_000} {
			buf := make([]byte, n)
			out := r.send(r.Rank(), p2p(i), pattern(i, n))
			in := r.recv(r.Rank(), p2p(i), buf)
			r.wait(in, out)
			expect(in, n, r.Rank())
			verify(buf, i)

			in = r.recv(fabric.AnySource, p2p(i), buf)
			out = r.send(r.Rank(), p2p(i), pattern(i+50, n))
			r.wait(in, out)
			expect(in, n, r.Rank())
			verify(buf, i+50)
		}
	})
}

// testFlood has everyone send to everyone much more than any link holds, before
// anyone receives.
func testFlood(t *testing.T, s *suite) {
	const each1 = 4
	n := s.large / 2
	each(t, s.world(t, 3), func(r *rank) {
		var ms []*fabric.Msg
		for p := range r.peers {
			for i := range each1 {
				ms = append(ms, r.send(p, p2p(i), pattern(100*r.Rank()+i, n)))
			}
		}
		bufs := map[[2]int][]byte{}
		for p := range r.peers {
			for i := range each1 {
				b := make([]byte, n)
				bufs[[2]int{p, i}] = b
				ms = append(ms, r.recv(p, p2p(i), b))
			}
		}
		r.wait(ms...)
		for k, b := range bufs {
			verify(b, 100*k[0]+k[1])
		}
	})
}

// testConcurrent lets several goroutines of each rank exchange messages at once.
func testConcurrent(t *testing.T, s *suite) {
	const goroutines, rounds = 6, 40
	each(t, s.world(t, 3), func(r *rank) {
		errs := make([]error, goroutines)
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				errs[g] = guard(func() {
					mine := *r
					mine.w = newWaiter()
					for i := range rounds {
						n := []int{4, 3000, 120_000}[(i+g)%3]
						next, prev := (r.Rank()+1)%3, (r.Rank()+2)%3
						buf := make([]byte, n)
						out := mine.send(next, p2p(g), pattern(r.Rank()*1000+i, n))
						in := mine.recv(prev, p2p(g), buf)
						mine.wait(in, out)
						verify(buf, prev*1000+i)
					}
				})
			})
		}
		wg.Wait()
		for _, err := range errs {
			must(err)
		}
	})
}
