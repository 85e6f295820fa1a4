package bootstrap

import (
	"errors"
	"strconv"
	"strings"
)

func readTorchComm(e env) (*Info, error) {
	switch {
	case !e.has("TORCHCOMM_RANK") && !e.has("TORCHCOMM_SIZE"):
		return nil, nil
	case !e.has("TORCHCOMM_RANK"):
		return nil, errors.New("TORCHCOMM_SIZE is set, but not TORCHCOMM_RANK")
	case !e.has("TORCHCOMM_SIZE"):
		return nil, errors.New("TORCHCOMM_RANK is set, but not TORCHCOMM_SIZE")
	}
	i, err := e.world("TORCHCOMM_RANK", "TORCHCOMM_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "", "")
	if err == nil {
		err = i.elastic(e)
	}
	return i, err
}

func readChorusRun(e env) (*Info, error) {
	if !e.has("CHORUS_RUN", "RANK", "WORLD_SIZE") {
		return nil, nil
	}
	i, err := readTorchRun(e)
	if err == nil {
		i.RunID = e.get("CHORUS_RUN")
	}
	return i, err
}

func readElastic(e env) (*Info, error) {
	if !e.has("TORCHELASTIC_RUN_ID") {
		return nil, nil
	}
	return readTorchRun(e)
}

func readTorchRun(e env) (*Info, error) {
	if !e.has("RANK", "WORLD_SIZE") {
		return nil, nil
	}
	i, err := e.world("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
	if err == nil {
		err = i.elastic(e)
	}
	return i, err
}

// elastic reads what torchrun says about the job.
func (i *Info) elastic(e env) (err error) {
	i.RunID = e.get("TORCHELASTIC_RUN_ID")
	i.AgentStore = e.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
	i.RestartCount, err = e.number("TORCHELASTIC_RESTART_COUNT", 0)
	return err
}

// readOpenMPI reads what mpirun of Open MPI sets. The number of the job repeats
// after some ten thousand processes; with the address of mpirun it is unique.
func readOpenMPI(e env) (*Info, error) {
	if !e.has("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE") {
		return nil, nil
	}
	i, err := e.world("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
		"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "", "")
	job := e.get(e.first("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"))
	if job != "" {
		i.RunID = job + "@" + e.get("OMPI_MCA_orte_hnp_uri")
	}
	return i, err
}

func readPMI(e env) (*Info, error) {
	if !e.has("PMI_RANK", "PMI_SIZE") {
		return nil, nil
	}
	i, err := e.world("PMI_RANK", "PMI_SIZE", e.first("MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID"),
		e.first("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"), "", "")
	if err != nil {
		return nil, err
	}
	return i, i.slurmPlace(e)
}

// readPMIx takes the size from elsewhere: PMIx tells it only to its own clients.
func readPMIx(e env) (*Info, error) {
	size := e.first("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "WORLD_SIZE")
	if !e.has("PMIX_RANK") || size == "" {
		return nil, nil
	}
	i, err := e.world("PMIX_RANK", size, e.first("PMIX_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"),
		e.first("MPI_LOCALNRANKS"), "", "")
	if err != nil {
		return nil, err
	}
	i.RunID = e.get("PMIX_NAMESPACE")
	return i, i.slurmPlace(e)
}

func readPALS(e env) (*Info, error) {
	size := e.first("PALS_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "WORLD_SIZE")
	if !e.has("PALS_RANKID") || size == "" {
		return nil, nil
	}
	i, err := e.world("PALS_RANKID", size, "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE", "PALS_NODEID", "")
	i.RunID = e.get("PALS_APID")
	return i, err
}

// readKubernetes reads what an indexed job gives its pods: one rank in each. The
// size is WORLD_SIZE, which the manifest has to set, as it does the name of the
// headless service in JOB_SERVICE, by which the first pod has an address. The
// pods of job j are called j-0, j-1 and so on.
func readKubernetes(e env) (*Info, error) {
	if !e.has("JOB_COMPLETION_INDEX", "WORLD_SIZE") {
		return nil, nil
	}
	i, err := e.world("JOB_COMPLETION_INDEX", "WORLD_SIZE", "", "", "JOB_COMPLETION_INDEX", "WORLD_SIZE")
	if err != nil {
		return nil, err
	}
	i.LocalRank, i.LocalSize = 0, 1
	job, ok := strings.CutSuffix(e.get("HOSTNAME"), "-"+strconv.Itoa(i.Rank))
	if !ok {
		return i, nil
	}
	i.RunID = job
	if e.has("JOB_SERVICE") {
		// A pod has its port numbers to itself.
		i.MasterAddr, i.MasterPort = job+"-0."+e.get("JOB_SERVICE"), defaultPort
	}
	return i, nil
}
