// Package myplan adds an all-reduce that uses a ring in both directions at once.
//
// Every block is halved; the first halves travel to the right and the second
// ones to the left, so that both directions of every link are busy with half of
// the bytes each. Importing the package registers it:
//
//	import _ "example.com/thirdparty/myplan"
//
//	err := c.AllReduce(ctx, x, comm.Sum, comm.Algorithm(myplan.Name))
//
// Every rank must import it. It needs nothing but messages, so it runs on any fabric.
package myplan

import "github.com/chorus-comms/chorus/plan"

// Name is what a hint says.
const Name = "two_way_ring"

func init() {
	plan.Register(plan.Algorithm{
		Name: Name, Collective: plan.AllReduce, Doc: "a ring in both directions, half of the bytes each",
		Tags: []string{"large"}, Generate: generate,
	})
}

func generate(q plan.Request) (*plan.Plan, error) {
	return plan.Build(Name, q, func(b *plan.Builder) {
		n, me := b.World, b.Rank
		ways := []way{{n: n, count: b.Count, step: +1}, {n: n, count: b.Count, step: -1, second: true}}
		// Partial sums travel; after n-1 steps the block one further on is complete here.
		for s := range n - 1 {
			for _, w := range ways {
				off, size := w.block(me - s*w.step)
				from := b.Out(off)
				if s == 0 {
					from = b.In(off)
				}
				b.Send(w.rank(me+w.step), size, from)
			}
			for _, w := range ways {
				off, size := w.block(me - (s+1)*w.step)
				b.RecvReduce(w.rank(me-w.step), size, b.In(off), b.Out(off), s == n-2)
			}
			b.Wait()
		}
		// Complete blocks travel.
		for s := range n - 1 {
			for _, w := range ways {
				off, size := w.block(me + (1-s)*w.step)
				b.Send(w.rank(me+w.step), size, b.Out(off))
			}
			for _, w := range ways {
				off, size := w.block(me - s*w.step)
				b.Recv(w.rank(me-w.step), size, b.Out(off))
			}
			b.Wait()
		}
	})
}

// way is one direction around the ring, with the halves that travel it.
type way struct {
	n, count int
	step     int // +1: to the right
	second   bool
}

func (w way) rank(r int) int { return ((r % w.n) + w.n) % w.n }

// block returns where the half of block i that goes this way begins, and its size.
func (w way) block(i int) (off, size int) {
	i = w.rank(i)
	lo, hi := i*w.count/w.n, (i+1)*w.count/w.n
	mid := (lo + hi) / 2
	if w.second {
		return mid, hi - mid
	}
	return lo, mid - lo
}
