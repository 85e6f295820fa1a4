package memviz_test

import (
	"bytes"
	"fmt"

	"github.com/chorus-comms/chorus/device"
	_ "github.com/chorus-comms/chorus/device/accinte"
	"github.com/chorus-comms/chorus/device/cache/memviz"
)

// Where has the memory of a device gone? Its allocator records what happens, and the picture shows it, as `chorus
// memviz` does.
func ExampleDraw() {
	d, err := device.Get("accinte:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	allocator, err := d.Allocator()
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := allocator.RecordHistory(1000, true); err != nil {
		fmt.Println(err)
		return
	}
	s, err := d.Stream(device.Normal)
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := d.Alloc(1000, s)
	if err != nil {
		fmt.Println(err)
		return
	}
	stats := allocator.Stats()
	fmt.Println(stats.RequestedBytes[0].Current, stats.AllocatedBytes[0].Current, stats.ReservedBytes[0].Current)
	if err := d.Dealloc(p); err != nil {
		fmt.Println(err)
	}
	var svg bytes.Buffer // a file
	err = memviz.Draw(&svg, allocator.Snapshot(), memviz.Options{Device: 0})
	fmt.Println(bytes.Contains(svg.Bytes(), []byte("<svg")), err)
	// Output:
	// 1000 1024 2097152
	// true <nil>
}
