package prometheus_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	chorusprom "github.com/chorus-comms/chorus/adapters/prometheus"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/tensor"
)

// A rank serves its own metrics, beside those of its program.
func Example() {
	registry := prometheus.NewRegistry() // or the default one
	registry.MustRegister(chorusprom.New())
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()

	ctx := context.Background()
	c, err := comm.New(ctx, comm.WithRank(0, 1), comm.WithName("example"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Finalize(ctx)
	if err := c.AllReduce(ctx, tensor.Of([]float32{1, 2}), comm.Sum); err != nil {
		fmt.Println(err)
	}

	resp, err := http.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	p := expfmt.NewTextParser(model.UTF8Validation)
	all, err := p.TextToMetricFamilies(resp.Body)
	fmt.Println(all["chorus_operations_total"].GetMetric()[0].Counter.GetValue(), err)
	// Output: 1 <nil>
}
