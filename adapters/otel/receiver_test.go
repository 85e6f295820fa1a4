//go:build receiver

package otelchorus_test

import (
	"context"
	"fmt"
	"testing"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	otelchorus "github.com/chorus-comms/chorus/adapters/otel"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/internal/testutil/nettest"
	"github.com/chorus-comms/chorus/tensor"
)

// TestReceiver sends spans to the OTLP receiver of OpenTelemetry's collector.
func TestReceiver(t *testing.T) {
	ctx := t.Context()
	port, err := nettest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprint("127.0.0.1:", port)
	f := otlpreceiver.NewFactory()
	config := f.CreateDefaultConfig().(*otlpreceiver.Config)
	config.Protocols.HTTP.GetOrInsertDefault().ServerConfig.NetAddr.Endpoint = at
	got := new(consumertest.TracesSink)
	r, err := f.CreateTraces(ctx, receivertest.NewNopSettings(f.Type()), config, got)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(ctx, componenttest.NewNopHost()); err != nil {
		t.Fatal(err)
	}
	defer r.Shutdown(context.WithoutCancel(ctx))

	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpoint(at), otlptracehttp.WithInsecure())
	if err != nil {
		t.Fatal(err)
	}
	tracers := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	c, err := comm.New(ctx, comm.WithRank(0, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Finalize(ctx)
	if _, err := otelchorus.Instrument(c, otelchorus.WithTracerProvider(tracers)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := c.AllReduce(ctx, tensor.Of([]float64{1}), comm.Max); err != nil {
			t.Fatal(err)
		}
	}
	if err := tracers.Shutdown(ctx); err != nil { // sends all
		t.Fatal(err)
	}
	if got.SpanCount() != 3 {
		t.Fatalf("%d spans of 3", got.SpanCount())
	}
	scope := got.AllTraces()[0].ResourceSpans().At(0).ScopeSpans().At(0)
	span := scope.Spans().At(0)
	reduction, _ := span.Attributes().Get("chorus.reduction")
	if scope.Scope().Name() != otelchorus.Scope || span.Name() != "all_reduce world" || reduction.Str() != "max" {
		t.Errorf("%s: %s, %v", scope.Scope().Name(), span.Name(), span.Attributes().AsRaw())
	}
}
