package kernel

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/device/gpu/emulated/emulatedtest"
)

// Kernels of all families compute the same on an emulated GPU of either vendor, where reads and writes outside of
// allocations, races, missing barriers and lanes, misaligned vectors and indexes that overflow are errors.
func TestEmulatedGPU(t *testing.T) {
	if os.Getenv("CHORUS_TEST_LONG") == "" {
		t.Skip("left out: it takes some minutes; CHORUS_TEST_LONG=1 runs it")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, driver := range []string{"cuda", "hip"} {
		libraries := emulatedtest.Build(t, driver)
		for _, family := range kernelTests {
			t.Run(driver+"/"+family, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
				defer cancel()
				c := exec.CommandContext(ctx, self, "-test.run=^Test"+family, "-test.v")
				c.Env = append(os.Environ(), deviceVariable+"="+driver+":0", "CHORUS_TEST_LONG=", "CHORUS_TEST_SHORT=1")
				c.Env = append(c.Env, emulatedtest.Environment(libraries)...)
				if out, err := c.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				} else if !strings.Contains(string(out), "--- PASS") {
					t.Errorf("no test has run:\n%s", out)
				}
			})
		}
	}
}
