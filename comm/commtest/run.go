package commtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// Config says what to test.
type Config struct {
	// Open returns a communicator for each rank of a new world. The suite finalizes them.
	Open func(t testing.TB, size int) []*comm.Comm
	// Meet, if it isn't nil, says that each rank is a process of its own, which runs the suite by itself: Open returns
	// its communicator alone, and Meet returns when all ranks have called it, which goes beside the communicator.
	Meet func(t testing.TB)
	// Worlds are the world sizes; nil means 1, 2, 3, 4 (and 7, 8 in long runs, and 1, 3 in short ones).
	Worlds []int
	// Device says that Open's communicators are those of a device (comm.WithDevice). The suite then makes its tensors
	// there, a stream for each rank, and tests the features of streams instead of those that only the host has.
	Device bool
	// Ordinary leaves the long form out, though it was asked for.
	Ordinary bool
	// Limit is how long one world may be at one part of the suite before it counts as hung; 0: a minute.
	Limit time.Duration
	// Shared makes the suite use memory from Comm.Empty for half of its tensors.
	Shared bool
	// Uneven says that gather and scatter carry lists of several sizes out, which others refuse as mismatches.
	Uneven bool
	// Skip leaves parts out, by name, and ways of calling an operation: "replayed", "asynchronous and replayed".
	Skip []string
}

// Long reports whether the long form of the suite was asked for.
func Long() bool { return os.Getenv("CHORUS_TEST_LONG") == "1" }

func (c Config) long() bool { return Long() && !c.Ordinary }

func (c Config) worlds() []int {
	if c.Worlds != nil {
		return c.Worlds
	}
	if c.long() {
		return []int{1, 2, 3, 4, 7, 8}
	}
	return testutil.Pick([]int{1, 3}, []int{1, 2, 3, 4})
}

// Run runs the whole suite.
func Run(t *testing.T, c Config) {
	for _, part := range []struct {
		name  string
		run   func(*testing.T, Config)
		where place
	}{
		{"Collectives", Collectives, anywhere},
		{"InPlace", InPlace, anywhere},
		{"Algorithms", Algorithms, anywhere},
		{"Specials", Specials, anywhere},
		{"Batches", Batches, anywhere},
		{"PointToPoint", PointToPoint, anywhere},
		{"Split", Split, anywhere},
		{"Async", Async, anywhere},
		{"Hooks", Hooks, anywhere},
		{"Objects", Objects, anywhere},
		{"RefusedObjects", RefusedObjects, anywhere},
		{"Windows", Windows, onHost},
		{"Memory", Memory, anywhere},
		{"InvalidArguments", InvalidArguments, anywhere},
		{"Mismatches", Mismatches, anywhere},
		{"Timeouts", Timeouts, anywhere},
		{"Withdrawn", Withdrawn, anywhere},
		{"Leaving", Leaving, anywhere},
		{"Abort", Abort, anywhere},
		{"Lifecycle", Lifecycle, anywhere},
		{"RandomPrograms", RandomPrograms, anywhere},
		{"Streams", Streams, onDevice},
		{"StreamFailures", StreamFailures, onDevice},
		{"StreamWindows", StreamWindows, onDevice},
		{"Graphs", Graphs, onDevice},
		{"GraphsOfSeveral", GraphsOfSeveral, onDevice},
		{"StreamPrograms", StreamPrograms, onDevice},
	} {
		if slices.Contains(c.Skip, part.name) {
			continue
		}
		if part.where == anywhere || c.Device == (part.where == onDevice) {
			t.Run(part.name, func(t *testing.T) { part.run(t, c) })
		}
	}
}

// place says which communicators a part of the suite is for.
type place uint8

const (
	anywhere place = iota
	onHost
	onDevice
)

// limit bounds what one world does in one test: a hang fails, with all stacks.
func (c Config) limit() time.Duration { return cmp.Or(c.Limit, time.Minute) }

// world is an open world under test.
type world struct {
	t     *testing.T
	comms []*comm.Comm
	cfg   Config
}

// open opens a world and finalizes it at the end of the test.
func (c Config) open(t *testing.T, size int) *world {
	t.Helper()
	w := &world{t: t, comms: c.Open(t, size), cfg: c}
	if len(w.comms) != size && (c.Meet == nil || len(w.comms) != 1) {
		t.Fatalf("Open returned %d communicators for a world of %d", len(w.comms), size)
	}
	t.Cleanup(func() {
		w.each(func(ctx context.Context, c *comm.Comm) error {
			if err := c.Finalize(ctx); err != nil && !isFinalized(err) && c.Err() == nil {
				return fmt.Errorf("finalize: %w", err)
			}
			return nil
		})
	})
	return w
}

// noFailureReports reports that the ranks don't tell each other of failures: they do nothing, or their wire is another
// program's, on which a rank that gives up closes its connections and no more.
func (w *world) noFailureReports() bool {
	caps := w.comms[0].Capabilities()
	if caps.Foreign {
		w.t.Log("left out: the wire of backend", caps.Name, "tells of no failure")
	}
	return caps.NoOp || caps.Foreign
}

// run runs f on every rank at once and returns each rank's error.
func (w *world) run(f func(ctx context.Context, c *comm.Comm) error) []error {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), w.cfg.limit())
	defer cancel()
	errs := make([]error, len(w.comms))
	var wg sync.WaitGroup
	for r, c := range w.comms {
		wg.Go(func() {
			ctx, done, err := ownStream(ctx, c)
			if err == nil {
				err = errors.Join(f(ctx, c), done())
			}
			errs[r] = err
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(w.cfg.limit() + 30*time.Second):
		panic("commtest: a rank did not return although its context had ended")
	}
	return errs
}

// each is run for what must succeed on every rank.
func (w *world) each(f func(ctx context.Context, c *comm.Comm) error) {
	w.t.Helper()
	for i, err := range w.run(f) {
		if c := w.comms[i]; err != nil {
			w.t.Errorf("world of %d, rank %d: %v", c.Size(), c.Rank(), err)
		}
	}
}

// meeting returns what each rank calls once, or gives up: arrive says that it's there, and wait returns when all are.
func (w *world) meeting() (arrive, wait func()) {
	if w.cfg.Meet != nil {
		meet := sync.OnceFunc(func() { w.cfg.Meet(w.t) })
		return meet, meet
	}
	var all sync.WaitGroup
	all.Add(len(w.comms))
	return all.Done, all.Wait
}
