package kernel

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/kernel/library"
	"github.com/chorus-comms/chorus/kernel/loader"
)

// Runs of more blocks than a launch may have are several launches, with the same results: the package's tests hold on a
// device whose launches have 3, 2 and 2 blocks at most.
func TestParts(t *testing.T) {
	if os.Getenv(formVariable) != "" {
		t.Skip("left out: it's the child")
	}
	openCL(t)
	cmd := exec.Command(os.Args[0], "-test.run="+testutil.Pick("^TestRandomWide$", "Torch$|^TestRandom"))
	cmd.Env = append(os.Environ(), formVariable+"="+partsForm)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A library is asked for products of more matrices, rows or columns than a launch of kernels may have blocks for.
func TestManyMatrices(t *testing.T) {
	for _, x := range []struct{ count, rows, columns int }{{70_000, 16, 16}, {1, 5_000_000, 64}, {1, 64, 5_000_000}} {
		at := func(ptr int, sizes ...int) Operand {
			return Operand{Ptr: 1 << 40 * device.Ptr(ptr), Type: dtype.Float32, Sizes: sizes, Strides: Dense(sizes...)}
		}
		p := &Plan{GEMM: dtype.SetOf(dtype.Float32)}
		err := p.Matmul(at(1, x.count, x.rows, x.columns), at(2, x.count, x.rows, 8), at(3, x.count, 8, x.columns), Operand{},
			Int(1), Int(1), "")
		if err != nil || len(p.Calls) != 1 || p.Calls[0].Library.Kind != library.GEMM {
			t.Errorf("%v: %d runs, error %v", x, len(p.Calls), err)
		}
	}
}

// fewThreads is a driver whose blocks have few threads, as those of kernels with many registers have.
type fewThreads struct {
	driver.Driver
	driver.Modules
	most int
}

func (d *fewThreads) FunctionAttributes(f driver.FunctionHandle) (driver.FunctionAttributes, error) {
	a, err := d.Modules.FunctionAttributes(f)
	a.MaxThreads = d.most
	return a, err
}

func (d *fewThreads) FunctionLaunch(s driver.StreamHandle, f driver.FunctionHandle, l driver.Launch) error {
	if n := l.Block.OrOne().Count(); n > d.most {
		return driver.Errorf(driver.ErrInvalidArgument, "device", "launch", "blocks of %d threads, of %d", n, d.most)
	}
	return d.Modules.FunctionLaunch(s, f, l)
}

// Where a block can't have the threads of a kernel's, it has fewer, or the kernel is refused as if it didn't compile;
// so is one that needs more local memory than there is. Nothing is enqueued then.
func TestFewThreads(t *testing.T) {
	openCL(t)
	libraries, err := opencl.Load()
	must(t, err)
	drv, err := opencl.New(libraries, opencl.Options{})
	must(t, err)
	few := &fewThreads{drv, drv.(driver.Modules), 48}
	c := &cl{dev: device.NewRuntime("opencl", few).Devices()[0]}
	c.stream, err = c.dev.NewStream(0)
	must(t, err)
	c.loader, err = loader.New(c.dev, nil)
	must(t, err)
	c.loader.As(loader.Processor{})
	const n = 1000
	a, sum, image := c.dense(t, dtype.Float32, n), c.dense(t, dtype.Float32, 1), c.dense(t, dtype.Float32, 1, 1, 2*n)
	ones := make([]complex128, n)
	for i := range ones {
		ones[i] = complex(float64(i%7), 0)
	}
	a.set(ones)
	for range 2 { // also when it's known
		p := Plan{Scratch: func(n int) (device.Ptr, error) { return c.dense(t, dtype.Uint8, n).Ptr, nil }}
		must(t, p.Elementwise("neg", dtype.Float32, []Operand{a.Operand}, []Operand{a.Operand}))
		must(t, p.Reduce("sum", dtype.Float32, []Operand{sum.Operand}, a.Operand, []int{0}))
		in := a.Operand
		in.Sizes, in.Strides = []int{1, 1, n}, []int{n, n, 1}
		must(t, p.Upsample(image.Operand, in, &Upsampling{Mode: "nearest"}))
		must(t, c.run(&p))
	}
	total := 0.0
	for i, z := range ones {
		total += real(z)
		if got := image.elements()[2*i+1]; got != z {
			t.Fatalf("element %d of the image is %v, want %v", i, got, z)
		}
	}
	if got := sum.elements()[0]; real(got) != total {
		t.Errorf("the sum is %v, want %v", got, total)
	}
	x := c.dense(t, dtype.Float32, 4, 4)
	x.set(make([]complex128, 16))
	refuse := func(what string, c *cl) {
		var p Plan
		must(t, p.Elementwise("exp", dtype.Float32, []Operand{x.Operand}, []Operand{x.Operand}))
		must(t, p.Matmul(x.Operand, x.Operand, x.Operand, Operand{}, Int(1), Int(1), ""))
		_, is := errors.AsType[*loader.CompileError](c.run(&p))
		must(t, c.stream.CopyOut(t.Context(), x.data, x.Ptr))
		if !is || x.elements()[0] != 0 {
			t.Errorf("%s: a product isn't refused as a whole; the first element is %v", what, x.elements()[0])
		}
	}
	refuse("few threads", c)
	few.most = 4096
	if c.loader, err = loader.New(c.dev, nil); err != nil {
		t.Fatal(err)
	}
	c.loader.As(loader.Processor{})
	c.loader.Within(device.Properties{LocalMemory: 1 << 10})
	refuse("little local memory", c)
}

// Arguments that a device has no room for are refused.
func TestArgumentBytes(t *testing.T) {
	l, err := loader.New(openCL(t).dev, nil)
	if err != nil {
		t.Fatal(err)
	}
	var args device.Args
	for range 128 {
		args.Int64(1)
	}
	l.Within(device.Properties{ArgumentBytes: 1024})
	if err := l.Takes(&args); err != nil {
		t.Error(err)
	}
	args.Int32(1)
	if err := l.Takes(&args); !errors.Is(err, device.ErrUnsupported) {
		t.Errorf("4 bytes too many give %v", err)
	}
}
