package rng_test

import (
	"fmt"

	"github.com/chorus-comms/chorus/device/rng"
)

// The numbers that torch.manual_seed(42) gives on a CPU and on a GPU.
func Example() {
	x := make([]float32, 3)
	for _, g := range []rng.Generator{rng.NewCPU(42), rng.NewCUDA(42, rng.H100)} {
		if err := rng.Uniform(g, x, 0, 1); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%.4f\n", x)
	}
	// Output:
	// [0.8823 0.9150 0.3829]
	// [0.6130 0.0101 0.3984]
}
