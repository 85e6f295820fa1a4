package backend_test

import (
	"context"
	"fmt"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/tensor"
)

// counted is a backend that counts what another one does.
type counted struct {
	backend.Backend
	bytes *int
}

func (c *counted) Submit(op *backend.Op) error {
	if op.In != nil {
		*c.bytes += op.In.NBytes()
	}
	return c.Backend.Submit(op)
}

// A backend of one's own is registered under a name, by which programs choose it. This one leaves the work to "native".
func ExampleRegister() {
	bytes := 0
	backend.Register("counted", func(ctx context.Context, cfg backend.Config) (backend.Backend, error) {
		inner, err := backend.Open(ctx, "native", cfg)
		if err != nil {
			return nil, err
		}
		return &counted{inner, &bytes}, nil
	})

	ctx := context.Background()
	c, err := comm.New(ctx, comm.WithBackend("counted"), comm.WithRank(0, 1))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Finalize(ctx)
	err = c.AllReduce(ctx, tensor.Of(make([]float32, 100)), comm.Sum)
	fmt.Println(bytes, err)
	// Output: 400 <nil>
}
