package emulatedtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/internal/testutil"
)

// Build returns the folder of a family's libraries, "cuda" or "hip", which it builds unless they are there. A test is
// left out where there is no C++ compiler.
func Build(t testing.TB, family string) string {
	t.Helper()
	cxx := os.Getenv("CXX")
	if cxx == "" {
		cxx = "g++"
	}
	if _, err := exec.LookPath(cxx); err != nil {
		t.Skip("left out: ", err)
	}
	script := filepath.Join(testutil.ModuleRoot(t), "scripts", "on-emulated-gpu.sh")
	out, err := exec.Command("bash", script, family).Output()
	if err != nil {
		said := ""
		if e, ok := err.(*exec.ExitError); ok {
			said = string(e.Stderr)
		}
		t.Fatalf("%s: %v: %s", script, err, said)
	}
	return strings.TrimSpace(string(out))
}

// Environment is what a process needs so that its GPU is the emulated one.
func Environment(libraries string) []string {
	env := []string{"LD_LIBRARY_PATH=" + libraries}
	for _, library := range []string{"BLAS", "FFT", "SOLVER", "SPARSE"} {
		env = append(env, "CHORUS_"+library+"_LIBRARY=none")
	}
	return append(env, "DISABLE_HIPBLASLT=1")
}
