package accl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/observe"
	"github.com/chorus-comms/chorus/observe/record"
	"github.com/chorus-comms/chorus/tensor"
)

// TestRecords demands that engine calls are in the flight record, with their cycles, and in traces; and that explain
// names the rank whose engine the others wait for, and for what, though all have come.
func TestRecords(t *testing.T) {
	const n, late = 3, 1
	for what, count := range map[string]int{"segment": 100, "the data": 100_000} {
		dir := t.TempDir()
		t.Setenv("CHORUS_RECORD", "64")
		t.Setenv("CHORUS_DUMP_DIR", dir)
		comms, links := openTapped(t, "accl-records", n, late)
		l := <-links
		reduce := func(ctx context.Context, c *comm.Comm) error {
			return c.Reduce(ctx, tensor.Of(make([]float32, count)), 2, comm.Sum)
		}
		each(t, comms, func(ctx context.Context, c *comm.Comm) error {
			if err := errors.Join(reduce(ctx, c), c.Barrier(ctx)); err != nil || c.Rank() != late {
				return errors.Join(err, reduce(ctx, c))
			}
			l.mu.Lock() // its engine's call doesn't begin
			ended := make(chan error)
			go func() { ended <- reduce(ctx, c) }()
			err := explained(ctx, dir, late, what)
			l.mu.Unlock()
			return errors.Join(err, <-ended)
		})
	}
}

// explained asks for dumps until they tell that the engine of a rank is waited for, and looks at what they say. Until
// the others have come as far as they can, an engine of theirs may be what is waited for at a moment.
func explained(ctx context.Context, dir string, late int, what string) error {
	var before *observe.Report // what was said last
	for {
		if _, err := observe.AskDumps(ctx, dir); err != nil {
			return fmt.Errorf("%w, after %v", err, before)
		}
		dumps, err := observe.ReadDir(dir, 1)
		if err != nil {
			return err
		}
		report := observe.Explain(dumps)
		i := slices.IndexFunc(report.Findings, func(f observe.Finding) bool { return f.Kind == observe.KindEngine })
		if i < 0 || !slices.Equal(report.Findings[i].Ranks, []int{late}) || !strings.Contains(report.Details(), what) {
			if ctx.Err() != nil {
				return fmt.Errorf("the report is %v", report)
			}
			before = report
			time.Sleep(20 * time.Millisecond)
			continue
		}
		for _, d := range dumps {
			engine := d.Chorus.Comms[0].Engine
			if !slices.ContainsFunc(engine, func(c record.EngineCall) bool {
				return c.Op == "reduce" && c.Status == "done" && c.Cycles > 0
			}) {
				return fmt.Errorf("rank %d's record has %+v", d.Chorus.Rank, engine)
			}
		}
		var trace bytes.Buffer
		if err := observe.WriteTrace(&trace, dumps); err != nil || !strings.Contains(trace.String(), `"cycles":`) {
			return fmt.Errorf("there are no cycles in the trace: %v", err)
		}
		return nil
	}
}
