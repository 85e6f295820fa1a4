package comm_test

import (
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/comm"
)

// TestDefaultBackend makes communicators of programs that name no backend.
func TestDefaultBackend(t *testing.T) {
	t.Setenv("CHORUS_BACKEND", "fake")
	for want, opts := range map[string][]comm.NewOption{"fake": nil, "native": {comm.WithBackend("native")}} {
		c, err := comm.New(t.Context(), append(opts, comm.WithRank(0, 1))...)
		if err != nil {
			t.Fatal(err)
		}
		if c.Backend() != want {
			t.Errorf("backend %s, want %s", c.Backend(), want)
		}
		if err := c.Finalize(t.Context()); err != nil {
			t.Error(err)
		}
	}
	t.Setenv("CHORUS_BACKEND", "mpi")
	if _, err := comm.New(t.Context(), comm.WithRank(0, 1)); err == nil || !strings.Contains(err.Error(), "import _") {
		t.Errorf("a backend that isn't imported: %v", err)
	}
}
