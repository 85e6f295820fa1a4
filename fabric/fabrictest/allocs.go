//go:build !race

package fabrictest

import (
	"math"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// testAllocs exchanges messages and counts what all goroutines together allocate.
// The meetings around the count, and the runtime (threads, its own queues), allocate a
// little now and then, so that one count of several must be within the limit.
func testAllocs(t *testing.T, s *suite) {
	const rounds, counts, limit = 200, 4, 50
	for _, n := range testutil.Pick([]int{8, 4096, 200_000}, []int{8, 4096, 200_000, 1 << 20}) {
		var best atomic.Uint64
		best.Store(math.MaxUint64)
		each(t, s.world(t, 2), func(r *rank) {
			peer := 1 - r.Rank()
			var in, out fabric.Msg
			out = *r.message(peer, p2p(0), make([]byte, n))
			in = *r.message(peer, p2p(0), make([]byte, n))
			for count := 0; count <= counts && best.Load() > limit; count++ { // the first one only warms up
				var before, after runtime.MemStats
				r.meet(1)
				if r.Rank() == 0 {
					defer debug.SetGCPercent(debug.SetGCPercent(-1))
					runtime.ReadMemStats(&before)
				}
				r.meet(2)
				for range rounds {
					out.Reset(r.w)
					in.Reset(r.w)
					in.Peer, out.Peer = peer, peer
					r.Recv(&in)
					r.Send(&out)
					r.w.Begin(nil, patience)
					must(r.Wait(&in, r.w))
					must(r.Wait(&out, r.w))
				}
				r.meet(3)
				if r.Rank() == 0 && count > 0 {
					runtime.ReadMemStats(&after)
					best.Store(min(best.Load(), after.Mallocs-before.Mallocs))
				}
				r.meet(4)
			}
		})
		if best := best.Load(); best > limit {
			t.Errorf("%d exchanges of %d bytes: %d allocations", rounds, n, best)
		}
	}
}
