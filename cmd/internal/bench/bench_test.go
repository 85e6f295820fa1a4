package bench

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// world runs f on each rank of a world in this process and returns what rank 0 returned.
func world(t *testing.T, n int, f func(context.Context, *comm.Comm) (Result, error)) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	st := store.NewHash(30 * time.Second)
	results, errs := make([]Result, n), make([]error, n)
	var all sync.WaitGroup
	for r := range n {
		all.Go(func() {
			c, err := comm.New(ctx, comm.WithRank(r, n), comm.WithStore(st), comm.WithFabric("mem"))
			if err != nil {
				errs[r] = err
				return
			}
			defer c.Finalize(ctx)
			results[r], errs[r] = f(ctx, c)
		})
	}
	all.Wait()
	for r, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
		if a, b := rowsText(results[r]), rowsText(results[0]); a != b {
			t.Fatalf("rank %d has rows\n%s\nrank 0 has\n%s", r, a, b)
		}
	}
	return results[0]
}

func rowsText(r Result) string { return fmt.Sprintf("%+v", r.Rows) }

// quick is a config that takes no longer than it must.
func quick(op string) Config {
	return Config{Operation: op, Min: 8, Max: 8 << 10, Step: 16, Time: time.Millisecond, Iters: 3, Warmup: 1,
		Fabric: "mem"}
}

func TestEveryOperation(t *testing.T) {
	for _, op := range operations {
		for _, n := range []int{2, 3} {
			for _, memory := range []MemoryKind{Mapped, Ordinary} {
				t.Run(fmt.Sprintf("%s/%d/%s", op.name, n, memory), func(t *testing.T) {
					g := quick(op.name)
					g.Memory, g.InPlace, g.OutOfPlace, g.Root = memory, op.inPlace, op.outOfPlace, n-1
					g.Refill = memory == Ordinary
					res := world(t, n, func(ctx context.Context, c *comm.Comm) (Result, error) { return Run(ctx, c, g) })
					want := 4 // 8 B, 128 B, 2 KiB, 8 KiB
					if op.empty {
						want = 1
					}
					if op.inPlace && op.outOfPlace {
						want *= 2
					}
					if len(res.Rows) != want {
						t.Errorf("%d rows, want %d", len(res.Rows), want)
					}
					for _, row := range res.Rows {
						if row.Errors != 0 || row.MedianUS <= 0 || row.P99US < row.MedianUS || row.Rounds < 3 ||
							row.Operation != op.name {
							t.Errorf("%+v", row)
						}
						if !op.empty && (row.AlgBW <= 0 || row.Bytes%(row.Count*4) != 0) {
							t.Errorf("%+v", row)
						}
						if op.name != "send_recv" && row.Algorithm == "" {
							t.Errorf("no algorithm: %+v", row)
						}
					}
				})
			}
		}
	}
}

func TestEveryDType(t *testing.T) {
	world(t, 2, func(ctx context.Context, c *comm.Comm) (Result, error) {
		checked := 0
		for _, dt := range dtype.All() {
			for _, red := range append(reductions, comm.Reduction{}) {
				g := Config{Operation: "all_reduce", Min: 4096, Max: 4096, DType: dt, Reduction: red, Iters: 1, Warmup: 1,
					Time: time.Millisecond}
				if red.Kind == 0 {
					g.Operation = "all_gather"
				}
				res, err := Run(ctx, c, g)
				if errors.Is(err, comm.ErrInvalidArgument) && red.Kind != 0 {
					continue // the reduction isn't defined on the dtype
				}
				if err != nil {
					return res, err
				}
				checked++
				if n := res.Rows[0].Errors; n != 0 {
					t.Errorf("%v %v %s: %d errors", dt, red, g.Operation, n)
				}
			}
		}
		if checked < 100 {
			t.Errorf("only %d combinations ran", checked)
		}
		return Result{}, nil
	})
}

// A result that's wrong must be counted: here one rank's values are those of another.
func TestWrongIsCounted(t *testing.T) {
	p := newPatterns(values{dt: dtype.Float32, n: 2})
	buf := tensor.Must(tensor.Zeros(dtype.Float32, 1000))
	spans := []span{{at: 0, n: 500, rank: 0}, {at: 500, n: 500, rank: 1, from: 7}}
	if err := p.fill(buf, spans); err != nil {
		t.Fatal(err)
	}
	if n, err := p.errors(buf, spans); n != 0 || err != nil {
		t.Fatalf("%d errors, %v", n, err)
	}
	buf.SetAt(-1, 3)
	buf.SetAt(-1, 999)
	if n, _ := p.errors(buf, spans); n != 2 {
		t.Errorf("%d errors, want 2", n)
	}
	spans[1].rank = 0
	if n, _ := p.errors(buf, spans); n < 400 {
		t.Errorf("%d errors in a block of another rank", n)
	}
	if _, err := p.errors(buf, []span{{at: 600, n: 500}}); err == nil {
		t.Error("no error for a span beyond the buffer")
	}
}

// All values, partial sums included, must survive a conversion to the dtype.
func TestValuesAreExact(t *testing.T) {
	for _, dt := range dtype.All() {
		for _, n := range []int{1, 2, 3, 8, 17, 64} {
			for _, red := range reductions {
				v := values{dt, red.Kind, n}
				distinct := map[int]bool{}
				for i := range period {
					sum := 0
					for r := range n {
						x := v.of(r, i)
						distinct[x] = true
						sum += x
					}
					want := v.reduced(i)
					top := largest(dt)
					if dt == dtype.Bool && (red.Kind == comm.PremulSum(2).Kind || red.Kind == comm.Avg.Kind) {
						continue // not defined
					}
					if bitwise := red.Kind >= comm.BAnd.Kind && red.Kind <= comm.BXor.Kind; bitwise && (dt.IsFloating() ||
						dt.IsComplex()) {
						continue
					}
					if red.Kind == comm.Sum.Kind && sum > top || want < 0 || want > top {
						t.Fatalf("%v %v of %d ranks: element %d is %d, sum %d", dt, red, n, i, want, sum)
					}
				}
				if len(distinct) < 2 {
					t.Errorf("%v %v of %d ranks: all values are alike", dt, red, n)
				}
			}
		}
	}
}

func TestFactors(t *testing.T) {
	for _, x := range []struct {
		op   string
		n    int
		want float64
	}{
		{"all_reduce", 2, 1}, {"all_reduce", 4, 1.5}, {"all_reduce", 8, 1.75},
		{"all_gather", 4, 0.75}, {"reduce_scatter", 4, 0.75}, {"all_to_all", 8, 0.875},
		{"gather", 2, 0.5}, {"scatter", 2, 0.5},
		{"broadcast", 8, 1}, {"reduce", 8, 1}, {"send_recv", 2, 1},
	} {
		row := Row{Bytes: 4e6, Ranks: x.n}
		row.fill(lookup(x.op), stats{median: 1e-3, p99: 2e-3}, 10, 0.5e-3)
		if row.AlgBW != 4 || math.Abs(row.BusBW-4*x.want) > 1e-9 {
			t.Errorf("%s of %d: algbw %v, busbw %v; want 4 and %v", x.op, x.n, row.AlgBW, row.BusBW, 4*x.want)
		}
		if row.MedianUS != 1000 || row.P99US != 2000 || row.Limit != 8 || row.Share != 0.5 {
			t.Errorf("%+v", row)
		}
	}
}

func TestSizes(t *testing.T) {
	for _, x := range []struct {
		min, max, step, unit int
		want                 []int
	}{
		{8, 128, 4, 4, []int{8, 32, 128}},
		{8, 100, 4, 4, []int{8, 32, 100}},
		{8, 128, 2, 32, []int{32, 64, 128}},
		{6, 6, 2, 4, []int{8}},
		{8, 31, 4, 4, []int{8, 32}},
		{0, 0, 2, 4, []int{0}},
		{0, 8, 2, 4, []int{8}},
		{1 << 30, 1 << 32, 2, 4, []int{1 << 30, 1 << 31, 1 << 32}},
	} {
		g := Config{Min: x.min, Max: x.max, Step: x.step}
		if got := g.sizes(x.unit); !slices.Equal(got, x.want) {
			t.Errorf("%+v: %v", x, got)
		}
	}
	for _, x := range []struct {
		min, max, every, unit int
		want                  []int
	}{
		{8, 32, 8, 4, []int{8, 16, 24, 32}},
		{8, 30, 8, 4, []int{8, 16, 24, 32}},
		{8, 25, 8, 12, []int{12, 24, 36}},
		{8, 8, 8, 4, []int{8}},
		{0, 4, 1, 4, []int{0, 4}},
		{8, 1 << 20, 1 << 30, 4, []int{8, 1 << 20}},
	} {
		g := Config{Min: x.min, Max: x.max, Step: 4, StepBytes: x.every}
		if got := g.sizes(x.unit); !slices.Equal(got, x.want) {
			t.Errorf("%+v: %v", x, got)
		}
	}
}

// As many rounds are checked as were asked for, before the measured ones and after them; a row that none was says so.
func TestChecks(t *testing.T) {
	for checks, want := range map[int]int{0: 2, 1: 2, 3: 6, Unchecked: 0} {
		g := quick("all_gather")
		g.Max, g.Checks = g.Min, checks
		res := world(t, 2, func(ctx context.Context, c *comm.Comm) (Result, error) { return Run(ctx, c, g) })
		row := res.Rows[0]
		if row.Checked != want || row.Errors != 0 || row.Algorithm == "" {
			t.Errorf("%d checks: %+v", checks, row)
		}
		var table bytes.Buffer
		res.WriteTable(&table)
		if unchecked := strings.Contains(table.String(), "not checked"); unchecked != (want == 0) {
			t.Errorf("%d checks:\n%s", checks, &table)
		}
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int{"8": 8, "4KiB": 4096, "256MiB": 256 << 20, "1g": 1 << 30, "1.5k": 1536} {
		if got, err := ParseSize(text); got != want || err != nil {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-1", "4 apples", "9000000000g", "4096t"} {
		if n, err := ParseSize(text); err == nil {
			t.Errorf("%q: %d", text, n)
		}
	}
}

func TestParseReduction(t *testing.T) {
	for _, r := range reductions {
		if got, err := ParseReduction(r.String()); got != r || err != nil {
			t.Errorf("%v: %v, %v", r, got, err)
		}
	}
	if r, err := ParseReduction("prod"); r.Kind != comm.Product.Kind || err != nil {
		t.Errorf("prod: %v, %v", r, err)
	}
	if _, err := ParseReduction("mean"); err == nil {
		t.Error("mean is a reduction")
	}
}

func TestBadConfigs(t *testing.T) {
	for name, g := range map[string]Config{
		"no operation":    {Operation: "all_recude"},
		"sizes from":      {Min: 9, Max: 8},
		"a factor of":     {Step: 1},
		"dtype":           {DType: 99},
		"root 2":          {Root: 2},
		"memory":          {Memory: "gpu"},
		"no form":         {Operation: "all_to_all", InPlace: true},
		"always in place": {Operation: "broadcast", OutOfPlace: true},
		"negative":        {Iters: -1},
		"bytes between":   {StepBytes: -1},
		"make more than":  {Min: 1, Max: 1 << 40, StepBytes: 1},
		"to check":        {Checks: -2},
	} {
		if _, err := g.fill(2); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (&Config{Operation: "send_recv"}).fill(1); err == nil {
		t.Error("send_recv with one rank")
	}
}

func TestSchedule(t *testing.T) {
	for _, x := range []struct {
		budget time.Duration
		each   float64
		iters  int
		want   schedule
	}{
		{200 * time.Millisecond, 1e-3, 0, schedule{200, 1}},
		{200 * time.Millisecond, 1.5e-6, 0, schedule{9523, 14}},
		{200 * time.Millisecond, 10, 0, schedule{fewestBlocks, 1}},
		{time.Second, 1.5e-6, 100, schedule{8, 14}},
		{time.Second, 1e-6, 7, schedule{1, 7}},
	} {
		if got := scheduleFor(x.budget, x.each, x.iters); got != x.want {
			t.Errorf("%+v: %+v", x, got)
		}
	}
}

func TestStatistics(t *testing.T) {
	var samples []float64
	for i := 100; i > 0; i-- {
		samples = append(samples, float64(i))
	}
	if st := summarize(samples); st.median != 50.5 || st.p99 != 99 {
		t.Errorf("%+v", st)
	}
	if st := summarize([]float64{3}); st != (stats{3, 3}) {
		t.Errorf("%+v", st)
	}
	if st := summarize(nil); st != (stats{}) {
		t.Errorf("%+v", st)
	}
}

func TestJSONShape(t *testing.T) {
	res := Result{Rows: []Row{{}}}
	var b bytes.Buffer
	if err := res.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(b.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	keys := func(x any) string { return strings.Join(slices.Sorted(maps.Keys(x.(map[string]any))), " ") }
	for name, x := range map[string]struct {
		at   any
		want string
	}{
		"document": {doc, "command machine placement rows version"},
		"row": {doc["rows"].([]any)[0],
			"algbw_gbs algorithm busbw_gbs bytes checked count dtype errors fabric in_place limit_gbs median_us memory operation p99_us ranks redop refill rounds share"},
		"machine":   {doc["machine"], "arch cores cpu go kernel kernels"},
		"placement": {doc["placement"], "after before"},
		"probe":     {doc["placement"].(map[string]any)["after"], "round_trip_ns where"},
	} {
		if got := keys(x.at); got != x.want {
			t.Errorf("%s has %s, want %s", name, got, x.want)
		}
	}
}

func TestCSV(t *testing.T) {
	res := Result{Rows: []Row{{Operation: "all_reduce", Bytes: 8, MedianUS: 0.25, InPlace: true}, {Errors: 3}}}
	var b bytes.Buffer
	if err := res.WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(lines) != 3 {
		t.Fatalf("%v %v", lines, err)
	}
	at := func(name string) int { return slices.Index(lines[0], name) }
	if lines[1][at("median_us")] != "0.25" || lines[1][at("in_place")] != "true" || lines[2][at("errors")] != "3" {
		t.Errorf("%v", lines)
	}
}

func TestTableAndPlot(t *testing.T) {
	res := Result{Rows: []Row{{Operation: "all_reduce", Bytes: 1 << 20, Count: 1 << 18, DType: "f32", Reduction: "sum",
		MedianUS: 123.4, AlgBW: 8.5, BusBW: 8.5, Limit: 17, Share: 0.5, Checked: 2, Errors: 2, Algorithm: "direct"}}}
	var b bytes.Buffer
	res.WriteTable(&b)
	for _, want := range []string{"1048576", "262144", "123 ", "8.50", " 50  direct", "wrong   2 elements"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	b.Reset()
	if err := res.WritePlot(&b); err != nil || !strings.Contains(b.String(), "one pass, unsynchronized") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

func TestDigits(t *testing.T) {
	for x, want := range map[float64]float64{0: 0, 123456: 123460, 0.00123456789: 0.0012346, 1: 1} {
		if got := digits(x); math.Abs(got-want) > 1e-12 {
			t.Errorf("digits(%v) = %v, want %v", x, got, want)
		}
	}
}

func TestPlacement(t *testing.T) {
	for ns, want := range map[float64]string{0: Crowded, 55: Near, 325: Far, 1e5: Crowded} {
		if got := placementOf(ns).Where; got != want {
			t.Errorf("%v ns: %s, want %s", ns, got, want)
		}
	}
	if p := Probe(); p.RoundTripNS < 0 || p.Where == "" {
		t.Errorf("%+v", p)
	}
}

func TestRunner(t *testing.T) {
	world(t, 2, func(ctx context.Context, c *comm.Comm) (res Result, err error) {
		r, err := NewRunner(ctx, c, quick("all_gather"))
		if err != nil {
			return res, err
		}
		defer r.Free()
		for _, bytes := range []int{8 << 10, 64, 8 << 10} {
			row, err := r.Row(bytes, true, 0, 7)
			if err != nil {
				return res, err
			}
			if row.Bytes != bytes || !row.InPlace || row.Errors != 0 || row.Rounds < 7 || row.MedianUS <= 0 {
				t.Errorf("%+v", row)
			}
		}
		if _, err := r.Row(16<<10, true, 0, 0); err == nil {
			t.Error("a row beyond the buffers")
		}
		b, err := NewRunner(ctx, c, quick("broadcast"))
		if err != nil {
			return res, err
		}
		defer b.Free()
		if _, err := b.Row(64, false, 0, 0); err == nil {
			t.Error("a broadcast out of place")
		}
		return res, nil
	})
}
