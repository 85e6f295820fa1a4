package record

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/tensor"
	"pgregory.net/rapid"
)

// TestPath compares the path with what the runtime says, while calls come from everywhere: from other depths, other
// lines, another stack.
func TestPath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRecorder(&Rank{}, "world", 0, []int{0}, 8)
		for _, way := range rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(0, 2), 0, 7), 1, 40).Draw(t, "ways") {
			var want [frames]uintptr
			moves := r.own.path.moves
			elsewhere := rapid.Bool().Draw(t, "elsewhere")
			if elsewhere {
				var wg sync.WaitGroup
				wg.Go(func() { twice(r, way, &want) })
				wg.Wait()
			} else {
				twice(r, way, &want)
			}
			expected, got := functions(want[:]), functions(r.own.trail.callers[:])
			if len(got) < len(expected) || !slices.Equal(got[:len(expected)], expected) {
				t.Fatalf("way %v: %q, want %q", way, got, expected)
			}
			if m := r.own.path.moves - moves; m > 1 && !elsewhere { // a new stack grows, and moves then
				t.Fatalf("moved %d times", m)
			}
		}
	})
}

//go:noinline
func twice(r *Recorder, way []int, want *[frames]uintptr) {
	for range 2 { // the second time it's the path
		along(r, way, want)
	}
}

// along calls the recorder from the end of a way, whose steps are made from different lines.
//
//go:noinline
func along(r *Recorder, way []int, want *[frames]uintptr) {
	switch {
	case len(way) == 0:
		method(r, want)
	case way[0] == 0:
		along(r, way[1:], want)
	case way[0] == 1:
		along(r, way[1:], want)
	default:
		deeper(r, way[1:], want)
	}
}

//go:noinline
func deeper(r *Recorder, way []int, want *[frames]uintptr) {
	var room [256]byte // other distances between the frames
	along(r, way, want)
	runtime.KeepAlive(&room)
}

// someBarrier is an operation without tensors.
var someBarrier = &backend.Op{Kind: backend.Barrier}

// method stands for one of a communicator, whose caller is looked for.
//
//go:noinline
func method(r *Recorder, want *[frames]uintptr) {
	r.Begin(someBarrier, false)
	n := runtime.Callers(2, want[:]) // without Callers and this one
	clear(want[n:])
}

// functions returns functions and lines of return addresses, without those that only the runtime itself knows of. No
// function on the way is inlined, as of one that is the recorder has no address.
func functions(pcs []uintptr) []string {
	var names []string
	for _, pc := range pcs {
		if pc == 0 {
			break
		}
		it := runtime.CallersFrames([]uintptr{pc})
		for more := true; more; {
			var f runtime.Frame
			if f, more = it.Next(); strings.HasPrefix(f.Function, "runtime.") {
				return names
			}
			names = append(names, fmt.Sprintf("%s:%d", f.Function, f.Line))
		}
	}
	return names
}

// TestLane has operations recorded while others read them: none may mix two, none be reported as over that isn't, and
// all that are kept are there. Descriptions repeat, and what they say tells which operation it is.
func TestLane(t *testing.T) {
	const entries = 16
	r := newRecorder(&Rank{}, "world", 0, []int{0}, entries)
	algorithms := []string{"direct", "ring", ""}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		var xs []*tensor.Tensor
		for n := range 50 {
			xs = append(xs, tensor.Of(make([]float32, n+1)))
		}
		for seq := uint64(1); ; seq++ {
			select {
			case <-stop:
				return
			default:
			}
			x := xs[seq/3%50] // three at a time
			op := &backend.Op{Kind: backend.AllReduce, In: x, Out: x, Reduce: backend.Reduction{Kind: backend.SumKind}}
			if seq%2 == 0 { // as a backend that launches; the others say nothing yet
				op.Seq = seq
			}
			id := r.Begin(op, false)
			op.Seq, op.Algorithm = seq, algorithms[seq/5%3]
			var err error
			if seq%7 == 0 {
				err = backend.ErrTimeout
			}
			r.End(id, op, err)
		}
	})
	for n := 0; n < testutil.Pick(2000, 300000); {
		runtime.Gosched()
		st, all := r.snapshot(0, timeline{1}, placer{})
		if st.Recorded > entries && len(all) == 0 {
			continue // overtaken by the writer
		}
		for i, e := range all {
			n++
			status := "ok"
			if e.Seq%7 == 0 {
				status = "timeout"
			}
			if i > 0 && e.Seq <= all[i-1].Seq {
				t.Fatalf("#%d after #%d", e.Seq, all[i-1].Seq)
			}
			if e.InSizes[0][0] != int(e.Seq/3%50)+1 {
				t.Fatalf("a mixed entry: %+v", e)
			}
			if e.Chorus.Status == "pending" {
				if i != len(all)-1 || e.Chorus.Algorithm != "" {
					t.Fatalf("entry %d of %d: %+v", i, len(all), e)
				}
			} else if e.Chorus.Status != status || e.Chorus.Algorithm != algorithms[e.Seq/5%3] {
				t.Fatalf("#%d: %+v", e.Seq, e)
			}
			if timed := e.Completed != nil; timed != (e.Chorus.Status != "pending" && (e.Seq%TimedPeriod == 0 || e.Seq%7 == 0)) {
				t.Fatalf("#%d: completed %v", e.Seq, timed)
			}
		}
	}
	close(stop)
	wg.Wait()
	if _, all := r.snapshot(0, timeline{1}, placer{}); len(all) != entries {
		t.Errorf("%d entries are kept, want %d", len(all), entries)
	}
}
