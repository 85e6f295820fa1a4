package otelchorus_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	otelchorus "github.com/chorus-comms/chorus/adapters/otel"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/internal/testutil/worldtest"
	"github.com/chorus-comms/chorus/tensor"
)

// of returns an attribute of a span, as text.
func of(s *tracetest.SpanStub, key string) string {
	for _, a := range s.Attributes {
		if string(a.Key) == key {
			return a.Value.Emit()
		}
	}
	return ""
}

func TestSpans(t *testing.T) {
	spans, reader := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	var step trace.SpanContext
	worldtest.Run(t, 2, func(ctx context.Context, c *comm.Comm) error {
		x := tensor.Of([]float32{1, 2, 3})
		if c.Rank() != 0 { // which isn't instrumented
			var w comm.Work
			return errors.Join(c.AllReduce(ctx, x, comm.Sum), c.Recv(ctx, x, 0, comm.Tag(7)),
				c.Broadcast(ctx, x, 1, comm.Async(&w)), w.Wait(ctx), c.Recv(ctx, x, 0, comm.Tag(8)))
		}
		remove, err := otelchorus.Instrument(c, otelchorus.WithTracerProvider(tracers), otelchorus.WithMeterProvider(meters))
		if err != nil {
			return err
		}
		ctx, parent := tracers.Tracer("test").Start(ctx, "step")
		step = parent.SpanContext()
		var w comm.Work
		err = errors.Join(c.AllReduce(ctx, x, comm.Sum), c.Send(ctx, x, 1, comm.Tag(7)),
			c.Broadcast(ctx, x, 1, comm.Async(&w)), w.Wait(ctx))
		parent.End()
		if err := c.Recv(ctx, x, 1, comm.Timeout(time.Millisecond)); !errors.Is(err, comm.ErrTimeout) {
			t.Errorf("a message that doesn't come: %v", err)
		}
		remove()
		return errors.Join(err, c.Send(ctx, x, 1, comm.Tag(8)))
	})
	var got []string
	byName := map[string]*tracetest.SpanStub{}
	all := spans.GetSpans()
	for i := range all {
		byName[all[i].Name] = &all[i]
		got = append(got, all[i].Name)
	}
	if len(all) != 5 {
		t.Fatalf("spans %q", got)
	}
	for name, want := range map[string]map[string]string{
		"all_reduce world": {"chorus.operation.name": "all_reduce", "chorus.reduction": "sum",
			"chorus.collective.number": "1", "chorus.bytes": "12", "chorus.dtype": "float32",
			"chorus.comm.name": "world", "chorus.comm.rank": "0",
			"chorus.comm.size": "2", "chorus.async": "false", "chorus.peer": "", "chorus.root": "", "error.type": ""},
		"send world":      {"chorus.peer": "1", "chorus.collective.number": "", "chorus.reduction": "", "chorus.root": ""},
		"broadcast world": {"chorus.root": "1", "chorus.async": "true"},
		"recv world":      {"error.type": "timeout", "chorus.peer": "1"},
	} {
		s := byName[name]
		if s == nil {
			t.Errorf("no %q in %q", name, got)
			continue
		}
		for key, value := range want {
			if of(s, key) != value {
				t.Errorf("%s: %s is %q, want %q", name, key, of(s, key), value)
			}
		}
		if s.Parent.SpanID() != step.SpanID() || s.SpanContext.TraceID() != step.TraceID() {
			t.Errorf("%s has the parent %v, want %v", name, s.Parent, step)
		}
		if failed := s.Status.Code == codes.Error; failed != (name == "recv world") ||
			failed && !strings.Contains(s.Status.Description, "timed out") {
			t.Errorf("%s: %v", name, s.Status)
		}
		if !s.EndTime.After(s.StartTime) || s.InstrumentationScope.Name != otelchorus.Scope {
			t.Errorf("%s: %v to %v, %v", name, s.StartTime, s.EndTime, s.InstrumentationScope)
		}
	}
	if of(byName["all_reduce world"], "chorus.algorithm") == "" {
		t.Error("no algorithm")
	}
	var m metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &m); err != nil || len(m.ScopeMetrics) != 1 {
		t.Fatalf("%v, %v", m, err)
	}
	count, bytes := map[string]uint64{}, int64(0)
	for _, x := range m.ScopeMetrics[0].Metrics {
		switch data := x.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				op, _ := p.Attributes.Value("chorus.operation.name")
				fail, _ := p.Attributes.Value(attribute.Key("error.type"))
				count[op.AsString()+" "+fail.AsString()] = p.Count
				if len(p.Exemplars) == 0 && op.AsString() == "all_reduce" {
					t.Error("no exemplar links to the span")
				}
			}
			if x.Name != "chorus.operation.duration" || x.Unit != "s" {
				t.Errorf("%s in %s", x.Name, x.Unit)
			}
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				bytes += p.Value
			}
			if x.Name != "chorus.operation.io" || x.Unit != "By" {
				t.Errorf("%s in %s", x.Name, x.Unit)
			}
		}
	}
	if count["all_reduce "] != 1 || count["recv timeout"] != 1 || len(count) != 4 || bytes != 4*12 {
		t.Errorf("%v, %d bytes", count, bytes)
	}
}

// TestUnsampled: no span is begun for a parent that isn't sampled, nor, with an option, without a parent.
func TestUnsampled(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	off := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}}))
	c, err := comm.New(t.Context(), comm.WithRank(0, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Finalize(t.Context())
	x := tensor.Of([]float32{1})
	count := func(ctx context.Context, opts ...otelchorus.Option) int {
		t.Helper()
		spans.Reset()
		remove, err := otelchorus.Instrument(c, append(opts, otelchorus.WithTracerProvider(tracers))...)
		if err != nil {
			t.Fatal(err)
		}
		defer remove()
		if err := c.AllReduce(ctx, x, comm.Sum); err != nil {
			t.Fatal(err)
		}
		return len(spans.GetSpans())
	}
	if n := count(t.Context()); n != 1 {
		t.Errorf("a root: %d spans", n)
	}
	if n := count(t.Context(), otelchorus.WithoutRoots()); n != 0 {
		t.Errorf("without roots: %d spans", n)
	}
	if n := count(off); n != 0 {
		t.Errorf("a parent that isn't sampled: %d spans", n)
	}
	// Neither leaves anything behind: with nothing installed an operation allocates nothing again.
	if n := testing.AllocsPerRun(100, func() { c.AllReduce(off, x, comm.Sum) }); n != 0 {
		t.Errorf("%v allocations without hooks", n)
	}
}

// BenchmarkAllReduce is what an operation costs in a world of one: bare, without a sampled parent, and with a span.
func BenchmarkAllReduce(b *testing.B) {
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(discard{}))
	off := trace.ContextWithSpanContext(b.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}}))
	for name, ctx := range map[string]context.Context{"bare": nil, "unsampled": off, "span": b.Context()} {
		b.Run(name, func(b *testing.B) {
			c, err := comm.New(b.Context(), comm.WithRank(0, 1))
			if err != nil {
				b.Fatal(err)
			}
			defer c.Finalize(b.Context())
			if ctx == nil {
				ctx = b.Context()
			} else if _, err := otelchorus.Instrument(c, otelchorus.WithTracerProvider(tracers)); err != nil {
				b.Fatal(err)
			}
			x := tensor.Of([]float32{1})
			b.ReportAllocs()
			for b.Loop() {
				if err := c.AllReduce(ctx, x, comm.Sum); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// discard is a processor that keeps nothing.
type discard struct{ sdktrace.SpanProcessor }

func (discard) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (discard) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (discard) Shutdown(context.Context) error                  { return nil }
func (discard) ForceFlush(context.Context) error                { return nil }
