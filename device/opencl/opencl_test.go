//go:build linux && (amd64 || arm64)

package opencl_test

import (
	_ "embed"
	"os"
	"path/filepath"
	"testing"

	"github.com/chorus-comms/chorus/device/devicetest"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// source has the functions that the suite launches, in OpenCL C.
//
//go:embed module.cl
var source []byte

// TestMain keeps PoCL's own cache where it is by default. PoCL asks once in a process, and its compiler refuses every
// source after the folder is gone: tests that set XDG_CACHE_HOME would take it along.
func TestMain(m *testing.M) {
	if home, err := os.UserCacheDir(); err == nil && os.Getenv("POCL_CACHE_DIR") == "" {
		os.Setenv("POCL_CACHE_DIR", filepath.Join(home, "pocl", "kcache"))
	}
	os.Exit(m.Run())
}

// load finds the machine's OpenCL, or else what `make opencl` has installed.
func load(t testing.TB) []*opencl.Library {
	t.Helper()
	libraries, err := opencl.Load()
	if err != nil {
		t.Setenv("VIRTUAL_ENV", filepath.Join(testutil.ModuleRoot(t), ".venvs", "opencl"))
		if libraries, err = opencl.Load(); err != nil {
			t.Skipf("left out: `make opencl` installs PoCL: %v", err)
		}
	}
	return libraries
}

// open makes a driver of it, which ends with the test.
func open(t testing.TB, o opencl.Options) driver.Driver {
	t.Helper()
	d, err := opencl.New(load(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.(driver.Closer).Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// compiles reports whether the compiler of a device works on this machine: PoCL 3.0's refuses processors that it
// doesn't know.
func compiles(t testing.TB, d driver.Driver, dev int) bool {
	m, err := d.(driver.Modules).ModuleLoad(dev, source)
	if err != nil {
		t.Logf("without modules: %v", err)
		return false
	}
	return d.(driver.Modules).ModuleUnload(m) == nil
}

func TestConformance(t *testing.T) {
	for name, o := range map[string]opencl.Options{"shared": {}, "buffers": {Buffers: true}, "commands": {CommandBuffers: true}} {
		if o.CommandBuffers && !recorded(t) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			d := open(t, o)
			options := []devicetest.Option{devicetest.SharedMemory(), devicetest.Programs(testutil.Pick(10, 100)),
				devicetest.Module(source), devicetest.Skip("Kernels/HostAccess")} // the addresses are the processor's, too
			n, err := d.DeviceCount()
			if err != nil {
				t.Fatal(err)
			}
			for dev := range n {
				if !compiles(t, d, dev) {
					options = append(options, devicetest.Skip([]string{"Modules", "Modules/WrongDevice"}[min(dev, 1)]))
				}
			}
			devicetest.Run(t, d, options...)
		})
	}
}
