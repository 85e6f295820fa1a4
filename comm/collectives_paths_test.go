package comm_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/commtest"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/kern"
	"github.com/chorus-comms/chorus/tensor"
)

// path is a way for bytes that is forced, or ruled out, by hints: those of docs/fast-paths.md.
type path struct {
	name   string
	fabric string
	hints  map[string]string
	worlds []int // nil: two ranks, three ranks, or both in the long form
	device bool
	hosts  bool // ranks on two hosts, in turn
	// Algorithms that must have run, and must not have; and whether memory was mapped: always where it could be, never, or
	// either.
	runs, never []string
	mapped      string
}

const (
	// byMessages names for each collective an algorithm that uses messages only, which every fabric has. A name with a
	// question mark is a preference, for algorithms that can't serve every request: an uneven all-to-all has no staged
	// form, a split no second host.
	byMessages = "broadcast=binomial,reduce=binomial,all_reduce=ring,all_gather=ring,reduce_scatter=pairwise,all_to_all=pairwise," +
		"gather=linear,scatter=linear,barrier=dissemination"
	byStages = "staged?"
	byLevels = "two_level?"
)

var oneSided = []string{"direct", "staged", "staged_split", "onesided"}

var paths = []path{
	{name: "slots off", fabric: "shm", hints: map[string]string{"slots": "off"}},
	{name: "slots on", fabric: "shm", hints: map[string]string{"slots": "on"}},
	{name: "mapped on", fabric: "shm", hints: map[string]string{"mapped": "on"}, mapped: "on", runs: []string{"direct"}},
	{name: "mapped off", fabric: "shm", hints: map[string]string{"mapped": "off"}, mapped: "off",
		never: []string{"direct"}},
	{name: "stages on", fabric: "shm", hints: map[string]string{"mapped": "off", "algorithm": byStages}, mapped: "off",
		runs: []string{"staged"}},
	{name: "stages split", fabric: "shm", hints: map[string]string{"mapped": "off",
		"algorithm": "all_reduce=staged_split"}, runs: []string{"staged_split"}},
	{name: "stages without turns", fabric: "shm", hints: map[string]string{"mapped": "off", "stage_bytes": "8192"},
		mapped: "off"},
	{name: "stores bypass", fabric: "shm", hints: map[string]string{"mapped": "off", "stores": "bypass"}, mapped: "off"},
	{name: "stores cached", fabric: "shm", hints: map[string]string{"mapped": "off", "stores": "cached"}, mapped: "off"},
	{name: "messages, mapped", fabric: "shm", hints: map[string]string{"algorithm": byMessages}, never: oneSided},
	{name: "messages, pulled", fabric: "shm", hints: map[string]string{"algorithm": byMessages, "fabric.map": "off"},
		never: oneSided},
	{name: "messages, in pieces", fabric: "shm", hints: map[string]string{"algorithm": byMessages, "fabric.map": "off",
		"fabric.cma": "off"}, never: oneSided},
	{name: "waits spin", fabric: "shm", hints: map[string]string{"fabric.wait": "spin"}},
	{name: "waits yield", fabric: "shm", hints: map[string]string{"fabric.wait": "yield"}},
	{name: "waits block", fabric: "shm", hints: map[string]string{"fabric.wait": "block"}},
	{name: "tcp, one connection", fabric: "tcp", hints: map[string]string{"fabric.connections": "1"}, never: oneSided},
	{name: "tcp, four connections", fabric: "tcp", hints: map[string]string{"fabric.connections": "4"}, never: oneSided},
	{name: "tcp, announced", fabric: "tcp", hints: map[string]string{"fabric.eager": "0", "fabric.window": "0"},
		never: oneSided},
	{name: "tcp, pushed", fabric: "tcp", hints: map[string]string{"fabric.eager": "1048576", "fabric.buffer": "65536"},
		never: oneSided},
	{name: "shared memory off", fabric: "auto", hints: map[string]string{"fabric.near": "off"}, never: oneSided},
	{name: "two levels on", fabric: "auto", hosts: true, worlds: []int{3, 4},
		hints: map[string]string{"algorithm": byLevels}, runs: []string{"two_level"}},
	{name: "two levels off", fabric: "auto", hosts: true, worlds: []int{3, 4},
		hints: map[string]string{"algorithm": byMessages}, never: []string{"two_level"}},
	{name: "device, mapped on", fabric: "shm", device: true, hints: map[string]string{"mapped": "on"}, mapped: "on",
		runs: []string{"direct"}},
	{name: "device, mapped off", fabric: "shm", device: true, hints: map[string]string{"mapped": "off"}, mapped: "off",
		never: []string{"direct"}},
}

// TestPaths runs the conformance suite with every fast path forced on and forced off, on every instruction set of this
// processor. It runs a part of the suite with one instruction set after the other. With CHORUS_TEST_LONG=1 it runs all
// of the suite on each, which takes half an hour.
func TestPaths(t *testing.T) {
	testutil.SkipIfShort(t)
	levels := kern.Levels()
	for i, p := range paths {
		these := levels
		if !commtest.Long() {
			these = levels[i%len(levels):][:1]
		}
		for _, level := range these {
			if p.worlds == nil {
				if p.worlds = []int{2, 3}; !commtest.Long() {
					p.worlds = p.worlds[i/len(levels)%2:][:1]
				}
			}
			t.Run(p.name+"/"+level, func(t *testing.T) {
				defer kern.SetLevel(level)()
				p.run(t)
			})
		}
	}
}

func (p *path) run(t *testing.T) {
	var mu sync.Mutex
	algorithms := map[string]int{}
	var traffic comm.Traffic
	cfg := commtest.Config{Shared: true, Device: p.device, Worlds: p.worlds,
		Open: func(t testing.TB, size int) []*comm.Comm {
			comms := open(t, size, p.options)
			for _, c := range comms {
				hook := c.RegisterCompletionHook(func(i comm.OpInfo, _ error) {
					mu.Lock()
					defer mu.Unlock()
					algorithms[i.Algorithm]++
				})
				t.Cleanup(func() { // after the suite's own
					hook.Remove()
					mu.Lock()
					defer mu.Unlock()
					traffic.Mapped += c.Traffic().Mapped
					traffic.Staged += c.Traffic().Staged
				})
			}
			return comms
		}}
	long := commtest.Long()
	if long {
		t.Setenv("CHORUS_TEST_LONG", "") // all of the suite, in its usual sizes
		commtest.Run(t, cfg)
	} else {
		t.Run("InPlace", func(t *testing.T) { commtest.InPlace(t, cfg) })
		t.Run("PointToPoint", func(t *testing.T) { commtest.PointToPoint(t, cfg) })
		t.Run("RandomPrograms", func(t *testing.T) { commtest.RandomPrograms(t, cfg) })
	}
	// Every forced algorithm must have been used.
	seen := slices.Sorted(maps.Keys(algorithms))
	for _, name := range p.runs {
		if algorithms[name] == 0 {
			t.Errorf("%s has never run, only %v", name, seen)
		}
	}
	for _, name := range p.never {
		if algorithms[name] > 0 && !long { // the long form names every algorithm, and changes hints, itself
			t.Errorf("%s has run", name)
		}
	}
	if p.mapped == "on" && traffic.Mapped == 0 || p.mapped == "off" && traffic.Mapped > 0 && !long ||
		traffic.Mapped+traffic.Staged == 0 {
		t.Errorf("%s: %+v", p.mapped, traffic)
	}
}

func (p *path) options(rank int) []comm.NewOption {
	hints := maps.Clone(p.hints)
	if p.hosts {
		hints["host_id"] = fmt.Sprintf("host%d", rank%2)
	}
	opts := []comm.NewOption{comm.WithFabric(p.fabric), comm.WithHints(hints)}
	if p.device {
		opts = append(opts, comm.WithDevice(fmt.Sprintf("accinte:%d", rank%2)))
	}
	return opts
}

// ranks is how many ranks the path needs at least.
func (p *path) ranks() int {
	if p.worlds != nil {
		return p.worlds[0]
	}
	return 2
}

// TestPathsDoNotAllocate counts the allocations of a synchronous all-reduce, and of a broadcast, on every path of the
// host.
func TestPathsDoNotAllocate(t *testing.T) {
	testutil.SkipIfShort(t)
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	for _, p := range paths {
		if p.device {
			continue
		}
		comms := open(t, p.ranks(), p.options)
		for _, shared := range []bool{false, true} {
			for _, count := range []int{1, 1000, 100_000} {
				round, stop := lockstep(t, comms, allReduce, shared, count)
				n := steady(round)
				if n != 0 {
					t.Errorf("%s, shared=%v, %d elements: %v allocations", p.name, shared, count, n)
				}
				stop()
			}
		}
		finalize(t, comms)
	}
}

func allReduce(c *comm.Comm, x *tensor.Tensor) error {
	return c.AllReduce(context.Background(), x, comm.Sum)
}

// BenchmarkPaths is an all-reduce, and the broadcast that keeps the ranks in step, on every path of the host, on memory
// that can be mapped and other. docs/performance.md says how to compare two commits.
func BenchmarkPaths(b *testing.B) {
	for _, p := range paths {
		if p.device {
			continue
		}
		for _, memory := range []string{"mapped", "ordinary"} {
			for _, count := range []int{2, 16 << 10, 1 << 20} {
				b.Run(fmt.Sprintf("%s/%s/%d", p.name, memory, 4*count), func(b *testing.B) {
					comms := open(b, p.ranks(), p.options)
					round, stop := lockstep(b, comms, allReduce, memory == "mapped", count)
					for range 50 { // plans are made, connections opened
						round()
					}
					b.ReportAllocs()
					b.SetBytes(int64(4 * count))
					for b.Loop() {
						round()
					}
					stop()
					for _, c := range comms {
						c.Finalize(context.Background())
					}
				})
			}
		}
	}
}
