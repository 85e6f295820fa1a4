package examples

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/internal/testutil"
)

// TestMixed has torchrun run a job of two ranks of PyTorch and one in Go.
func TestMixed(t *testing.T) {
	testutil.SkipIfShort(t)
	python := testutil.Python(t)
	program := filepath.Join(t.TempDir(), "mixed")
	if out, err := exec.Command("go", "build", "-o", program, "./mixed").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3",
		"--no-python", "sh", "mixed/run.sh", program)
	cmd.Env = testutil.PythonEnv("PYTHON="+python, "GLOO_SOCKET_IFNAME=lo")
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if want := `step 50: loss 0\.00\d+ over 128 samples`; !regexp.MustCompile(want).Match(out) {
		t.Errorf("no line matches %q:\n%s", want, out)
	}
}
