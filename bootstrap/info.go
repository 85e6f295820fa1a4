package bootstrap

import (
	"errors"
	"fmt"
	"net"
	"strconv"
)

// The launchers that Detect knows, as they stand in Info.Launcher.
const (
	TorchComm  = "torchcomm" // TORCHCOMM_RANK and TORCHCOMM_SIZE, set by hand
	ChorusRun  = "chorus"
	TorchRun   = "torchrun" // and whatever else sets RANK and WORLD_SIZE
	OpenMPI    = "openmpi"
	PMI        = "pmi" // MPICH's Hydra, Intel MPI, srun --mpi=pmi2
	PMIx       = "pmix"
	PALS       = "pals"
	Slurm      = "slurm"
	Kubernetes = "kubernetes"
)

// MaxRanks is the largest world size. Nothing is allocated for a larger one.
const MaxRanks = 1 << 20

// CheckWorld refuses a rank and a size that make no sense together, or a world of more than MaxRanks.
func CheckWorld(rank, size int) error {
	switch {
	case size > MaxRanks:
		return fmt.Errorf("a world of %d ranks is larger than the largest, %d", size, MaxRanks)
	case rank < 0 || rank >= size:
		return fmt.Errorf("rank %d is not in a world of %d", rank, size)
	}
	return nil
}

// Info says where this process stands in its job.
type Info struct {
	Rank, Size int
	// LocalRank counts within the host and LocalSize is how many ranks the host
	// has; -1 and 0 if the launcher does not say.
	LocalRank, LocalSize int
	// NodeRank is the number of the host and Nodes how many there are; -1 and 0
	// if the launcher does not say.
	NodeRank, Nodes int
	// Launcher is the one whose variables were found.
	Launcher string
	// MasterAddr and MasterPort are where the ranks meet: the store itself where MASTER_ADDR is a relay of chorus run.
	// MasterAddr is empty if the launcher names no place; Open then finds one if all ranks share a host.
	MasterAddr string
	MasterPort int
	// AgentStore is set if the launcher serves the store itself, so that no rank
	// must.
	AgentStore bool
	// RunID tells this job from others; empty if the launcher does not name it.
	RunID string
	// RestartCount is how often the launcher has restarted the ranks.
	RestartCount int

	rankVar string // the variable that the rank was read from
	direct  bool   // the store is chorus run's own, whatever says what the rank is
	shared  bool   // jobs on the host of rank 0 may have the same port
}

// ErrNoLauncher is what Detect returns, wrapped, when no variable of any launcher
// is set. Whether that means a world of one is for the caller to decide.
var ErrNoLauncher = errors.New("bootstrap: no launcher found")

// OneHost reports whether the launcher says that all ranks share this host.
func (i Info) OneHost() bool { return i.LocalSize > 0 && i.LocalSize == i.Size || i.Nodes == 1 }

// Key identifies the place where the ranks of this job meet, within a process.
func (i Info) Key() string {
	return fmt.Sprintf("%s|%s|%s|%d|%d", i.Launcher, i.RunID, i.master(), i.RestartCount, i.Size)
}

// master is the address of the store as host:port, or empty.
func (i Info) master() string {
	if i.MasterAddr == "" {
		return ""
	}
	return net.JoinHostPort(i.MasterAddr, strconv.Itoa(i.MasterPort))
}
