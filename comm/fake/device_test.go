package fake_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/device"
	_ "github.com/chorus-comms/chorus/device/accinte"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// Tensors of a device are taken as those of the host are, once the communicator is for it.
func TestDevice(t *testing.T) {
	ctx := context.Background()
	st := store.NewHash(time.Minute)
	defer st.Close()
	d, err := device.Get("accinte")
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1, 3} {
		for _, spec := range []string{"cpu", "accinte:0"} {
			c, err := comm.New(ctx, comm.WithBackend("fake"), comm.WithRank(0, size), comm.WithStore(st),
				comm.WithDevice(spec), comm.WithName(spec))
			if err != nil {
				t.Fatal(err)
			}
			x, err := tensor.Of([]float32{1, 2}).To(ctx, d)
			if err != nil {
				t.Fatal(err)
			}
			if spec == "cpu" {
				if err := c.AllReduce(ctx, x, comm.Sum); !errors.Is(err, comm.ErrInvalidArgument) {
					t.Errorf("world of %d for %s: %v", size, spec, err)
				}
				if err := c.Bind(d); err != nil {
					t.Errorf("world of %d for %s: %v", size, spec, err)
				}
			}
			if err := c.AllReduce(ctx, x, comm.Sum); err != nil {
				t.Errorf("world of %d for %s: %v", size, spec, err)
			}
			got := make([]float32, 2)
			if err := tensor.Copy(ctx, tensor.Of(got), x); err != nil || !slices.Equal(got, []float32{1, 2}) {
				t.Errorf("world of %d for %s: %v, %v", size, spec, got, err)
			}
			if err := c.Finalize(ctx); err != nil {
				t.Error(err)
			}
		}
	}
}
