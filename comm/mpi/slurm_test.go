package mpi

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/comm/commtest"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/internal/testutil/slurmtest"
)

// TestSlurm has srun start the ranks, on two nodes of a real Slurm. Open MPI finds the other ranks by PMIx, and
// MPICH by PMI2, and Intel MPI by either.
func TestSlurm(t *testing.T) {
	if inRank() {
		j := begin(t)
		if j.size != 3 {
			t.Errorf("a world of %d", j.size)
		}
		if !testutil.Short() {
			commtest.Run(t, j.suite())
		}
		j.end(t)
		return
	}
	all := installations()
	if len(all) == 0 {
		t.Skip("left out: there is no MPI")
	}
	c := slurmtest.Start(t, 2)
	t.Logf("%s, srun --mpi=%s", c.Version, strings.Join(c.MPI, ","))
	type start struct {
		mpi
		plugin string
	}
	var starts []start
	for _, m := range all {
		switch {
		case strings.HasSuffix(m.library, "libmpi.so.40") || m.library == "" && m.openMPI():
			starts = append(starts, start{m, "pmix"})
		case strings.HasPrefix(m.name, "impi"):
			starts = append(starts, start{m, "pmi2"}, start{m, "pmix"})
		default: // this MPICH knows no PMIx
			starts = append(starts, start{m, "pmi2"})
		}
	}
	for _, m := range starts {
		plugin := m.plugin
		t.Run(m.name+" by "+plugin, func(t *testing.T) {
			if !slices.Contains(c.MPI, plugin) {
				t.Skipf("left out: this Slurm has no %s", plugin)
			}
			cmd := c.Command("srun", "--quiet", "--kill-on-bad-exit", "--mpi="+plugin, "-n", "3", "-N", "2", os.Args[0],
				"-test.timeout=5m", "-test.run=^TestSlurm$")
			cmd.Env = append(append(cmd.Env, m.env...), storeVar+"="+filepath.Join(t.TempDir(), "store"))
			if strings.HasPrefix(m.name, "mpich-5") {
				// Over UCX, MPICH 5.0.2 loses messages between hosts to receives from any source: docs/mpi.md.
				cmd.Env = append(cmd.Env, "MPIR_CVAR_CH4_NETMOD=ofi")
			}
			if m.library != "" {
				cmd.Env = append(cmd.Env, "CHORUS_MPI_LIBRARY="+m.library)
			}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
