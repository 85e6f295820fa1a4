package main

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/cpu"

	"github.com/chorus-comms/chorus/internal/testutil/nettest"
)

// peer is a library that ours is compared with.
type peer struct {
	name, title string
	library     string       // how the name of the version begins that must run; empty if it can't be asked
	runs        func() error // why it can't run on this machine; nil: it runs everywhere
	launch      func(h *home, ranks int, socket string, extra []string) ([][]string, error)
	env         func(*home) []string
	mpi         bool
}

// drivers/install.sh fetches and builds them. Their strongest settings were found by trying out: docs/comparison.md
// says what else was tried.
var peers = []peer{
	{name: "ompi4", title: "Open MPI 4 (Debian)", library: "Open MPI v4.", mpi: true,
		launch: mpirun("ompi4/usr/bin/mpirun.openmpi", "bin/mpi.ompi4"),
		env: func(h *home) []string {
			lib := h.debianLib("ompi4")
			return append(asRoot, "OPAL_PREFIX="+h.path("ompi4/usr"), "OPAL_LIBDIR="+lib,
				"OPAL_PKGLIBDIR="+lib+"/openmpi/lib/openmpi3",
				"OPAL_PKGDATADIR="+h.path("ompi4/usr/share/openmpi"), "PMIX_INSTALL_PREFIX="+lib+"/pmix2", "LD_LIBRARY_PATH="+lib)
		}},
	{name: "ompi5", title: "Open MPI 5 (PyPI)", library: "Open MPI v5.", mpi: true,
		launch: mpirun("ompi5/bin/mpirun", "bin/mpi.ompi5"),
		env:    func(*home) []string { return asRoot }},
	{name: "mpich4", title: "MPICH 4 (Debian)", library: "MPICH Version: 4.", mpi: true,
		launch: mpirun("mpich4/usr/bin/mpiexec.mpich", "bin/mpi.mpich4"),
		env:    func(h *home) []string { return []string{"LD_LIBRARY_PATH=" + h.debianLib("mpich4")} }},
	{name: "mpich5", title: "MPICH 5 (PyPI)", library: "MPICH Version: 5.", mpi: true,
		launch: mpirun("mpich5/bin/mpiexec", "bin/mpi.mpich5"),
		env:    func(*home) []string { return nil }},
	{name: "impi", title: "Intel MPI (PyPI)", library: "Intel(R) MPI Library 2021", mpi: true,
		launch: mpirun("impi/bin/mpiexec.hydra", "bin/mpi.impi"),
		env:    intelEnv},
	{name: "ccl", title: "oneCCL (PyPI)",
		launch: mpirun("ccl/bin/mpiexec.hydra", "bin/ccl"),
		env: func(h *home) []string {
			return []string{"I_MPI_ROOT=" + h.path("ccl"), "CCL_ROOT=" + h.path("ccl"), "LD_LIBRARY_PATH=" + h.path("ccl/lib"),
				"I_MPI_FABRICS=shm"}
		}},
	{name: "vllm", title: "vLLM's CPU shared memory (PyPI)", runs: func() error {
		if !cpu.X86.HasAVX512F || !cpu.X86.HasAVX512BW || !cpu.X86.HasAVX512VL {
			return errors.New("vLLM has it for processors with AVX-512 alone")
		}
		return nil
	},
		launch: torchRanks("vllm"),
		env: func(h *home) []string {
			found, _ := filepath.Glob(h.path("vllm/lib/python*/site-packages/vllm/_C_AVX512.abi3.so"))
			return []string{"VLLM_LIBRARY=" + strings.Join(found, ":")}
		}},
	{name: "deepspeed", title: "DeepSpeed's shared memory (PyPI)",
		launch: torchRanks("deepspeed"),
		env:    func(*home) []string { return nil }},
	{name: "gloo", title: "Gloo in PyTorch",
		launch: torchRanks("gloo"),
		env:    func(*home) []string { return nil }},
}

// asRoot lets Open MPI run as root, as in containers.
var asRoot = []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "PRTE_ALLOW_RUN_AS_ROOT=1",
	"PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1"}

func intelEnv(h *home) []string {
	return []string{"I_MPI_ROOT=" + h.path("impi"), "LD_LIBRARY_PATH=" + h.path("impi/lib"), "I_MPI_FABRICS=shm"}
}

// debianLib is where Debian puts an architecture's libraries.
func (h *home) debianLib(folder string) string {
	found, _ := filepath.Glob(h.path(folder, "usr/lib/*-linux-gnu*"))
	if len(found) == 0 {
		return h.path(folder, "usr/lib")
	}
	return found[0]
}

// mpirun starts all ranks by one launcher.
func mpirun(launcher, driver string) func(*home, int, string, []string) ([][]string, error) {
	return func(h *home, ranks int, socket string, extra []string) ([][]string, error) {
		c := append([]string{h.path(launcher), "-n", strconv.Itoa(ranks)}, extra...)
		return [][]string{append(c, h.path(driver), socket)}, nil
	}
}

// torchRanks starts each rank by itself.
func torchRanks(library string) func(*home, int, string, []string) ([][]string, error) {
	return func(h *home, ranks int, socket string, extra []string) ([][]string, error) {
		port, err := nettest.FreePort()
		if err != nil {
			return nil, err
		}
		var all [][]string
		for r := range ranks {
			c := []string{h.torchPython(), filepath.Join(h.drivers, "torch.py"), library, socket, h.path("bin/torch"),
				strconv.Itoa(r), strconv.Itoa(ranks), strconv.Itoa(port)}
			all = append(all, append(c, extra...))
		}
		return all, nil
	}
}
