//go:build linux && (amd64 || arm64)

package emulatedtest

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/device/devicetest"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// family is what a process that a test has started has.
const family = "EMULATED_GPU_TEST_FAMILY"

// here runs f in a process that finds the libraries of an emulated GPU as it would the vendor's, for both families.
func here(t *testing.T, env []string, f func(t *testing.T, d *gpu.Driver)) {
	t.Helper()
	testutil.SkipIfShort(t)
	if name := os.Getenv(family); name != "" {
		lib, err := gpu.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		d, err := gpu.New(lib)
		if err != nil {
			t.Fatal(err)
		}
		f(t, d)
		return
	}
	for _, name := range []string{"cuda", "hip"} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()[:len(t.Name())-len(name)-1]+"$", "-test.timeout=5m")
			cmd.Env = append(append(os.Environ(), Environment(Build(t, name))...), family+"="+name)
			cmd.Env = append(cmd.Env, env...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func must[T any](t *testing.T) func(x T, err error) T {
	return func(x T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
}

func succeed(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// accumulator is a kernel that adds 1 to each of some numbers.
type accumulator struct {
	d *gpu.Driver
	f driver.FunctionHandle
	s driver.StreamHandle
	p driver.Ptr
}

const numbers = 64

func newAccumulator(t *testing.T, d *gpu.Driver) accumulator {
	t.Helper()
	m := must[driver.ModuleHandle](t)(d.ModuleLoad(0, devicetest.Source))
	a := accumulator{d, must[driver.FunctionHandle](t)(d.ModuleFunction(m, "accumulate")),
		must[driver.StreamHandle](t)(d.StreamCreate(0, 0)), must[driver.Ptr](t)(d.Malloc(0, 4*numbers))}
	succeed(t, d.Fill(a.s, a.p, 0, 4*numbers))
	return a
}

func (a accumulator) launch(grid, block driver.Dim) error {
	args := new(driver.Args)
	args.Pointer(a.p)
	args.Int32(numbers)
	return a.d.FunctionLaunch(a.s, a.f, driver.Launch{Grid: grid, Block: block, Args: args})
}

func (a accumulator) wait() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return a.d.StreamSynchronize(ctx, a.s)
}
