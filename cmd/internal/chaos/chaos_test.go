package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/commtest"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// TestMain makes the test binary a worker if it's started as one.
func TestMain(m *testing.M) {
	if os.Getenv("CHORUS_CHAOS_WORKER") != "" {
		if err := Work(os.Stdin, os.Stdout); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func campaign(t *testing.T, c Campaign) *Result {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("CHORUS_CHAOS_WORKER", "1")
	c.Command, c.Jobs = []string{self}, 2
	res, err := c.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if res.Rounds != c.Rounds {
		t.Errorf("%d of %d rounds", res.Rounds, c.Rounds)
	}
	return res
}

// clean are the faults of which CI wants to see no finding at all.
var clean = []FaultKind{None, Kill, Pause, Slow, Delay, Cut, Partition, Mismatch, Abort, Absent}

func TestVirtual(t *testing.T) {
	rounds := 500
	if commtest.Long() {
		rounds = 20000
	}
	res := campaign(t, Campaign{Mode: Virtual, Rounds: rounds, Seed: 1, Faults: clean})
	report(t, res)
	if res.Faults < rounds/2 {
		t.Errorf("%d faults in %d rounds", res.Faults, rounds)
	}
}

// Rounds in which the checker once found a wrong name where there was none.
func TestJudgedBefore(t *testing.T) {
	for what, seed := range map[string]uint64{
		"a rank that comes late to a communicator that broke without it": 5700531842,
	} {
		t.Run(what, func(t *testing.T) { report(t, campaign(t, Campaign{Mode: Virtual, Rounds: 1, Seed: seed})) })
	}
}

func TestReal(t *testing.T) {
	rounds := 20
	if commtest.Long() {
		rounds = 600
	}
	report(t, campaign(t, Campaign{Mode: Real, Rounds: rounds, Seed: 1, Faults: []FaultKind{None, Kill, Exhausted, Host}}))
}

// only runs a campaign of real rounds with one kind of fault, which each of them must have: so many rounds, or 50 in
// the long form.
func only(t *testing.T, kind FaultKind, seed uint64, rounds int) *Result {
	t.Helper()
	if commtest.Long() {
		rounds = 50
	}
	res := campaign(t, Campaign{Mode: Real, Rounds: rounds, Seed: seed, Faults: []FaultKind{kind}})
	report(t, res)
	if res.Faults != rounds {
		t.Errorf("%d faults in %d rounds", res.Faults, rounds)
	}
	return res
}

// Launchers whose links are cut return, and name each other.
func TestLaunchersApart(t *testing.T) {
	if res := only(t, Apart, 1, 3); res.DetectMS.Max > 10e3 {
		t.Errorf("found after %v ms", res.DetectMS)
	}
}

// Clients of a launcher that go away while they're answered cost it and its ranks nothing.
func TestDeserted(t *testing.T) { only(t, Deserted, 1, 2) }

// Launchers that stand still are missed, and return when they go on.
func TestSilent(t *testing.T) {
	testutil.SkipIfShort(t) // a heartbeat is a second
	only(t, Silent, 1, 2)
}

// The launchers that are left when the one dies that serves say so, also if their ranks fail first.
func TestUnserved(t *testing.T) { only(t, Unserved, 1, testutil.Pick(1, 4)) }

// Launchers meet at a name that resolves late.
func TestUnresolved(t *testing.T) { only(t, Unresolved, 12, testutil.Pick(1, 4)) }

// A rank that stands still and is left out keeps neither the others nor the launcher.
func TestLeftOut(t *testing.T) {
	testutil.SkipIfShort(t) // a timeout and a grace of a second
	only(t, LeftOut, 1, 2)
}

// The dumps of an earlier life of a job are no part of what the last one's tell.
func TestStale(t *testing.T) { only(t, Stale, 9, 1) }

// A campaign that is stopped in the middle of a round gives the result of those before, and finds nothing in that one.
func TestStopped(t *testing.T) {
	for _, mode := range []Mode{Virtual, Real} {
		began := filepath.Join(t.TempDir(), "began")
		if err := syscall.Mkfifo(began, 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		// For writing, too: it doesn't wait then, and no writer is without a reader.
		pipe, err := os.OpenFile(began, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer pipe.Close()
		go func() {
			pipe.Read(make([]byte, 1))
			stop()
		}()
		// It never answers.
		c := Campaign{Mode: mode, Rounds: 3, Seed: 1, Jobs: 2, Command: []string{"sh", "-c", "echo > " + began +
			"; exec cat > /dev/null"}}
		res, err := c.Run(ctx)
		if err != nil || res.Rounds != 0 || !res.Good() {
			t.Errorf("%s: %+v, %v", mode, res, err)
		}
	}
}

// A worker that ends is a finding, with what it has said; and a campaign that can't start another one gives the result
// of the rounds before.
func TestWorkersThatEnd(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	worker := filepath.Join(t.TempDir(), "worker")
	script := "#!/bin/sh\nrm \"$0\"\nsed -u 3q | CHORUS_CHAOS_WORKER=1 \"" + self + "\"\necho enough >&2\n"
	if err := os.WriteFile(worker, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	c := Campaign{Mode: Virtual, Rounds: 10, Seed: 1, Faults: []FaultKind{None}, Command: []string{worker}}
	res, err := c.Run(t.Context())
	if err == nil || res.Rounds != 4 || res.Hangs != 1 || len(res.Findings) != 1 ||
		!strings.Contains(res.Findings[0].Stuck, "the process ended: enough") {
		t.Errorf("%+v, %v", res, err)
	}
}

func report(t *testing.T, res *Result) {
	t.Helper()
	if !res.Good() {
		var b bytes.Buffer
		res.WriteText(&b)
		t.Error(b.String())
	}
}

// The same seed gives the same program.
func TestPrograms(t *testing.T) {
	seen := map[FaultKind]bool{}
	for seed := range uint64(300) {
		for _, mode := range []Mode{Virtual, Real} {
			p, q := Make(mode, seed, nil, nil), Make(mode, seed, nil, nil)
			if !reflect.DeepEqual(p, q) {
				t.Fatalf("seed %d gives two programs", seed)
			}
			seen[p.Fault.Kind] = true
		}
	}
	if len(seen) != len(FaultKinds) {
		t.Errorf("drawn: %v", seen)
	}
}

// A fabric that flips a bit of the data, which nothing below finds, gives wrong results; one that loses
// all messages without a word makes ranks wait, which must not count as harmless.
func TestTheCheckerFindsWhatIsWrong(t *testing.T) {
	wrong, misnamed := 0, 0
	for seed := range uint64(60) {
		p := Make(Virtual, seed, []FaultKind{Flip}, nil)
		p.Fault.Kind = corrupt
		o := Virtually(&p)
		o.judge()
		wrong += len(o.Wrong)
		p = Make(Virtual, seed, []FaultKind{Drop}, nil)
		o = Virtually(&p)
		p.Fault.Kind = Slow // says the judge's copy
		o.judge()
		misnamed += len(o.Misnamed)
	}
	if wrong == 0 || misnamed == 0 {
		t.Errorf("%d wrong results, %d errors that nothing should have given", wrong, misnamed)
	}
}

// The reports decide which counter a round goes into.
func TestJudge(t *testing.T) {
	p := Make(Virtual, 1, []FaultKind{Kill}, nil)
	p.Size, p.Comms = 3, []group{{[]int{0, 1, 2}}, {[]int{0, 1}}}
	p.Steps = []step{{Do: await}, {Do: await}, {Do: anySource, On: 1}}
	p.Fault = Fault{Kind: Kill, Rank: 2}
	lost := func(on, who int, kind string) Failure {
		return Failure{Comm: on, Kind: kind, Named: []int{who}, At: 2e6, Text: "chorus: x"}
	}
	late := func(on, who int) Failure {
		return Failure{Comm: on, Step: 1, Kind: "timeout", Named: []int{who}, Text: "late"}
	}
	good := func() []*Report {
		return []*Report{{Rank: 0, Failures: []Failure{lost(0, 2, "lost")}},
			{Rank: 1, Failures: []Failure{lost(0, 2, "lost")}}, {Rank: 2, Fired: 1e6}}
	}
	for name, c := range map[string]struct {
		change                 func(r []*Report)
		hangs, wrong, misnamed int
	}{
		"right":                   {func(r []*Report) {}, 0, 0, 0},
		"did not return":          {func(r []*Report) { r[1] = nil }, 1, 0, 0},
		"wrong result":            {func(r []*Report) { r[0].Wrong = []string{"7"} }, 0, 1, 0},
		"names another":           {func(r []*Report) { r[0].Failures[0] = lost(0, 1, "lost") }, 0, 0, 1},
		"another kind":            {func(r []*Report) { r[0].Failures[0] = lost(0, 2, "timeout") }, 0, 0, 1},
		"held up":                 {func(r []*Report) { r[0].Failures = append(r[0].Failures, late(1, 1)); r[1].Failures[0].Step = 0 }, 0, 0, 0},
		"held up later than that": {func(r []*Report) { r[0].Failures = append(r[0].Failures, late(1, 1)); r[1].Failures[0].Step = 2 }, 0, 0, 1},
		"held up in a receive from any": {func(r []*Report) {
			r[0].Failures = append(r[0].Failures, Failure{Comm: 1, Step: 2, Kind: "timeout"})
		}, 0, 0, 0},
		"in a receive from any by none": {func(r []*Report) {
			r[0].Failures = append(r[0].Failures, Failure{Comm: 1, Step: 2, Kind: "timeout"})
			r[1].Failures = nil
		}, 0, 0, 2},
		"held up by none":      {func(r []*Report) { r[0].Failures, r[1].Failures = []Failure{late(1, 1)}, []Failure{late(1, 0)} }, 0, 0, 2},
		"noticed nothing":      {func(r []*Report) { r[1].Failures = nil }, 0, 0, 1},
		"another communicator": {func(r []*Report) { r[1].Failures = append(r[1].Failures, lost(1, 0, "lost")) }, 0, 0, 1},
		"one that was never whole": {func(r []*Report) {
			r[0].Without = []int{1}
			r[1].Failures = append(r[1].Failures, lost(1, 0, "timeout"))
		}, 0, 0, 0},
		"never there is not lost":  {func(r []*Report) { r[0].Without = []int{1}; r[1].Failures = append(r[1].Failures, lost(1, 0, "lost")) }, 0, 0, 1},
		"the fault did not happen": {func(r []*Report) { r[2].Fired = 0 }, 0, 0, 2},
		"passes a right error on": {func(r []*Report) {
			r[1].Failures[0] = Failure{Kind: "aborted", Named: []int{0}, Text: "chorus: aborted: x"}
		}, 0, 0, 0},
		"passes two errors on": {func(r []*Report) {
			r[0].Failures[0].Text = "chorus: x\nchorus: z"
			r[1].Failures[0] = Failure{Kind: "aborted", Named: []int{0}, Text: "chorus: aborted: x\nz"}
		}, 0, 0, 0},
		"passes on what nobody got": {func(r []*Report) { r[1].Failures[0] = Failure{Kind: "aborted", Named: []int{0}, Text: "y"} }, 0, 0, 1},
	} {
		o := Outcome{Program: &p, Reports: good()}
		c.change(o.Reports)
		o.judge()
		if len(o.Hangs) != c.hangs || len(o.Wrong) != c.wrong || len(o.Misnamed) != c.misnamed {
			t.Errorf("%s: hangs %v, wrong %v, misnamed %v", name, o.Hangs, o.Wrong, o.Misnamed)
		}
		if name == "right" && !slices.Equal(o.Detect, []time.Duration{time.Millisecond, time.Millisecond}) {
			t.Errorf("detected after %v", o.Detect)
		}
	}
}

// The document has the fields that its readers rely on, and a page gets its table.
func TestResult(t *testing.T) {
	res := newResult(Campaign{Mode: Virtual, Seed: 9, Faults: []FaultKind{Kill}})
	p := Make(Virtual, 9, []FaultKind{Kill}, nil)
	res.add(&Outcome{Program: &p, Fired: true, Hangs: []string{"rank 0 did not return"},
		Detect: []time.Duration{3 * time.Millisecond, time.Millisecond, 2 * time.Millisecond}})
	res.end(time.Second)
	var b bytes.Buffer
	if err := res.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Rounds       int
		Faults       int
		Hangs        int
		WrongResults *int `json:"wrong_results"`
		Misnamed     *int
		DetectMS     Spread `json:"detect_ms"`
		Findings     []Finding
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || got.Rounds != 1 || got.Faults != 1 || got.Hangs != 1 ||
		*got.WrongResults != 0 || *got.Misnamed != 0 ||
		got.DetectMS != (Spread{2, 3, 3}) {
		t.Errorf("%v: %s", err, b.String())
	}
	if r := got.Findings[0].Replay; r != "go run ./cmd/chorus chaos --virtual --faults kill --rounds 1 --seed 9" {
		t.Errorf("replay: %s", r)
	}
	page := filepath.Join(t.TempDir(), "page.md")
	begin, end := markers(Virtual)
	os.WriteFile(page, []byte("above\n"+begin+"old\n"+end+"below\n"), 0o600)
	if err := res.WriteDocs(page); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(page)
	if s := string(text); !strings.HasPrefix(s, "above\n") || !strings.HasSuffix(s, "below\n") || strings.Contains(s,
		"old") || !strings.Contains(s, "| kill | mem | 1 | 1 | 2 | 3 | 3 |") {
		t.Errorf("the page became\n%s", s)
	}
	os.WriteFile(page, nil, 0o600)
	if res.WriteDocs(page) == nil {
		t.Error("a page without markers was changed")
	}
}

// collectivesOfThen leaves out the collectives that there weren't when the seeds below were found: with others a seed
// draws another program.
func collectivesOfThen(t *testing.T) {
	all := kinds
	kinds = kinds[:slices.Index(kinds, backend.Scan)]
	t.Cleanup(func() { kinds = all })
}

// then are the kinds of fault that there were when the seeds below were found: with others a seed draws another fault.
var then = []FaultKind{None, Kill, Stop, Pause, Late, Slow, Delay, Drop, Truncate, Flip, Cut, Partition, Mismatch,
	Abort, Exit, Absent, Exhausted}

// Rounds that campaigns have found something in, each of another kind: mended since.
func TestFound(t *testing.T) {
	collectivesOfThen(t)
	for _, seed := range []uint64{
		// Drop: a receiver from any rank reported a rank as lost that had only timed out.
		1118757, 602513, 540068, 513587, 1046462,
		30011999, // mismatch: the culprit called the very thing that the others did
		478420,   // mismatch: a rank that needed no message didn't take a large one, and no rank said so before the deadline
	} {
		for range 3 {
			p := Make(Virtual, seed, then, nil)
			o := Virtually(&p)
			o.judge()
			if o.Bad() || !o.Fired || p.Fault.Kind != Drop && p.Fault.Kind != Mismatch {
				t.Errorf("seed %d, %s: hangs %v, wrong %v, misnamed %v", seed, p.Fault.Kind, o.Hangs, o.Wrong, o.Misnamed)
			}
		}
	}
}

// A late rank doesn't arrive at a moment at which others time out: then no report could say whether it was there.
func TestLateIsLate(t *testing.T) {
	collectivesOfThen(t)
	for _, p := range []Program{Make(Virtual, 1162780, then, nil), Make(Virtual, 1, []FaultKind{Late}, nil),
		Make(Real, 1, []FaultKind{Late}, nil)} {
		if p.Fault.Kind != Late {
			t.Fatalf("seed %d: %s", p.Seed, p.Fault.Kind)
		}
		for on := range p.Comms {
			if p.Fault.Delay == p.timeout(on) {
				t.Errorf("seed %d, %s: %v late, where the others wait for %v", p.Seed, p.Mode, p.Fault.Delay, p.timeout(on))
			}
		}
	}
}

// A round repeats from its seed, but for what the runtime draws: timers of one instant, and selects.
func TestRepeats(t *testing.T) {
	const rounds = 100
	differing := 0
	for seed := range uint64(rounds) {
		var said [2]string
		for i := range said {
			p := Make(Virtual, seed, nil, nil)
			reports := Virtually(&p).Reports
			if p.Fault.Kind == Absent { // ranks give up 0.1 s apart, in an order that the runtime draws
				for _, rep := range reports {
					for k := range rep.Failures {
						rep.Failures[k].At, rep.Failures[k].Text = 0, ""
					}
				}
			}
			b, err := json.Marshal(reports)
			if err != nil {
				t.Fatal(err)
			}
			said[i] = string(b)
		}
		if said[0] != said[1] {
			differing++
		}
	}
	if differing > rounds/20 {
		t.Errorf("%d of %d rounds came out differently the second time", differing, rounds)
	}
}
