package device_test

import (
	"context"
	"fmt"
	"log"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/accinte"
	"github.com/chorus-comms/chorus/device/driver"
)

// A compiled kernel of an emulated device is a Go function of a module.
func ExampleDevice_LoadModule() {
	accinte.RegisterModule("vectors", map[string]accinte.Function{
		"scale": {Params: []driver.ParamKind{driver.ParamPointer, driver.ParamInt32}, Run: func(b *accinte.Block) error {
			x := b.Memory(0) // up to the end of its allocation
			for i := b.Index.X; i < len(x); i += b.Grid.X {
				x[i] *= byte(b.Int32(1))
			}
			return nil
		}},
	})

	ctx := context.Background()
	d, err := device.Get("accinte:0")
	if err != nil {
		log.Fatal(err)
	}
	m, err := d.LoadModule([]byte("vectors"))
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	scale, err := m.Function("scale")
	if err != nil {
		log.Fatal(err)
	}
	s, err := d.Stream(device.Normal)
	if err != nil {
		log.Fatal(err)
	}
	p, err := d.Alloc(5, s)
	if err != nil {
		log.Fatal(err)
	}
	defer d.Dealloc(p)
	data := []byte{1, 2, 3, 4, 5}
	if err := s.CopyIn(ctx, p, data); err != nil {
		log.Fatal(err)
	}
	err = s.LaunchFunction(scale, device.Launch{Grid: device.Dim{X: 2}, Args: new(device.Args).Pointer(p).Int32(3)})
	if err != nil {
		log.Fatal(err)
	}
	if err := s.CopyOut(ctx, data, p); err != nil {
		log.Fatal(err)
	}
	fmt.Println(data)
	// Output: [3 6 9 12 15]
}
