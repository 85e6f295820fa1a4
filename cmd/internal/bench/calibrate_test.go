package bench

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/plan"
	"github.com/chorus-comms/chorus/store"
)

// TestCalibrate calibrates worlds in this process.
func TestCalibrate(t *testing.T) {
	for _, n := range []int{2, 3} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		st := store.NewHash(30 * time.Second)
		machines := make([]plan.Machine, n)
		var all sync.WaitGroup
		for r := range n {
			all.Go(func() {
				open := func(fabric string) *comm.Comm {
					c, err := comm.New(ctx, comm.WithRank(r, n), comm.WithStore(st), comm.WithFabric(fabric), comm.WithName(fabric))
					if err != nil {
						t.Error(err)
					}
					return c
				}
				near, far := open("auto"), open("tcp")
				if near == nil || far == nil {
					return
				}
				defer near.Finalize(ctx)
				defer far.Finalize(ctx)
				e, err := calibrator{time: time.Millisecond, rounds: 2, tries: 1}.run(ctx, near, far)
				if err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
				machines[r] = e.Machine
				for _, want := range []string{"local.latency_s", "local.bytes_per_s", "remote.latency_s", "remote.overhead_s",
					"copy_bytes_per_s", "reduce_bytes_per_s"} {
					if !slices.Contains(e.Measured, want) {
						t.Errorf("%s was not measured, only %v", want, e.Measured)
					}
				}
			})
		}
		all.Wait()
		if err := machines[0].Validate(); err != nil || machines[0] == plan.DefaultMachine() {
			t.Errorf("%v: %+v", err, machines[0])
		}
		for r, m := range machines {
			if m != machines[0] {
				t.Errorf("rank %d has %+v, rank 0 has %+v", r, m, machines[0])
			}
		}
	}
}

func TestCalibrateRefuses(t *testing.T) {
	ctx := t.Context()
	c, err := comm.New(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Finalize(ctx)
	if _, err := Calibrate(ctx, c, c); err == nil {
		t.Error("a world of one was calibrated")
	}
}

// TestTimingsFitTheModel lets the cost model of any machine predict the timings, from which that machine must come out
// again.
func TestTimingsFitTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		time := func(name string) float64 { return math.Pow(10, rapid.Float64Range(-8, -4).Draw(t, name)) }
		rate := func(name string) float64 { return math.Pow(10, rapid.Float64Range(8, 11.5).Draw(t, name)) }
		n, cores := rapid.IntRange(2, 9).Draw(t, "ranks"), rapid.IntRange(1, 9).Draw(t, "cores")
		want := plan.Machine{Cores: cores, Sync: time("sync"), CrowdedSync: time("crowded"), Copy: rate("copy"),
			Reduce: rate("reduce"),
			Local:  plan.LinkCost{Latency: time("near"), Bandwidth: rate("near bytes")},
			Remote: plan.LinkCost{Latency: time("far"),
				Bandwidth: rate("far bytes")}}
		want.Local.Overhead, want.Remote.Overhead = want.Local.Latency/3, want.Remote.Latency/2
		predict := func(c plan.Collective, algorithm string, block int, topo *plan.Topology) float64 {
			a, ok := plan.Lookup(c, algorithm)
			if !ok {
				t.Fatalf("no %v %s", c, algorithm)
			}
			return plan.Cost(a, plan.Request{Collective: c, World: n, Count: block, ElemSize: 1, StageBytes: 1 << 20,
				Topo: topo}, want)
		}
		oneHost := &plan.Topology{Host: make([]int, n)}
		crowd := max(1, float64(n)/float64(cores))
		link := func(topo *plan.Topology, l plan.LinkCost) linkTimings {
			return linkTimings{small: predict(plan.AllGather, "ring", smallBlock, topo), large: predict(plan.AllGather, "ring",
				largeBlockOf(n), topo),
				linear: float64(n-1) * l.Overhead}
		}
		call := rapid.Float64Range(0, 3).Draw(t, "call") * want.Sync // which the model leaves out
		if crowd > 1 {
			call = 0
		}
		later := func(l linkTimings) linkTimings { return linkTimings{l.small + call, l.large + call, l.linear + call} }
		sync := predict(plan.Barrier, "onesided", 0, oneHost)
		timings := timings{barrier: sync + call, one: sync + call, two: 2*sync + call, near: later(link(oneHost, want.Local)),
			far:      later(link(nil, want.Remote)),
			copyLoop: loopBytes / want.Copy, reduction: loopBytes / want.Reduce}
		got, measured := timings.machine(n, n, cores)
		check := func(name string, got, want float64) {
			if math.Abs(got-want) > 0.05*want {
				t.Errorf("%s is %g, was %g (measured %v)", name, got, want, measured)
			}
		}
		if crowd == 1 {
			check("sync", got.Sync, want.Sync)
		} else {
			check("crowded sync", got.CrowdedSync, want.CrowdedSync)
		}
		// A small block's bytes are taken for latency, so a link is only as well known as a block costs little beside it.
		hop := max(want.Local.Latency, barrierOf(want, n, crowd))
		if float64(smallBlock)*crowd/want.Local.Bandwidth < hop/50 && call < 6*hop {
			check("local latency", got.Local.Latency, hop)
			check("local bandwidth", got.Local.Bandwidth, want.Local.Bandwidth)
		}
		if float64(smallBlock)/want.Remote.Bandwidth < want.Remote.Latency/50 && call < want.Remote.Overhead {
			check("remote latency", got.Remote.Latency, want.Remote.Latency)
			check("remote bandwidth", got.Remote.Bandwidth, want.Remote.Bandwidth)
			check("remote overhead", got.Remote.Overhead, want.Remote.Overhead)
		}
		check("copy", got.Copy, want.Copy)
		check("reduce", got.Reduce, want.Reduce)
	})
}

// barrierOf is what a message between ranks of a host takes at least.
func barrierOf(m plan.Machine, n int, crowd float64) float64 {
	if crowd > 1 {
		return m.CrowdedSync * float64(n)
	}
	return m.Sync
}
