package main

import (
	"slices"
	"strings"
)

// setting is a way to run a peer. Its name is the peer's, and what is special after a dot.
type setting struct {
	name  string
	env   []string
	args  []string
	class string // what it's measured for: classAll, classTCP or classCrowd
}

const (
	classAll   = ""      // two ranks on two cores, shared memory
	classTCP   = "tcp"   // the same, over loopback TCP
	classCrowd = "crowd" // more ranks than cores
)

// Each setting is the fastest of its library at some size in some placement, or was close to it.
var settings = []setting{
	{name: "ompi4"},
	{name: "ompi4.seg5", args: []string{"--mca", "coll_tuned_use_dynamic_rules", "1", "--mca",
		"coll_tuned_allreduce_algorithm", "5"}},
	{name: "ompi4.coll_sm", args: []string{"--mca", "coll_sm_priority", "100"}},
	{name: "ompi4.ucx", args: ucx},
	{name: "ompi5"},
	{name: "ompi5.seg5", args: []string{"--mca", "coll_tuned_use_dynamic_rules", "1", "--mca",
		"coll_tuned_allreduce_algorithm", "5"}},
	{name: "ompi5.ucx", args: ucx},
	{name: "mpich4", args: bindCore},
	{name: "mpich5", args: bindCore},
	{name: "mpich5.rg1M", args: bindCore, env: []string{"MPIR_CVAR_REDUCE_INTRANODE_BUFFER_TOTAL_SIZE=1048576",
		"MPIR_CVAR_BCAST_INTRANODE_BUFFER_TOTAL_SIZE=1048576"}},
	{name: "impi"},
	{name: "impi.adj13", env: []string{"I_MPI_ADJUST_ALLREDUCE=13"}},
	// {HOME} is the harness's folder.
	{name: "impi.heap.adj8", env: []string{"I_MPI_SHM_HEAP=1", "I_MPI_SHM_HEAP_VSIZE=2048",
		"LD_PRELOAD={HOME}/impi/lib/libmpi_shm_heap_proxy.so", "I_MPI_ADJUST_ALLREDUCE=8"}},
	{name: "ccl", env: []string{"CCL_ATL_TRANSPORT=mpi"}},
	{name: "ccl.ring", env: []string{"CCL_ATL_TRANSPORT=mpi", "CCL_ALLREDUCE=ring"}},
	{name: "ccl.ofi_shm", env: []string{"CCL_ATL_TRANSPORT=ofi", "CCL_ATL_SHM=1"}},
	{name: "vllm"},
	{name: "vllm.pin", args: []string{"pin"}},
	{name: "deepspeed"},
	{name: "deepspeed.pin", args: []string{"pin"}},
	{name: "gloo"},

	{name: "ompi4.tcp", class: classTCP, args: []string{"--mca", "pml", "ob1", "--mca", "btl", "tcp,self"}},
	{name: "ompi5.tcp", class: classTCP, args: []string{"--mca", "pml", "ob1", "--mca", "btl", "tcp,self"}},
	{name: "gloo.tcp", class: classTCP},

	{name: "ompi4.yield", class: classCrowd, args: []string{"--oversubscribe", "--bind-to", "none", "--mca",
		"mpi_yield_when_idle", "1"}},
	{name: "ompi5.yield", class: classCrowd, args: []string{"--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "--mca",
		"mpi_yield_when_idle", "1"}},
	{name: "mpich4.crowd", class: classCrowd},
	{name: "impi.wait", class: classCrowd, env: []string{"I_MPI_WAIT_MODE=1"}},
	{name: "impi.yield", class: classCrowd, env: []string{"I_MPI_THREAD_YIELD=2"}},
}

var (
	ucx      = []string{"--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"}
	bindCore = []string{"-bind-to", "core"}
)

// peer returns the library of a setting.
func (s *setting) peer() *peer {
	name, _, _ := strings.Cut(s.name, ".")
	i := slices.IndexFunc(peers, func(p peer) bool { return p.name == name })
	return &peers[i]
}

// peerOf returns the library's name of a series; ours is chorus.
func peerOf(series string) string {
	name, _, _ := strings.Cut(series, ".")
	return name
}

func isOurs(series string) bool  { return peerOf(series) == "chorus" }
func isPeers(series string) bool { return !isOurs(series) }
func isMPI(series string) bool {
	i := slices.IndexFunc(peers, func(p peer) bool { return p.name == peerOf(series) })
	return i >= 0 && peers[i].mpi
}
