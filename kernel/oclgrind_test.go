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

// Kernels neither touch memory beside their operands nor race: a sample of each family runs on Oclgrind, which simulates
// a device and says so. Products, attention and convolutions take it too long.
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
	for _, family := range []string{"Scan", "Reduce", "Sort", "Search", "Masked", "Loss", "Index", "Row", "Pool", "List",
		"Bag", "Grid", "Random", "Distance"} {
		t.Run(family, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			c := exec.CommandContext(ctx, self, "-test.run=^Test"+family, "-test.v")
			c.Env = append(os.Environ(), "CHORUS_OPENCL_LIBRARY="+library, "OCLGRIND_DATA_RACES=1", "OCLGRIND_LOG="+log,
				"CHORUS_TEST_LONG=", "CHORUS_TEST_SHORT=1")
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			said, _ := os.ReadFile(log) // it's there if there's something to say
			for _, s := range regexp.MustCompile(`\n\n+(?:\S)`).Split("\n\n"+string(said), -1) {
				// A loop that compares and swaps first reads the word as it is: another value makes the swap fail.
				if s = strings.TrimSpace(s); s != "" && !(strings.Contains(s, "old.word = *word;") &&
					strings.Contains(s, "cmpxchg")) {
					t.Errorf("Oclgrind says:\n%s", s)
				}
			}
		})
	}
}
