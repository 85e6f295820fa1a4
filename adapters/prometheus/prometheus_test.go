package prometheus_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	chorusprom "github.com/chorus-comms/chorus/adapters/prometheus"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/observe/endpoint"
	"github.com/chorus-comms/chorus/observe/record"
	"github.com/chorus-comms/chorus/tensor"
)

// families parses what a handler serves, by name.
func families(t *testing.T, h http.Handler) map[string]*dto.MetricFamily {
	t.Helper()
	s := httptest.NewServer(h)
	defer s.Close()
	resp, err := http.Get(s.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v, %v: %s", resp.Status, err, text)
	}
	p := expfmt.NewTextParser(model.UTF8Validation)
	all, err := p.TextToMetricFamilies(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestEqual compares the collectors with the text that the core serves: names, kinds, help, labels and values.
func TestEqual(t *testing.T) {
	dir := t.TempDir()
	r := record.Open(record.Settings{Entries: 64, Dir: dir}, "train", `odd "name"`, 0, 2)
	defer r.Close()
	twin := r.Split("twin", 0, []int{0, 1})
	defer twin.Close()
	again := r.Split("twin", 0, []int{0, 1})
	defer again.Close()
	x := tensor.Of(make([]float32, 1<<16))
	for i := range 3 {
		op := backend.Op{Kind: backend.Broadcast, In: x, Out: x}
		twin.Begin(&op, false)
		op.Seq = uint64(i + 1)
		twin.Done(&op)
	}
	r.Begin(&backend.Op{Kind: backend.AllReduce, In: x, Out: x, Reduce: backend.Reduction{Kind: backend.SumKind}}, false)
	handler := func(c prometheus.Collector) http.Handler {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(c)
		return promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
	}
	at := func() string { return dir }
	want := families(t, endpoint.Handler(at))
	own := families(t, handler(chorusprom.New()))
	of := families(t, handler(chorusprom.NewOf(at)))
	if len(want) < 7 {
		t.Errorf("the core serves %d families", len(want))
	}
	for name, w := range want {
		if len(w.Metric) == 0 { // others wait for no rank
			continue
		}
		for _, got := range []map[string]*dto.MetricFamily{own, of} {
			if name == "chorus_operation_seconds" { // which goes on
				for _, f := range []*dto.MetricFamily{w, got[name]} {
					for _, m := range f.GetMetric() {
						if m.Gauge.GetValue() != 0 {
							m.Gauge.Value = new(float64)
						}
					}
				}
			}
			sorted := func(f *dto.MetricFamily) string {
				all := map[string]bool{}
				for _, m := range f.GetMetric() {
					slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
					all[m.String()] = true
				}
				var text []string
				for m := range all {
					text = append(text, m)
				}
				return strings.Join(slices.Sorted(slices.Values(text)), "\n")
			}
			if g := got[name]; g.GetType() != w.GetType() || g.GetHelp() != w.GetHelp() || sorted(g) != sorted(w) {
				t.Errorf("%s\ngot  %v\nwant %v", name, g, w)
			}
		}
	}
	for _, got := range []map[string]*dto.MetricFamily{own, of} {
		for name := range got {
			if want[name] == nil {
				t.Errorf("the core doesn't serve %s", name)
			}
		}
	}
	if problems, err := testutil.CollectAndLint(chorusprom.New()); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// TestDescribed registers the collector twice, which a registry refuses since it describes itself.
func TestDescribed(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(chorusprom.New())
	if err := registry.Register(chorusprom.New()); !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
		t.Error(err)
	}
}
