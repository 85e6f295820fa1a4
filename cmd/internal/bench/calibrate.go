package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kern"
	"github.com/chorus-comms/chorus/plan"
	"github.com/chorus-comms/chorus/plan/calibration"
	"github.com/chorus-comms/chorus/tensor"
)

const (
	busySync = 5e-6 // seconds for each rank of a synchronization that waited for a core

	smallBlock = 8       // bytes whose time is all latency
	largeBlock = 1 << 20 // bytes whose time is nearly all bandwidth
	// mostCalls bounds how much of a small operation's time is believed to be its call.
	mostCalls      = 8
	allLargeBlocks = 64 << 20  // most bytes of all ranks' large blocks together
	loopBytes      = 256 << 10 // of a buffer of the loops, which stays in a core's own cache
)

// thorough is how a calibration is made.
var thorough = calibrator{time: 20 * time.Millisecond, rounds: 5, tries: 3}

type calibrator struct {
	time   time.Duration // of each of the measurements
	rounds int           // of all of them; each one's best counts, since whatever disturbs only adds
	tries  int           // at finding the cores where they were when it began, and idle
}

// Calibrate measures what plan.Machine holds: on near the ways within each host, on far those between hosts. Both are
// communicators of the same ranks, near over shared memory where there is any ("auto"), far over TCP. All ranks call
// it; it takes about two seconds, and returns the same values on each. Values that these ranks can't measure, such as
// synchronizations on one host when each rank has its own host, stay at plan.DefaultMachine's.
//
// Each value is measured as the cost model uses it: with the operation whose time the model makes of it. The fields are
// those of the slowest rank, and host. Placement says whether they can be trusted: near or far, "moved" if the cores
// did all the time, crowded if something else kept them busy.
func Calibrate(ctx context.Context, near, far *comm.Comm) (calibration.Entry, error) {
	return thorough.run(ctx, near, far)
}

func (c calibrator) run(ctx context.Context, near, far *comm.Comm) (calibration.Entry, error) {
	e := calibration.Entry{Ranks: near.Size(), Date: time.Now().UTC().Format(time.RFC3339)}
	if near.Size() < 2 || far.Size() != near.Size() || far.Rank() != near.Rank() {
		return e, fmt.Errorf("bench: calibration needs two communicators of the same ranks, two at least; these have %d and %d", near.Size(), far.Size())
	}
	locals, err := sameHost(ctx, near)
	if err != nil {
		return e, err
	}
	host, err := near.Split(ctx, locals)
	if err != nil {
		return e, err
	}
	defer host.Finalize(ctx)
	for range c.tries {
		before, err := probed(ctx, near)
		if err != nil {
			return e, err
		}
		if e.Machine, e.Measured, err = c.calibrate(ctx, near, host, far); err != nil {
			return e, err
		}
		after, err := probed(ctx, near)
		if err != nil {
			return e, err
		}
		if e.Placement = after.Where; before.Where != after.Where {
			e.Placement = "moved"
			continue
		}
		if slices.Contains(e.Measured, "sync_s") && e.Machine.Sync > busySync*float64(e.Ranks) {
			e.Placement = Crowded
			continue
		}
		break
	}
	return e, nil
}

// sameHost returns the ranks that call themselves of this one's host.
func sameHost(ctx context.Context, c *comm.Comm) ([]int, error) {
	cfg, err := config.Load(nil)
	if err != nil {
		return nil, err
	}
	id := cfg.HostID
	if id == "" {
		if id, err = bootstrap.HostID(); err != nil {
			return nil, err
		}
	}
	ids, err := comm.AllGather(ctx, comm.Objects{C: c}, id)
	if err != nil {
		return nil, err
	}
	var locals []int
	for r, other := range ids {
		if other == id {
			locals = append(locals, r)
		}
	}
	return locals, nil
}

// probed tells all ranks how far apart rank 0's cores are.
func probed(ctx context.Context, c *comm.Comm) (Placement, error) {
	return (&Runner{ctx: ctx, c: c}).placement()
}

// timings are seconds of operations; 0 where these ranks can't show them.
type timings struct {
	barrier             float64 // of a host
	one, two            float64 // small all-reduces of a host, with one synchronization and with two
	near, far           linkTimings
	copyLoop, reduction float64 // of a buffer, with all ranks of the host at it
}

// linkTimings are of the ring all-gather of small and of large blocks, and of the gather of small blocks by single
// messages.
type linkTimings struct{ small, large, linear float64 }

func (t *timings) each() []*float64 {
	return []*float64{&t.barrier, &t.one, &t.two, &t.near.small, &t.near.large, &t.near.linear, &t.far.small, &t.far.large,
		&t.far.linear, &t.copyLoop, &t.reduction}
}

// least takes from each timing the lesser one.
func (t *timings) least(other timings) {
	for i, v := range t.each() {
		if o := *other.each()[i]; *v == 0 || o < *v {
			*v = o
		}
	}
}

// calibrate measures everything several times.
func (c calibrator) calibrate(ctx context.Context, near, host, far *comm.Comm) (m plan.Machine, measured []string,
	err error) {
	var t timings
	for range c.rounds {
		one, err := c.once(ctx, host, far)
		if err != nil {
			return m, nil, err
		}
		t.least(one)
	}
	// The slowest host's values hold for all; so do the fullest host's ranks, and the fewest cores.
	shape := []float64{float64(host.Size()), -float64(runtime.NumCPU())}
	values := shape
	for _, v := range t.each() {
		values = append(values, *v)
	}
	if err := near.AllReduce(ctx, tensor.Of(values), comm.Max); err != nil {
		return m, nil, err
	}
	for i, v := range t.each() {
		*v = values[len(shape)+i]
	}
	m, measured = t.machine(near.Size(), int(values[0]), int(-values[1]))
	return m, measured, m.Validate()
}

// once measures everything once.
func (c calibrator) once(ctx context.Context, host, far *comm.Comm) (t timings, err error) {
	if host.Size() > 1 {
		if host.Capabilities().SharedMem {
			if t.barrier, err = c.timeOf(ctx, host, "barrier", "onesided", 0, Ordinary); err != nil {
				return t, err
			}
			if t.one, err = c.timeOf(ctx, host, "all_reduce", "staged", smallBlock, Mapped); err != nil {
				return t, err
			}
			if t.two, err = c.timeOf(ctx, host, "all_reduce", "direct", smallBlock, Mapped); err != nil {
				return t, err
			}
		}
		if t.near, err = c.timeLink(ctx, host); err != nil {
			return t, err
		}
	}
	if t.far, err = c.timeLink(ctx, far); err != nil {
		return t, err
	}
	t.copyLoop, t.reduction, err = c.timeLoops(ctx, host)
	return t, err
}

// machine turns timings into the numbers that the cost model would have predicted them from.
func (t *timings) machine(world, perHost, cores int) (m plan.Machine, measured []string) {
	m = plan.DefaultMachine()
	crowd := max(1, float64(perHost)/float64(cores))
	call := 0.0 // what an operation takes besides: the model leaves it out, for it's the same whatever is chosen
	set := func(name string, field *float64, value float64) {
		*field = value
		measured = append(measured, name)
	}
	link := func(name string, l *plan.LinkCost, t linkTimings, n int, crowd float64) {
		if t.small == 0 {
			return
		}
		hops := float64(n - 1) // costRing: hops * (latency + block/bandwidth)
		set(name+".latency_s", &l.Latency, max(t.small-call, t.small/mostCalls)/hops)
		if more := t.large - t.small; more > 0 {
			set(name+".bytes_per_s", &l.Bandwidth, crowd*hops*float64(largeBlockOf(n)-smallBlock)/more)
		}
		// Rounds overlap, so that only the root's part is seen.
		set(name+".overhead_s", &l.Overhead, min(max(t.linear-call, t.linear/mostCalls)/hops, l.Latency))
	}
	if t.barrier > 0 && crowd == 1 {
		sync := t.two - t.one
		if sync < t.barrier/mostCalls || sync > t.barrier { // so close together that the clock decides
			sync = t.barrier / 2
		}
		set("sync_s", &m.Sync, sync)
		call = t.barrier - sync
	} else if t.barrier > 0 {
		set("crowded_sync_s", &m.CrowdedSync, t.barrier/float64(perHost))
	}
	link("local", &m.Local, t.near, perHost, crowd)
	link("remote", &m.Remote, t.far, world, 1)
	// A loop is over before its core goes to another rank.
	set("copy_bytes_per_s", &m.Copy, loopBytes/t.copyLoop)
	set("reduce_bytes_per_s", &m.Reduce, loopBytes/t.reduction)
	return m, measured
}

// largeBlockOf returns the bytes of a large block in a world of n.
func largeBlockOf(n int) int { return max(smallBlock*2, min(largeBlock, allLargeBlocks/n)) }

func (c calibrator) timeLink(ctx context.Context, on *comm.Comm) (t linkTimings, err error) {
	n := on.Size()
	if t.small, err = c.timeOf(ctx, on, "all_gather", "ring", n*smallBlock, Ordinary); err != nil {
		return t, err
	}
	if t.large, err = c.timeOf(ctx, on, "all_gather", "ring", n*largeBlockOf(n), Ordinary); err != nil {
		return t, err
	}
	t.linear, err = c.timeOf(ctx, on, "gather", "linear", n*smallBlock, Ordinary)
	return t, err
}

// timeOf returns the seconds of an operation by an algorithm.
func (c calibrator) timeOf(ctx context.Context, on *comm.Comm, op, algorithm string, bytes int,
	memory MemoryKind) (float64, error) {
	r, err := NewRunner(ctx, on, Config{Operation: op, Algorithm: algorithm, Min: bytes, Max: bytes, Memory: memory,
		Time: c.time})
	if err != nil {
		return 0, err
	}
	defer r.Free()
	row, err := r.Row(bytes, r.cfg.InPlace, 0, 0)
	if err == nil && row.Errors > 0 {
		err = fmt.Errorf("bench: %s by %s: %d wrong elements", op, algorithm, row.Errors)
	}
	return row.MedianUS * 1e-6, err
}

// timeLoops returns the seconds that a core needs to copy a buffer, and to add one to another, while the host's other
// ranks do the same: the slowest rank's.
func (c calibrator) timeLoops(ctx context.Context, host *comm.Comm) (copying, reducing float64, err error) {
	a, err1 := tensor.Zeros(dtype.Float32, loopBytes/4)
	b, err2 := tensor.Zeros(dtype.Float32, loopBytes/4)
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, err
	}
	r := &Runner{ctx: ctx, c: host, cfg: Config{Time: 4 * c.time}} // limit takes a quarter
	if copying, err = r.limit(copyPass(a, b)); err != nil {
		return 0, 0, err
	}
	both := []unsafe.Pointer{a.Pointer(), b.Pointer()}
	reducing, err = r.limit(func() {
		kern.Reduce(comm.Sum.Kind.Kernel(), dtype.Float32, both[:1], both, a.NumEl())
		runtime.KeepAlive(a)
		runtime.KeepAlive(b)
	})
	return copying, reducing, err
}
