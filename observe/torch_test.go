package observe_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/observe"
)

// TestTorch has PyTorch's own analyzer read what real ranks dumped: as files for its command, and as the JSON that
// they are.
func TestTorch(t *testing.T) {
	testutil.Python(t) // before any work
	for name, want := range map[string][]string{
		"hang": {"Not all ranks joining collective, sequence number: 12", "Missing ranks: {2}", "all_reduce",
			"job_test.go"},
		"mismatch": {"sequence number: 12 has errors", "COLLECTIVE_DTYPE_MISMATCH", "Double", "Culprit rank 2"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "hang" {
				testutil.SkipIfShort(t)
			}
			_, dumps := job(t, name)
			dir := filepath.Join(t.TempDir(), "torch")
			if err := observe.WriteTorch(dir, dumps); err != nil {
				t.Fatal(err)
			}
			cmd := testutil.PythonCommand(t, `
import sys
from torch.distributed.flight_recorder import fr_trace
fr_trace.main([sys.argv[1], "--print_stack_trace"])
`, dir)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, w := range want {
				if !strings.Contains(strings.ToLower(string(out)), strings.ToLower(w)) {
					t.Errorf("the analyzer doesn't say %q:\n%s", w, out)
				}
			}
		})
	}
}
