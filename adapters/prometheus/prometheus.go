// Package prometheus has the metrics of Chorus in Prometheus' client library, for programs that have a registry and a
// page /metrics of their own:
//
//	prometheus.MustRegister(chorusprom.New())
//	http.Handle("/metrics", promhttp.Handler())
//
// The collector asks the flight records of this process when it's scraped; operations pay nothing for it. The metrics
// have the names, labels and help that `chorus run --http`, `chorus top --http` and package observe/endpoint serve for
// all ranks of a host, so that one dashboard shows either. A job needs one of the two: what scrapes both sees each rank
// twice. Of a collector in each rank's process, chorus_waited_for_seconds is missing, since one process doesn't know
// what others wait for.
//
// [NewOf] is for a process that starts ranks: it asks those of a directory, as package endpoint does.
package prometheus

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/chorus-comms/chorus/observe"
	"github.com/chorus-comms/chorus/observe/record"
)

// askLimit bounds how long ranks of other processes are waited for; one that is stopped doesn't answer.
const askLimit = 2 * time.Second

// A Collector collects the metrics of ranks. Its methods may be called from any goroutine.
type Collector struct {
	look func() (*observe.Top, error)
}

var _ prometheus.Collector = (*Collector)(nil)

// New returns a collector for the ranks of this process.
func New() *Collector {
	return &Collector{look: func() (*observe.Top, error) { return observe.OwnTop(), nil }}
}

// NewOf returns a collector for the ranks whose flight records go to a directory (CHORUS_DUMP_DIR). dir returns it at
// the time of a scrape. If several jobs run there, the collector shows the one that began last.
func NewOf(dir func() string) *Collector {
	return &Collector{look: func() (*observe.Top, error) {
		ctx, cancel := context.WithTimeout(context.Background(), askLimit)
		defer cancel()
		return observe.LiveTop(ctx, dir())
	}}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, f := range new(observe.Top).Families() {
		out <- describe(&f)
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	t, err := c.look()
	if err != nil {
		out <- prometheus.NewInvalidMetric(prometheus.NewDesc("chorus_up", "Whether the rank answers.", nil, nil), err)
		return
	}
	for _, f := range t.Families() {
		d := describe(&f)
		kind := prometheus.GaugeValue
		if f.Kind == "counter" {
			kind = prometheus.CounterValue
		}
		for _, s := range f.Samples {
			if s.Latency == nil {
				out <- prometheus.MustNewConstMetric(d, kind, s.Value, s.Values...)
				continue
			}
			n, upTo := uint64(0), map[float64]uint64{}
			for i, count := range s.Latency.Counts {
				if n += count; i < len(record.LatencyBounds) {
					upTo[record.LatencyBounds[i]] = n
				}
			}
			out <- prometheus.MustNewConstHistogram(d, n, s.Latency.Sum, upTo, s.Values...)
		}
	}
}

func describe(f *observe.Family) *prometheus.Desc {
	return prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
}
