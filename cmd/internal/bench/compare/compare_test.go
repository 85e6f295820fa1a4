package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/cmd/internal/bench"
)

// The harness starts its own executable as ranks and as the guard: here that's the test's.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "worker" || os.Args[1] == "guard") {
		if err := newCommand().ExecuteContext(context.Background()); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestMedianAndMean(t *testing.T) {
	for _, x := range []struct {
		values       []float64
		median, mean float64
	}{
		{nil, 0, 0}, {[]float64{3}, 3, 3}, {[]float64{8, 2}, 5, 4}, {[]float64{9, 1, 3}, 3, 3},
	} {
		if m := median(x.values); m != x.median {
			t.Errorf("median of %v: %v", x.values, m)
		}
		if g := geomean(x.values); math.Abs(g-x.mean) > 1e-9 {
			t.Errorf("geometric mean of %v: %v", x.values, g)
		}
	}
	v := []float64{3, 1, 2}
	if median(v); v[0] != 3 {
		t.Error("median sorted its argument")
	}
}

func TestPlan(t *testing.T) {
	for _, x := range []struct {
		each   float64
		refill bool
		want   schedule
	}{
		{1.1e-6, false, schedule{500, 200, 19}},
		{1e-3, false, schedule{8, 8, 1}},
		{1, false, schedule{1, fewestBlocks, 1}},
		{1.1e-6, true, schedule{500, mostBlocks, 1}},
		{0, false, schedule{500, 200, 2001}},
	} {
		if got := plan(8*time.Millisecond, x.each, x.refill); got != x.want {
			t.Errorf("%+v: %+v", x, got)
		}
	}
	if line := (schedule{1, 2, 3}).command("all_reduce", 64, true, false, true,
		"mapped f32"); line != "run all_reduce 64 1 0 1 2 3 1 mapped f32" {
		t.Error(line)
	}
}

func at(where, series string, round int, us float64) burst {
	return burst{Measure: "all_reduce", Op: "all_reduce", Bytes: mib, Where: where, Series: series, Round: round, US: us,
		Before: 50, After: 50}
}

func TestPoolComparesLikeWithLike(t *testing.T) {
	inPlace := at("near", "chorus.mapped", 0, 5)
	inPlace.InPlace, inPlace.LimitUS = true, 4
	wrong := at("near", "impi", 0, 1)
	wrong.Wrong = 1
	bursts := []burst{
		at("near", "chorus.mapped", 0, 10), at("near", "chorus.mapped", 1, 12), inPlace,
		at("near", "impi", 0, 30), at("near", "impi", 1, 20), at("near", "impi", 2, 10),
		at("near", "ompi4", 0, 25), at("far", "ompi4", 0, 1), at("", "ompi4", 1, 1), wrong,
	}
	p := poolBursts(bursts)
	c := cell{"all_reduce", "near", "all_reduce", mib}
	if f := p[c]["chorus.mapped"]; f.us != 5 || !f.inPlace || f.bursts != 3 || f.limitUS != 4 {
		t.Errorf("the faster form: %+v", f)
	}
	if f := p[c]["impi"]; f.us != 20 || f.bursts != 3 {
		t.Errorf("median of the right ones: %+v", f)
	}
	if name, f, ok := p.best(c, isPeers); name != "impi" || f.us != 20 || !ok {
		t.Errorf("envelope: %s %+v", name, f)
	}
	if name, _, _ := p.best(c, isOf("ompi")); name != "ompi4" {
		t.Errorf("best Open MPI: %s", name)
	}
	if _, _, ok := p.best(c, isOf("gloo")); ok {
		t.Error("a best of nothing")
	}
	if got := p.placements(); !slices.Equal(got, []string{"far", "near"}) {
		t.Errorf("placements %v", got)
	}
	ours := figure{byRound: map[int]float64{0: 10, 1: 10, 7: 1}}
	if r := ratioByRound(ours, p[c]["impi"]); r != 2.5 {
		t.Errorf("ratio by round: %v", r)
	}
	if r := ratioByRound(figure{}, p[c]["impi"]); r != 0 {
		t.Errorf("ratio of nothing: %v", r)
	}
}

func TestPrune(t *testing.T) {
	g := &group{}
	var active []entrant
	for _, name := range []string{"chorus.mapped", "impi", "gloo", "far", "gone"} {
		active = append(active, entrant{series: series{name: name, group: g}})
	}
	active[4].group = nil
	left := prune(active, []burst{at("near", "chorus.mapped", 0, 1000), at("near", "impi", 0, 10), at("near", "gloo", 0,
		50), at("far", "far", 0, 60)}, 4)
	var names []string
	for _, e := range left {
		names = append(names, e.name)
	}
	if !slices.Equal(names, []string{"chorus.mapped", "impi", "far"}) {
		t.Errorf("left are %v", names)
	}
	// One slow burst of two is none that counts.
	twice := []burst{at("near", "impi", 0, 10), at("near", "far", 0, 60), at("near", "impi", 1, 90), at("near", "far", 1,
		15), at("near", "chorus.mapped", 0, 99)}
	if left := prune(left, twice, 2); len(left) != 3 {
		t.Errorf("left are %d", len(left))
	}
}

// Long bursts are measured only for entrants with a chance, in their faster form.
func TestNarrow(t *testing.T) {
	g := &group{}
	m := &measure{name: "all_reduce", sizes: []int{mib, longBytes}}
	var all []entrant
	for _, name := range []string{"chorus.mapped", "impi", "gloo", "new"} {
		all = append(all, entrant{series{name: name, group: g}, false}, entrant{series{name: name, group: g}, true})
	}
	h := &harness{}
	for i, us := range []float64{9, 10, 5, 4, 50, 60} {
		b := at("near", all[i].name, 0, us)
		b.InPlace = all[i].inPlace
		h.bursts = append(h.bursts, b)
	}
	if left := h.narrow(m, "all_reduce", mib, slices.Clone(all)); len(left) != len(all) {
		t.Errorf("of a short burst's %d are left", len(left))
	}
	var got []string
	for _, e := range h.narrow(m, "all_reduce", longBytes, slices.Clone(all)) {
		got = append(got, fmt.Sprint(e.name, e.inPlace))
	}
	if want := []string{"chorus.mappedfalse", "impitrue", "newfalse", "newtrue"}; !slices.Equal(got, want) {
		t.Errorf("left are %v, want %v", got, want)
	}
}

// A ration's parts follow the weights, whichever part took too long, and end at the deadline.
func TestRation(t *testing.T) {
	deadline := time.Now().Add(time.Hour)
	r := ration{deadline: deadline, left: 4}
	for i, x := range []struct{ weight, part float64 }{{1, 1.0 / 4}, {1, 1.0 / 3}, {1.5, 0.75}, {0.5, 1}, {7, 1}} {
		got := time.Until(r.next(x.weight)).Hours() / time.Until(deadline).Hours()
		if math.Abs(got-x.part) > 1e-3 {
			t.Errorf("part %d is %.3f of what was left, want %.3f", i, got, x.part)
		}
	}
	r = ration{deadline: time.Now().Add(-time.Second), left: 2}
	if r.next(1).After(time.Now()) {
		t.Error("there was time after the deadline")
	}
}

// The search for cells that lack bursts stays in the current placement, and begins with the measure whose ranks are
// running.
func TestLacking(t *testing.T) {
	a := &measure{name: "all_reduce", ops: []string{"all_reduce"}, sizes: []int{mib}, ours: mapped}
	b := &measure{name: "dtypes", ops: []string{"all_reduce"}, sizes: []int{kib, mib}, ours: mapped, alone: true}
	asked := []*measure{a, b}
	h := &harness{max: mib}
	p := poolBursts([]burst{at("near", "chorus.mapped", 0, 1), at("near", "chorus.mapped", 1, 1), at("near", "impi", 0, 1),
		at("far", "chorus.mapped", 2, 1)})
	tried := map[cell]int{}
	if m, c, _ := h.lacking(p, asked, nil, "near", tried); m != b || c.bytes != kib {
		t.Errorf("near, %+v lacks bursts first", c)
	}
	if m, _, _ := h.lacking(p, asked, b, "far", tried); m != b {
		t.Error("the ranks that run were not preferred")
	}
	m, c, _ := h.lacking(p, asked, a, "far", tried)
	if m != a || c != (cell{"all_reduce", "far", "all_reduce", mib}) {
		t.Errorf("far, %+v lacks bursts first", c)
	}
	tried[c] = topUpTries
	if m, _, _ := h.lacking(p, asked, a, "far", tried); m == a {
		t.Error("it was tried without end")
	}
	for _, size := range b.sizes {
		tried[cell{"dtypes", "far", "all_reduce", size}] = topUpTries
		tried[cell{"dtypes", "near", "all_reduce", size}] = topUpTries
	}
	if h.anyLacking(p, asked, tried) {
		t.Error("what was tried often enough still lacks")
	}
}

func TestJudge(t *testing.T) {
	tgt := target{"x", 3, 1.4, againstPeers("all_reduce", "chorus.mapped", nil, isPeers, 256*kib, 256*mib)}
	two := func(small, large float64) pool {
		a, b := at("near", "impi", 0, small), at("near", "impi", 0, large)
		b.Bytes = 4 * mib
		o := at("near", "chorus.mapped", 0, 1)
		o2 := o
		o2.Bytes = b.Bytes
		tiny := at("near", "impi", 0, 0.1) // outside the bounds
		tiny.Bytes = 8
		again := o
		again.Round = 1
		again2 := again
		again2.Bytes = b.Bytes
		return poolBursts([]burst{a, b, o, o2, again, again2, tiny})
	}
	for _, x := range []struct {
		p       pool
		where   string
		verdict string
		says    string
	}{
		{two(3.5, 4), "near", pass, "3.50 at 1 MiB (impi), mean 3.74"},
		{two(9, 1.3), "near", fail, "1.30 at 4 MiB"},
		{two(2, 2), "near", fail, "mean 2.00"},
		{two(2, 2), "far", skipped, "never far"},
		{poolBursts([]burst{at("near", "chorus.mapped", 0, 1)}), "near", skipped, "no peer"},
		{poolBursts([]burst{at("near", "impi", 0, 1)}), "near", skipped, "not measured"},
		{poolBursts([]burst{at("near", "impi", 0, 9), at("near", "chorus.mapped", 0, 1)}), "near", skipped, "too few"},
		{poolBursts([]burst{at("near", "impi", 0, 9), at("far", "ompi4", 0, 9), at("far", "ccl", 0, 9),
			at("near", "chorus.mapped", 0, 1), at("near", "chorus.mapped", 1, 1)}),
			"near", skipped, "too few"},
	} {
		v := tgt.judge(x.p, x.where)
		if v.Verdict != x.verdict || !strings.Contains(v.Reached+v.Reason, x.says) {
			t.Errorf("want %s %q, got %+v", x.verdict, x.says, v)
		}
	}
	o := at("near", "chorus.mapped", 0, 10)
	o.LimitUS = 9
	if points, _ := againstLimit(poolBursts([]burst{o, o}), "near"); len(points) != 1 || points[0].Ratio != 0.9 {
		t.Errorf("share of the limit: %+v", points)
	}
	if v := judgeAllocs(map[string]float64{"all_reduce": 0, "barrier": 2}); v.Verdict != fail ||
		v.Reached != "2 (barrier)" {
		t.Errorf("%+v", v)
	}
	if v := judgeAllocs(map[string]float64{"all_reduce": 0}); v.Verdict != pass {
		t.Errorf("%+v", v)
	}
	if v := judgeAllocs(nil); v.Verdict != skipped {
		t.Errorf("%+v", v)
	}
	if got, want := len(judge(pool{}, nil)), 2*len(targets)+1; got != want {
		t.Errorf("%d verdicts, want %d", got, want)
	}
}

func TestCombine(t *testing.T) {
	a, err := combine([]answer{{US: []float64{1, 9, 2}, Wrong: 1, LimitUS: 3}, {US: []float64{4, 5, 6}, Wrong: 2,
		Algorithm: "direct"}})
	if err != nil || a.US[0] != 5 || a.Wrong != 3 || a.LimitUS != 3 || a.Algorithm != "direct" {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := combine([]answer{{US: []float64{1}}, {Error: "none"}}); !errors.Is(err, errUnsupported) {
		t.Error(err)
	}
}

func TestSettingsNamePeers(t *testing.T) {
	seen := map[string]bool{}
	for i := range settings {
		s := &settings[i]
		if s.peer().name != peerOf(s.name) || seen[s.name] {
			t.Errorf("%s", s.name)
		}
		seen[s.name] = true
	}
	if !isMPI("ompi4.ucx") || isMPI("gloo") || isMPI("chorus.mapped") || !isOurs("chorus.mapped") {
		t.Error("who is an MPI, and who is ours")
	}
}

func TestWatchKillsWhatIsLeft(t *testing.T) {
	var killed []int
	kill := func(pid int) { killed = append(killed, pid) }
	if err := watch(strings.NewReader("+10\n+11\n-10\n"), kill); err != nil || !slices.Equal(killed, []int{11}) {
		t.Errorf("%v, killed %v", err, killed)
	}
	for _, bad := range []string{"+1\n", "*5\n", "+x\n", "\n", "+-7\n"} {
		if watch(strings.NewReader(bad), kill) == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestJoin(t *testing.T) {
	a := &report{Seconds: 1, Bursts: []burst{at("near", "impi", 0, 1), at("near", "impi", 4, 1)},
		Allocs: map[string]float64{"barrier": 0},
		Peers:  []found{{Peer: "impi"}, {Peer: "gloo", Skipped: "x"}}}
	b := &report{Seconds: 2, Bursts: []burst{at("near", "impi", 0, 1)}, Failures: map[string]string{"ccl": "y"},
		Peers: []found{{Peer: "impi", Skipped: "not asked for"}, {Peer: "gloo"}}}
	b.join(a)
	if len(b.Bursts) != 3 || b.Bursts[2].Round != 5 || b.Seconds != 3 || b.Peers[0].Skipped != "" ||
		b.Peers[1].Skipped != "" {
		t.Errorf("%+v", b)
	}
	if _, ok := b.Allocs["barrier"]; !ok || b.Failures["ccl"] != "y" {
		t.Errorf("%+v", b)
	}
}

func TestFirstWordsNameNoFolders(t *testing.T) {
	for in, want := range map[string]string{
		"status 127:\n/srv/x/.peers/bin/mpi.x: libmpi.so.12 missing": "status 127: mpi.x: libmpi.so.12 missing",
		`exec "/srv/x/y": not found (see https://host/a/b)`:          `exec "y": not found (see https://host/a/b)`,
		"no network": "no network",
	} {
		if got := firstWords(in); got != want {
			t.Errorf("%q became %q, not %q", in, got, want)
		}
	}
}

func TestReportGoesRoundAndIntoDocs(t *testing.T) {
	dir := t.TempDir()
	r := &report{Date: "2026-11-21", Bursts: []burst{at("near", "impi", 0, 30), at("near", "chorus.mapped", 0, 10),
		at("near", "chorus.mapped", 1, 10)},
		Peers:    []found{{Peer: "ccl", Title: "oneCCL", Skipped: "no network"}},
		Failures: map[string]string{"ompi4": "did\nnot start"}}
	r.Verdicts = judge(poolBursts(r.Bursts), nil)
	path := filepath.Join(dir, "c.json")
	if err := r.write(path); err != nil {
		t.Fatal(err)
	}
	back, err := readReport(path)
	if err != nil || len(back.Bursts) != 3 || len(back.Verdicts) != len(r.Verdicts) {
		t.Fatalf("%+v, %v", back, err)
	}
	page := filepath.Join(dir, "page.md")
	os.WriteFile(page, []byte("before\n"+docsBegin+"old\n"+docsEnd+"after\n"), 0o644)
	for range 2 { // a second time changes nothing
		if err := back.writeDocs(page); err != nil {
			t.Fatal(err)
		}
	}
	text, _ := os.ReadFile(page)
	for _, want := range []string{"before\n" + docsBegin, docsEnd + "after\n", "| **Chorus, mapped** | 10.0 |",
		"| Intel MPI (PyPI) | 30.0 |",
		"3.00 at 1 MiB (impi)", "oneCCL: SKIPPED (no network)", "ompi4: out (did not start)", "compare-near.svg"} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if bytes.Contains(text, []byte("old")) {
		t.Error("the old report is still there")
	}
	if svg, err := os.ReadFile(filepath.Join(dir, "compare-near.svg")); err != nil || !bytes.Contains(svg,
		[]byte("best of all others")) {
		t.Errorf("%v\n%s", err, svg)
	}
	os.WriteFile(page, []byte("nothing\n"), 0o644)
	if back.writeDocs(page) == nil {
		t.Error("a page without the comments was taken")
	}
}

// Our own ranks take their turns without any peer installed.
func TestHarnessRunsOurs(t *testing.T) {
	gd, err := startGuard()
	if err != nil {
		t.Fatal(err)
	}
	defer gd.close()
	var log bytes.Buffer
	h := &harness{home: &home{}, scratch: t.TempDir(), rounds: 2, budget: time.Millisecond, max: 4 * kib, log: &log,
		guard:  gd,
		groups: map[string]*group{}, failures: map[string]string{}, each: map[string]float64{}, allocs: map[string]float64{}}
	defer h.end()
	for _, m := range []measure{
		{name: "all_reduce", ops: []string{"all_reduce", "broadcast"}, sizes: []int{8, 4 * kib, mib}, ranks: 2, fabric: "shm",
			bind: true, ours: both},
		{name: "refill", ops: []string{"all_reduce"}, sizes: []int{4 * kib}, ranks: 3, fabric: "shm", ours: mapped,
			refill: true, alone: true},
		{name: "allocs", ops: []string{"all_reduce"}, ranks: 2, fabric: "shm", ours: mapped, alone: true},
	} {
		if err := h.run(t.Context(), &m); err != nil {
			t.Fatalf("%s: %v\n%s", m.name, err, log.String())
		}
	}
	// all_reduce has two sizes, memories, forms and rounds; broadcast one form; refill one memory, one size.
	if got, want := len(h.bursts), 2*2*2*2+2*2*2+2*2; got != want {
		t.Errorf("%d bursts, want %d", got, want)
	}
	for _, b := range h.bursts {
		if b.US <= 0 || b.Wrong != 0 || b.Where == bench.Crowded || b.Algorithm == "" {
			t.Errorf("%+v", b)
		}
	}
	if _, ok := h.allocs["all_reduce"]; !ok {
		t.Error("no allocations were counted")
	}
}

func TestGroupThatDoesNotStart(t *testing.T) {
	for name, command := range map[string][]string{
		"its process ended": {"sh", "-c", "echo no such library >&2; exit 3"},
		"no such file":      {"/no/such/launcher"},
	} {
		_, err := startGroup(t.Context(), "x", filepath.Join(t.TempDir(), "s"), 2, true, nil, nil, [][]string{command})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: %v", command, err)
		}
		if command[0] == "sh" && !strings.Contains(fmt.Sprint(err), "no such library") {
			t.Errorf("the reason is lost: %v", err)
		}
	}
}
