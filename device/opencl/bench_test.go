//go:build linux && (amd64 || arm64)

package opencl_test

import (
	"context"
	"testing"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl"
)

// BenchmarkLaunch is a launch of a small kernel, with a wait each 64.
func BenchmarkLaunch(b *testing.B) {
	d := open(b, opencl.Options{})
	if !compiles(b, d, 0) {
		b.Skip("the device's compiler doesn't work here")
	}
	m := d.(driver.Modules)
	h, err := m.ModuleLoad(0, source)
	if err != nil {
		b.Fatal(err)
	}
	defer m.ModuleUnload(h)
	f, err := m.ModuleFunction(h, "accumulate")
	if err != nil {
		b.Fatal(err)
	}
	p, err := d.Malloc(0, 4096)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Free(0, p)
	s, err := d.StreamCreate(0, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer d.StreamDestroy(s)
	l := driver.Launch{Block: driver.Dim{X: 64}, Args: new(driver.Args).Pointer(p).Int32(64)}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := m.FunctionLaunch(s, f, l); err != nil {
			b.Fatal(err)
		}
		if i%64 == 63 {
			if err := d.StreamSynchronize(context.Background(), s); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkGraph is a graph of 64 small kernels, with a wait each time.
func BenchmarkGraph(b *testing.B) {
	for name, o := range map[string]opencl.Options{"launches": {}, "commands": {CommandBuffers: true}} {
		b.Run(name, func(b *testing.B) { benchmarkGraph(b, open(b, o)) })
	}
}

func benchmarkGraph(b *testing.B, d driver.Driver) {
	if !compiles(b, d, 0) {
		b.Skip("the device's compiler doesn't work here")
	}
	m, g := d.(driver.Modules), d.(driver.Graphs)
	h, err := m.ModuleLoad(0, source)
	if err != nil {
		b.Fatal(err)
	}
	defer m.ModuleUnload(h)
	f, err := m.ModuleFunction(h, "accumulate")
	if err != nil {
		b.Fatal(err)
	}
	p, err := d.Malloc(0, 4096)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Free(0, p)
	s, err := d.StreamCreate(0, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer d.StreamDestroy(s)
	l := driver.Launch{Block: driver.Dim{X: 64}, Args: new(driver.Args).Pointer(p).Int32(64)}
	if err := g.CaptureBegin(s); err != nil {
		b.Fatal(err)
	}
	for range 64 {
		if err := m.FunctionLaunch(s, f, l); err != nil {
			b.Fatal(err)
		}
	}
	captured, err := g.CaptureEnd(s)
	if err != nil {
		b.Fatal(err)
	}
	defer g.GraphDestroy(captured)
	x, err := g.Instantiate(captured)
	if err != nil {
		b.Fatal(err)
	}
	defer g.ExecDestroy(x)
	b.ReportAllocs()
	for b.Loop() {
		if err := g.GraphLaunch(x, s); err != nil {
			b.Fatal(err)
		}
		if err := d.StreamSynchronize(context.Background(), s); err != nil {
			b.Fatal(err)
		}
	}
}
