package kernel

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/device"
	_ "github.com/chorus-comms/chorus/device/gpu" // emulated ones
	"github.com/chorus-comms/chorus/device/opencl"
	"github.com/chorus-comms/chorus/kernel/loader"
)

// cl is an OpenCL device.
type cl struct {
	dev    *device.Device
	stream *device.Stream
	loader *loader.Loader
	all    []*memory
}

// deviceVariable names another device than OpenCL's first: an emulated GPU.
const deviceVariable = "CHORUS_TEST_KERNEL_DEVICE"

// emulated reports whether that is so. Emulated GPUs have a matrix unit for numbers of 16 bits.
func emulated() bool { return os.Getenv(deviceVariable) != "" }

var openOnce = sync.OnceValues(func() (*cl, error) {
	name := os.Getenv(deviceVariable)
	if name == "" {
		name = "opencl:0"
	}
	if _, err := opencl.Load(); err != nil { // not of this machine: what `make opencl` has installed
		_ = os.Setenv("VIRTUAL_ENV", filepath.Join("..", ".venvs", "opencl"))
	}
	dev, err := device.Get(name)
	if err != nil {
		return nil, err
	}
	c := &cl{dev: dev}
	if c.stream, err = dev.NewStream(0); err == nil {
		c.loader, err = loader.New(dev, nil)
	}
	form := os.Getenv(formVariable)
	if err == nil && (form == gpuForm || form == partsForm) {
		c.loader.As(loader.Processor{})
	}
	if err == nil && form == partsForm {
		c.loader.Within(device.Properties{MostBlocks: device.Dim{X: 3, Y: 2, Z: 2}})
	}
	return c, err
})

// formVariable says in which form kernels run on a device that is a processor: as on one, as on a GPU, or as on a GPU
// whose launches are short.
const (
	formVariable  = "CHORUS_TEST_KERNEL_FORM"
	processorForm = "processor"
	gpuForm       = "GPU"
	partsForm     = "parts"
)

// openCL is the machine's OpenCL device, PoCL for example.
func openCL(t testing.TB) *cl {
	c, err := openOnce()
	if err != nil {
		t.Skip("left out: ", err)
	}
	if os.Getenv(deviceVariable) != "" {
		return c
	}
	if _, err = c.dev.LoadModule([]byte("__kernel void nothing() {}")); err != nil {
		t.Skip("left out: the device's compiler doesn't work: ", err)
	}
	return c
}

// memory is a device's, and what the host has of it.
type memory struct {
	ptr  device.Ptr
	host []byte
}

// alloc returns memory of the device until the end of the test, filled with 0xa5.
func (c *cl) alloc(t testing.TB, n int) *memory {
	p, err := c.dev.Malloc(n)
	if err != nil {
		t.Fatal(err)
	}
	m := &memory{p, bytes.Repeat([]byte{0xa5}, n)}
	c.all = append(c.all, m)
	t.Cleanup(func() {
		c.all = slices.DeleteFunc(c.all, func(x *memory) bool { return x == m })
		if err := c.dev.Free(p); err != nil {
			t.Error(err)
		}
	})
	return m
}

// run runs a plan's calls. Their memory is copied from the host to the device before, and back afterwards.
func (c *cl) run(p *Plan) error {
	used := map[*memory]bool{}
	for k := range p.Calls {
		p.Calls[k].Args.Pointers(func(at device.Ptr) {
			for _, m := range c.all {
				if at >= m.ptr && at < m.ptr.Add(len(m.host)) {
					used[m] = true
				}
			}
		})
	}
	ctx := context.Background()
	for m := range used {
		if err := c.stream.CopyIn(ctx, m.ptr, m.host); err != nil {
			return err
		}
	}
	if err := c.loader.Run(c.stream, p.Calls); err != nil {
		return err
	}
	if err := c.stream.Synchronize(ctx); err != nil {
		return err
	}
	for m := range used {
		if err := c.stream.CopyOut(ctx, m.host, m.ptr); err != nil {
			return err
		}
	}
	return nil
}
