//go:build linux && (amd64 || arm64)

package emulatedtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chorus-comms/chorus/internal/testutil"
)

// Each check of the executor finds a kernel with the fault that it's for, and nothing in kernels without one: the cases
// are those of testdata/executor_test.cpp.
func TestChecks(t *testing.T) {
	testutil.SkipIfShort(t)
	program := build(t, "testdata/executor_test.cpp", "calls.cpp", "checks.cpp", "compiler.cpp", "executor.cpp",
		"fiber.cpp", "module.cpp", "shadow.cpp", "source.cpp", "warp.cpp", "worker.cpp")
	for _, compiler := range []string{"clang++", "g++"} {
		t.Run(compiler, func(t *testing.T) {
			if _, err := exec.LookPath(compiler); err != nil {
				t.Skip("left out: ", err)
			}
			cmd := exec.Command(program)
			cmd.Env = append(os.Environ(), "EMULATED_GPU_COMPILER="+compiler)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v:\n%s", err, out)
			}
		})
	}
}

// build compiles sources of the emulated GPU to a program.
func build(t *testing.T, sources ...string) string {
	t.Helper()
	cxx := os.Getenv("CXX")
	if cxx == "" {
		cxx = "g++"
	}
	if _, err := exec.LookPath(cxx); err != nil {
		t.Skip("left out: ", err)
	}
	folder := filepath.Join(testutil.ModuleRoot(t), "device", "gpu", "emulated")
	program := filepath.Join(t.TempDir(), "program")
	args := []string{"-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-rdynamic", "-pthread", "-I" + folder,
		`-DEMULATED_SOURCES="` + folder + `"`, "-o", program}
	for _, s := range sources {
		args = append(args, filepath.Join(folder, s))
	}
	if out, err := exec.Command(cxx, append(args, "-ldl")...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v:\n%s", cxx, err, out)
	}
	return program
}
