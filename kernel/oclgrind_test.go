package kernel

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// oclgrind is Oclgrind as a driver of OpenCL, where Debian has it.
const oclgrind = "/usr/lib/oclgrind/liboclgrind-rt-icd.so"

// kernelTests are how the names of tests begin that run kernels of the families.
var kernelTests = []string{"Elementwise", "Types", "Scan", "Reduce", "Sort", "Search", "Masked", "Loss", "Index",
	"Row", "Pool", "Unpool", "Upsample", "Pad", "Columns", "Foreach", "Optimize", "List", "Bag", "Grid", "Random",
	"Distance", "Matmul", "Float8", "ScaledMatmul", "IntMatmul", "Convolution", "Attention", "MatrixUnitTorch"}

// Kernels neither touch memory beside their operands nor race: a sample of each family runs on Oclgrind, which
// simulates a device and says so. Each runs in the forms that processors have, and in those of GPUs.
func TestOclgrind(t *testing.T) {
	if os.Getenv("CHORUS_TEST_LONG") == "" {
		t.Skip("left out: it takes some minutes; CHORUS_TEST_LONG=1 runs it")
	}
	library := oclgrind
	if where := os.Getenv("CHORUS_OCLGRIND"); where != "" {
		library = where
	}
	if _, err := os.Stat(library); err != nil {
		t.Skip("left out: Oclgrind isn't here: ", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range kernelTests {
		for _, form := range []string{processorForm, gpuForm} {
			t.Run(family+"/"+form, func(t *testing.T) { onOclgrind(t, self, library, family, form) })
		}
	}
}

// onOclgrind runs the tests of a family on Oclgrind, in another process.
func onOclgrind(t *testing.T, self, library, family, form string) {
	log := filepath.Join(t.TempDir(), "log")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, self, "-test.run=^Test"+family, "-test.v")
	c.Env = append(os.Environ(), "CHORUS_OPENCL_LIBRARY="+library, "OCLGRIND_DATA_RACES=1", "OCLGRIND_LOG="+log,
		"OCLGRIND_LOCAL_MEM_SIZE=262144",       // as much as tiles of processors need
		"OCLGRIND_BUILD_OPTIONS=-Ucl_khr_fp16", // of which it lacks functions
		"CHORUS_TEST_LONG=", "CHORUS_TEST_SHORT=1", formVariable+"="+form)
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	} else if !strings.Contains(string(out), "--- PASS") {
		t.Errorf("no test has run:\n%s", out)
	}
	said, _ := os.ReadFile(log) // it's there if there's something to say
	for _, s := range regexp.MustCompile(`\n\n+(?:\S)`).Split("\n\n"+string(said), -1) {
		// A loop that compares and swaps first reads the word as it is: another value makes the swap fail.
		if s = strings.TrimSpace(s); s != "" && !(strings.Contains(s, "old.word = *word;") &&
			strings.Contains(s, "cmpxchg")) {
			t.Errorf("Oclgrind says:\n%s", s)
		}
	}
}
