//go:build linux && (amd64 || arm64)

package emulatedtest

import (
	"os"
	"os/exec"
	"testing"

	"github.com/chorus-comms/chorus/device/devicetest"
	"github.com/chorus-comms/chorus/device/gpu"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// family is what a process that a test has started has.
const family = "EMULATED_GPU_TEST_FAMILY"

// TestConformance runs the suite of drivers in a process that finds the emulated GPU's libraries, as it would the
// vendor's.
func TestConformance(t *testing.T) {
	testutil.SkipIfShort(t)
	for _, name := range []string{"cuda", "hip"} {
		t.Run(name, func(t *testing.T) {
			env := append(os.Environ(), Environment(Build(t, name))...)
			again(t, name, "TestConformanceHere", append(env, "EMULATED_GPU_DEVICES=2", "EMULATED_GPU_QUEUES=64")) // cases hold streams back
		})
	}
}

// again runs one of this program's tests in another process.
func again(t *testing.T, name, test string, env []string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(env, family+"="+name)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestConformanceHere(t *testing.T) {
	name := os.Getenv(family)
	if name == "" {
		t.Skip("left out: TestConformance runs it")
	}
	lib, err := gpu.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	d, err := gpu.New(lib)
	if err != nil {
		t.Fatal(err)
	}
	if !d.Waits(0) {
		t.Error("streams can't wait for words")
	}
	devicetest.Run(t, d, devicetest.Programs(testutil.Pick(10, 50)), devicetest.Module(devicetest.Source),
		devicetest.Skip("IPC", "IPCEvents")) // the libraries lack these
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
