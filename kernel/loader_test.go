package kernel

import (
	"testing"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/kept"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/text"
)

// A compiled kernel is read from the disk by the next loader, and compiled again if what's there isn't good.
func TestLoaderDisk(t *testing.T) {
	c := openCL(t)
	if _, err := c.dev.Compiler(); err != nil {
		t.Skip("left out: ", err)
	}
	a := c.dense(t, dtype.Float32, 10)
	dir := t.TempDir()
	run := func(what string, compiled int, want loader.DiskStats) {
		t.Helper()
		disk := loader.OpenDisk(&config.Config{KernelCache: true, KernelCachePath: dir})
		l, err := loader.New(c.dev, disk)
		must(t, err)
		old := c.loader
		c.loader = l
		defer func() { c.loader = old }()
		for k := range 10 {
			a.set(make([]complex128, 10))
			a.data[4*k+3] = 0xbf // -0.5
			var p Plan
			must(t, p.Elementwise("abs", dtype.Float32, []Operand{a.Operand}, []Operand{a.Operand}))
			must(t, c.run(&p))
			if got := a.elements()[k]; got != 0.5 {
				t.Fatalf("%s: %v", what, got)
			}
		}
		if l.Compiled() != compiled || disk.Stats() != want {
			t.Errorf("%s: %d kernels compiled, %+v", what, l.Compiled(), disk.Stats())
		}
	}
	run("the first time", 1, loader.DiskStats{Misses: 1})
	run("the second time", 0, loader.DiskStats{Hits: 1})

	name, err := c.dev.Compiler()
	must(t, err)
	s := text.Spec{Family: ElementwiseFamily, Op: "abs", Compute: dtype.Float32, Block: threads, Outs: 1, Ins: 1}
	s.Types[0], s.Types[1] = dtype.Float32, dtype.Float32
	s, _, _ = c.loader.Fit(&loader.Call{Spec: s, Grid: device.Dim{X: 1}, Block: device.Dim{X: threads},
		Shape: loader.AnyGrid}, 0)
	src, err := s.Source()
	must(t, err)
	key := kept.KeyOf("opencl "+name, []byte(src.For(text.OpenCL)))
	files := kept.Open(dir)
	if _, err := files.Get(key); err != nil {
		t.Fatal("the kernel has another key: ", err)
	}
	must(t, files.Put(key, []byte("\x00a whole file with a program of no device\x00")))
	run("a program that the device refuses", 1, loader.DiskStats{Hits: 1, Misses: 1, Failures: 1})
	run("after that", 0, loader.DiskStats{Hits: 1})
}

// A device that compiles no sources has no loader.
func TestLoaderRefused(t *testing.T) {
	if _, ok := text.TargetOf("accinte"); ok {
		t.Error("an emulated device is a target")
	}
}
