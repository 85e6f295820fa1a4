// Package otelchorus makes OpenTelemetry spans and metrics of a communicator's operations:
//
//	c, err := comm.New(ctx)
//	remove, err := otelchorus.Instrument(c)      // with the global providers
//	err = c.AllReduce(ctx, grads, comm.Sum)      // a child of the span in ctx
//
// A communicator that isn't instrumented pays nothing. Splits and regrouped communicators are instrumented by
// themselves.
//
// # Spans
//
// A span has the name of its operation and of the communicator, such as "all_reduce world". Its parent is the span in
// the context of the call. It begins when the operation's turn comes, which for an asynchronous one is after those
// before it, and ends with the operation. If it fails, the status is Error, with the error's text.
//
//	chorus.operation.name     all_reduce
//	chorus.operation.id       counts the operations of the communicator on this rank
//	chorus.collective.number  by which ranks match collectives; not for messages
//	chorus.comm.name          world
//	chorus.comm.rank          3
//	chorus.comm.size          8
//	chorus.peer               the other rank of a message
//	chorus.root               the root of a broadcast and the like
//	chorus.reduction          sum
//	chorus.dtype              float32
//	chorus.bytes              of the rank's inputs or outputs, whichever are more
//	chorus.algorithm          ring; what carried it out
//	chorus.async              true
//	error.type                what kind of error, such as timeout, peer_lost or mismatch
//
// An operation whose parent isn't sampled gets no span, at the cost of looking. One without a parent is for the sampler
// of the provider to decide; it gets none with [WithoutRoots]. Attributes are made for spans that are recorded.
//
// # Metrics
//
//	chorus.operation.duration  histogram, s   how long operations take, by operation, communicator and error.type
//	chorus.operation.io        counter, By    bytes of the rank's tensors in them
package otelchorus

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/observe/record"
	"github.com/chorus-comms/chorus/tensor"
)

// Scope names the instrumentation in spans and metrics.
const Scope = "github.com/chorus-comms/chorus/adapters/otel"

// Option configures Instrument.
type Option func(*options)

type options struct {
	tracers trace.TracerProvider
	meters  metric.MeterProvider
	noRoots bool
}

// WithTracerProvider takes the place of the global provider of tracers.
func WithTracerProvider(p trace.TracerProvider) Option { return func(o *options) { o.tracers = p } }

// WithMeterProvider takes the place of the global provider of meters.
func WithMeterProvider(p metric.MeterProvider) Option { return func(o *options) { o.meters = p } }

// WithoutRoots makes spans only of operations whose context has a span.
func WithoutRoots() Option { return func(o *options) { o.noRoots = true } }

// Instrument has the operations that c begins from now on make spans and metrics, until remove is called or c is
// finalized.
func Instrument(c *comm.Comm, opts ...Option) (remove func(), err error) {
	o := options{tracers: otel.GetTracerProvider(), meters: otel.GetMeterProvider()}
	for _, f := range opts {
		f(&o)
	}
	x := &instrument{tracer: o.tracers.Tracer(Scope), noRoots: o.noRoots, rank: c.Rank(), size: c.Size(),
		begun: map[uint64]begun{}}
	meter := o.meters.Meter(Scope)
	x.duration, err = meter.Float64Histogram("chorus.operation.duration", metric.WithUnit("s"),
		metric.WithDescription("How long operations take."),
		metric.WithExplicitBucketBoundaries(record.LatencyBounds[:]...))
	if err != nil {
		return nil, err
	}
	x.io, err = meter.Int64Counter("chorus.operation.io", metric.WithUnit("By"),
		metric.WithDescription("Bytes of the rank's tensors in operations."))
	if err != nil {
		return nil, err
	}
	end := c.RegisterCompletionHook(x.end) // first, so that what has begun also ends
	begin := c.RegisterPreHook(x.begin)
	return func() { begin.Remove(); end.Remove() }, nil
}

// instrument is what the hooks of one communicator share.
type instrument struct {
	tracer     trace.Tracer
	duration   metric.Float64Histogram
	io         metric.Int64Counter
	noRoots    bool
	rank, size int

	mu    sync.Mutex
	begun map[uint64]begun // by OpInfo.ID
	sets  sync.Map         // of setKey to measured
}

// begun is an operation under way.
type begun struct {
	at   time.Time
	ctx  context.Context // with the span, if there is one
	span trace.Span      // nil: it isn't recorded
}

func (x *instrument) begin(info comm.OpInfo) error {
	b := begun{at: time.Now(), ctx: info.Context}
	if parent := trace.SpanContextFromContext(b.ctx); parent.IsSampled() || !parent.IsValid() && !x.noRoots {
		var span trace.Span
		b.ctx, span = x.tracer.Start(b.ctx, info.Kind.String()+" "+info.Comm, trace.WithTimestamp(b.at))
		if span.IsRecording() {
			b.span = span
		}
	}
	x.mu.Lock()
	x.begun[info.ID] = b
	x.mu.Unlock()
	return nil
}

func (x *instrument) end(info comm.OpInfo, err error) {
	x.mu.Lock()
	b, ok := x.begun[info.ID]
	delete(x.begun, info.ID)
	x.mu.Unlock()
	if !ok { // another pre-hook has refused it before
		return
	}
	at, kind, bytes := time.Now(), errorType(err), bytesOf(info)
	set := x.measured(setKey{info.Kind, info.Comm, kind})
	x.duration.Record(b.ctx, at.Sub(b.at).Seconds(), set.record...)
	x.io.Add(b.ctx, bytes, set.add...)
	if b.span == nil {
		return
	}
	b.span.SetAttributes(x.attributes(info, kind, bytes)...)
	if err != nil {
		b.span.SetStatus(codes.Error, err.Error())
	}
	b.span.End(trace.WithTimestamp(at))
}

// attributes are those of a span.
func (x *instrument) attributes(info comm.OpInfo, kind string, bytes int64) []attribute.KeyValue {
	a := []attribute.KeyValue{
		nameKey.String(info.Kind.String()), attribute.Int64("chorus.operation.id", int64(info.ID)), commKey.String(info.Comm),
		attribute.Int("chorus.comm.rank", x.rank), attribute.Int("chorus.comm.size", x.size),
		attribute.Int64("chorus.bytes", bytes), attribute.Bool("chorus.async", info.Async),
	}
	if info.Kind.PointToPoint() {
		a = append(a, attribute.Int("chorus.peer", info.Peer))
	} else if info.Seq != 0 {
		a = append(a, attribute.Int64("chorus.collective.number", int64(info.Seq)))
	}
	if row := info.Kind.Operation(); row.Root {
		a = append(a, attribute.Int("chorus.root", info.Root))
	}
	if info.Reduce.Kind != 0 {
		a = append(a, attribute.String("chorus.reduction", info.Reduce.String()))
	}
	if t := first(info); t != nil {
		a = append(a, attribute.String("chorus.dtype", t.DType().String()))
	}
	if info.Algorithm != "" {
		a = append(a, attribute.String("chorus.algorithm", info.Algorithm))
	}
	if kind != "" {
		a = append(a, errorKey.String(kind))
	}
	return a
}

const (
	nameKey  = attribute.Key("chorus.operation.name")
	commKey  = attribute.Key("chorus.comm.name")
	errorKey = attribute.Key("error.type")
)

// setKey is what tells measurements apart.
type setKey struct {
	kind       comm.Kind
	comm, fail string
}

// measured are the options of measurements, which are made once.
type measured struct {
	record []metric.RecordOption
	add    []metric.AddOption
}

func (x *instrument) measured(k setKey) measured {
	if m, ok := x.sets.Load(k); ok {
		return m.(measured)
	}
	a := []attribute.KeyValue{nameKey.String(k.kind.String()), commKey.String(k.comm)}
	if k.fail != "" {
		a = append(a, errorKey.String(k.fail))
	}
	set := metric.WithAttributeSet(attribute.NewSet(a...))
	m := measured{[]metric.RecordOption{set}, []metric.AddOption{set}}
	x.sets.Store(k, m)
	return m
}

// errorTypes are the values of error.type, of which there must be few.
var errorTypes = []struct {
	is   error
	name string
}{
	{comm.ErrTimeout, "timeout"}, {comm.ErrPeerLost, "peer_lost"}, {comm.ErrMismatch, "mismatch"},
	{comm.ErrAborted, "aborted"}, {comm.ErrInvalidArgument, "invalid_argument"}, {comm.ErrUnsupported, "unsupported"},
	{comm.ErrFinalized, "finalized"}, {comm.ErrCanceled, "canceled"},
}

// errorType is what kind an error is of; empty for none.
func errorType(err error) string {
	if err == nil {
		return ""
	}
	for _, t := range errorTypes {
		if errors.Is(err, t.is) {
			return t.name
		}
	}
	return "_OTHER" // OpenTelemetry's word
}

// bytesOf is the size of an operation's inputs or outputs, whichever are more.
func bytesOf(info comm.OpInfo) int64 {
	in, out := size(info.In), size(info.Out)
	for _, t := range info.Ins {
		in += size(t)
	}
	for _, t := range info.Outs {
		out += size(t)
	}
	return max(in, out)
}

func size(t *tensor.Tensor) int64 {
	if t == nil {
		return 0
	}
	return int64(t.NBytes())
}

// first returns a tensor of an operation; nil if it has none.
func first(info comm.OpInfo) *tensor.Tensor {
	for _, t := range append([]*tensor.Tensor{info.In, info.Out}, append(info.Ins, info.Outs...)...) {
		if t != nil {
			return t
		}
	}
	return nil
}
