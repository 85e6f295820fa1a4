package accinte_test

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/accinte"
	"github.com/chorus-comms/chorus/device/driver"
)

// Three emulated accelerators for a test, whatever the environment says: a kernel doubles what a copy has brought.
func ExampleNew() {
	drv, err := accinte.New(accinte.Options{Devices: 3, MemoryBytes: 16 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer drv.Close()
	d, err := device.NewRuntime("test", drv).Device(2)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	s, err := d.Stream(device.Normal)
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := d.Malloc(3)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Free(p)
	if err := s.CopyIn(ctx, p, []byte{1, 2, 3}); err != nil {
		fmt.Println(err)
	}
	err = s.Launch("double", []driver.Span{{Ptr: p, Bytes: 3}}, func(views []unsafe.Pointer) error {
		for i, x := range unsafe.Slice((*byte)(views[0]), 3) {
			unsafe.Slice((*byte)(views[0]), 3)[i] = 2 * x
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	out := make([]byte, 3)
	if err := s.CopyOut(ctx, out, p); err != nil {
		fmt.Println(err)
	}
	fmt.Println(d, out, s.Synchronize(ctx))
	// Output: test:2 [2 4 6] <nil>
}
