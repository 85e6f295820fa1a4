package testutil

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ModuleRoot returns the root directory of the module.
func ModuleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the working directory")
		}
		dir = parent
	}
}

// Python returns the path of a Python that has PyTorch: of the one that `make venv` installs into .venv at the root of
// the module, or what CHORUS_TEST_PYTHON names. Where it is missing, or CHORUS_TEST_PYTORCH=0 says to do without, the
// test is skipped with the reason.
func Python(t testing.TB) string {
	t.Helper()
	if os.Getenv("CHORUS_TEST_PYTORCH") == "0" {
		t.Skip("left out: PyTorch checks are off (CHORUS_TEST_PYTORCH=0)")
	}
	if python := os.Getenv("CHORUS_TEST_PYTHON"); python != "" {
		return python
	}
	venv := filepath.Join(ModuleRoot(t), ".venv")
	if done, _ := filepath.Glob(filepath.Join(venv, "torch-*.ok")); len(done) == 0 {
		t.Skipf("left out: no PyTorch in %s (run `make venv`)", venv)
	}
	return filepath.Join(venv, "bin", "python")
}

// PythonCommand prepares a Python script, which sees args from sys.argv[1] on. It is
// killed when the test ends.
func PythonCommand(t testing.TB, script string, args ...string) *exec.Cmd {
	t.Helper()
	python := Python(t)
	cmd := exec.CommandContext(t.Context(), python, append([]string{"-c", script}, args...)...)
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = PythonEnv()
	return cmd
}

// PythonEnv is the environment for PyTorch processes: this one's, without GPUs and
// without what a surrounding launcher may have set.
func PythonEnv(extra ...string) []string {
	drop := map[string]bool{"RANK": true, "WORLD_SIZE": true, "LOCAL_RANK": true, "LOCAL_WORLD_SIZE": true,
		"MASTER_ADDR": true, "MASTER_PORT": true, "TORCHELASTIC_USE_AGENT_STORE": true}
	var env []string
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); !drop[name] {
			env = append(env, kv)
		}
	}
	// PyTorch asks for the names of the addresses that it connects; a resolver
	// that does not answer would cost 5 s each time.
	// Backends and devices that the environment has, ours included, may be half installed at this moment.
	env = append(env, "CUDA_VISIBLE_DEVICES=", "OMP_NUM_THREADS=1", "PYTHONUNBUFFERED=1",
		"RES_OPTIONS=timeout:1 attempts:1", "TORCH_DEVICE_BACKEND_AUTOLOAD=0")
	return append(env, extra...)
}
