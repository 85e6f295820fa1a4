package otelchorus_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	otelchorus "github.com/chorus-comms/chorus/adapters/otel"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/tensor"
)

// A step of training is a span, and its operations are spans below it. A program exports them by OTLP instead.
func Example() {
	ctx := context.Background()
	spans := tracetest.NewInMemoryExporter()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))

	c, err := comm.New(ctx, comm.WithRank(0, 1))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Finalize(ctx)
	if _, err := otelchorus.Instrument(c); err != nil {
		fmt.Println(err)
		return
	}
	step, span := otel.Tracer("train").Start(ctx, "step")
	if err := c.AllReduce(step, tensor.Of([]float32{1, 2}), comm.Avg); err != nil {
		fmt.Println(err)
	}
	span.End()
	for _, s := range spans.GetSpans() {
		fmt.Println(s.Name, s.Parent.IsValid())
	}
	// Output:
	// all_reduce world true
	// step false
}
