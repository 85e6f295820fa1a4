package cpu_test

import (
	"context"
	"fmt"

	"github.com/chorus-comms/chorus/device"
	_ "github.com/chorus-comms/chorus/device/cpu"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// A program for accelerators, on a machine without one.
func Example() {
	d, err := device.Get("cpu")
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := d.Stream(device.Normal)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := device.WithStream(context.Background(), s)
	x, err := tensor.ZerosOn(ctx, d, dtype.Float32, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := tensor.Fill(ctx, x, 1.5); err != nil { // in the stream's order
		fmt.Println(err)
	}
	host, err := x.To(ctx, nil)
	if err == nil {
		err = s.Synchronize(ctx)
	}
	fmt.Println(host.At(0), host.At(1), err)
	// Output: 1.5 1.5 <nil>
}
