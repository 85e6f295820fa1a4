package testutil

import (
	"os"
	"testing"
)

// OpenMPIFolder is a variable of the environment that gives a job of Open MPI, or a rank without a launcher, a folder
// of its own for its session. Each creates and removes one folder for all jobs of the user otherwise, and fails if
// another creates it at the same moment (4.1.4: "mkdir ... File exists"). The path is short, as it has sockets in it.
func OpenMPIFolder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mpi")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return "OMPI_MCA_orte_tmpdir_base=" + dir
}
