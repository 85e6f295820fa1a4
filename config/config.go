package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"time"
)

// Config is what the environment says. Options in code win over it.
type Config struct {
	// AbortOnError makes a timeout or a broken communicator abort the process. Torchcomms does so unless told
	// otherwise; Chorus does so only when asked.
	AbortOnError bool // TORCHCOMM_ABORT_ON_ERROR

	// Timeout is the deadline of an operation that names none. Always positive.
	Timeout time.Duration // TORCHCOMM_TIMEOUT_SECONDS

	// Log is the lowest level that is logged.
	Log slog.Level // CHORUS_LOG

	// HostID overrides the identity by which ranks decide whether they share a host; empty: found out from the kernel.
	HostID string // CHORUS_HOST_ID

	// Backend names the backend of communicators whose program names none.
	Backend string // CHORUS_BACKEND

	// Fabric names how bytes move between ranks: auto (shared memory within a host, and what FabricFar names
	// between hosts), shm, tcp, or another one that the program has.
	Fabric string // CHORUS_FABRIC

	// FabricFar names what the fabric auto uses between hosts: auto (a faster network than TCP where all ranks have it, or
	// else TCP), tcp, or another fabric that the program has.
	FabricFar string // CHORUS_FABRIC_FAR

	// Interface lists network interfaces, by name or by network (10.1.0.0/16): TCP links bind the address of the first
	// that is there; empty: the one that routes to the rendezvous.
	Interface string // CHORUS_INTERFACE

	// Addr is the address that TCP links bind and publish; the zero Addr: taken from Interface, or from the route.
	Addr netip.Addr // CHORUS_ADDR

	// Advertise lists the IP addresses that other ranks get instead of the bound one; empty: none.
	Advertise string // CHORUS_ADVERTISE

	// Ports is the range of ports on which TCP links listen, "low-high"; empty: any.
	Ports string // CHORUS_PORTS

	// TCPConnections is the number of connections to each peer that large messages are spread over.
	TCPConnections int // CHORUS_TCP_CONNECTIONS

	// SHMStageBytes is the size of the shared segment through which each rank stages memory that its peers cannot map.
	SHMStageBytes int // CHORUS_SHM_STAGE_BYTES

	// WaitPolicy is how a rank waits for a peer on the same host.
	WaitPolicy WaitPolicy // CHORUS_WAIT_POLICY

	// CMA says whether to try copying straight out of a peer process (cross-memory attach).
	CMA CMA // CHORUS_CMA

	// Kernels limits which implementation of the reduction loops is used.
	Kernels Kernels // CHORUS_KERNELS

	// Calibration says whether algorithms are chosen by what `chorus bench --calibrate` measured: off; on, by the file in
	// the user's cache directory; or the path of a file. Rank 0's file counts for all ranks of a communicator.
	Calibration string // CHORUS_CALIBRATION

	// DeviceAutoload says whether registered device drivers are loaded when their device is first named. The name is
	// PyTorch's.
	DeviceAutoload bool // TORCH_DEVICE_BACKEND_AUTOLOAD

	// AccInteDevices is the number of emulated accelerators.
	AccInteDevices int // CHORUS_ACCINTE_DEVICES

	// AccInteMemory is the memory of each in bytes.
	AccInteMemory int // CHORUS_ACCINTE_MEMORY

	// AccIntePeers says whether they can touch each other's memory.
	AccIntePeers bool // CHORUS_ACCINTE_PEERS

	// DeviceInline lets the thread that asks an idle stream for work do it itself, where engines are threads of this
	// process. That's operators of PyTorch's, and synchronous collectives if all ranks have come. Without it every
	// stream is used as a busy one is.
	DeviceInline bool // CHORUS_DEVICE_INLINE

	// DeviceBlocking makes each operator of PyTorch's on a device wait for its work, so that an error is raised by the
	// call that caused it. It's for debugging.
	DeviceBlocking bool // CHORUS_DEVICE_BLOCKING

	// DeviceKernels lets devices whose driver compiles kernels compute PyTorch's operators by them, instead of by
	// PyTorch's CPU kernels.
	DeviceKernels bool // CHORUS_DEVICE_KERNELS

	// NCCLLibrary is the file of the library that the backends nccl, ncclx and rccl use; empty: the first that is found.
	NCCLLibrary string // CHORUS_NCCL_LIBRARY
	// MPILibrary is the file of the library that backend mpi uses; empty: the first that is found.
	MPILibrary string // CHORUS_MPI_LIBRARY

	// BLASLibrary lists files of libraries that multiply matrices on GPUs and devices of OpenCL, separated by colons;
	// "none": kernels do; empty: those that are found.
	BLASLibrary string // CHORUS_BLAS_LIBRARY

	// NoLt keeps cuBLASLt and hipBLASLt out, so that kernels multiply matrices of 8 bits, and cuBLAS those with a bias.
	// The name is PyTorch's, and any value but an empty one says so.
	NoLt bool // DISABLE_HIPBLASLT

	// FFTLibrary lists files of libraries that compute Fourier transforms on GPUs and devices of OpenCL, likewise; "none":
	// PyTorch's CPU kernels do.
	FFTLibrary string // CHORUS_FFT_LIBRARY

	// SolverLibrary lists files of libraries that factor matrices and solve linear systems on GPUs, likewise; "none":
	// PyTorch's CPU kernels do.
	SolverLibrary string // CHORUS_SOLVER_LIBRARY

	// SparseLibrary lists files of libraries that multiply sparse matrices by dense ones on GPUs, likewise; "none":
	// kernels do.
	SparseLibrary string // CHORUS_SPARSE_LIBRARY

	// CUBLASWorkspace is the memory that cuBLAS gets for each stream, as PyTorch has it: ":KIB:COUNT", several of them
	// added. Empty, or without such a part: a default of PyTorch's.
	CUBLASWorkspace string // CUBLAS_WORKSPACE_CONFIG
	// HIPBLASWorkspace is that of hipBLAS.
	HIPBLASWorkspace string // HIPBLAS_WORKSPACE_CONFIG

	// OpenCLLibrary lists files of OpenCL's loader or of its drivers, separated by colons; empty: those that are found.
	OpenCLLibrary string // CHORUS_OPENCL_LIBRARY

	// OpenCLSharedMemory lets devices of OpenCL have shared virtual memory, where they offer it. Without it their memory
	// is buffers, which the process touches by copies alone, as that of most GPUs.
	OpenCLSharedMemory bool // CHORUS_OPENCL_SHARED_MEMORY

	// OpenCLCompiler is a command whose process compiles sources for OpenCL, with its arguments; "self" is this program's
	// own file; "none": this process does; empty: the host's command, as Python has one, else this process.
	OpenCLCompiler string // CHORUS_OPENCL_COMPILER

	// OpenCLCompilerTimeout is how much of the processor's time such a process may use for a source, and how long it may
	// do nothing.
	OpenCLCompilerTimeout time.Duration // CHORUS_OPENCL_COMPILER_TIMEOUT

	// UCXLibrary is the file of libucp that the fabric ucx uses; empty: the first that is found.
	UCXLibrary string // CHORUS_UCX_LIBRARY

	// AllocConf is how the caching allocators of devices work. [Config.DeviceAllocator] says which settings hold.
	AllocConf Allocator // PYTORCH_ALLOC_CONF

	// CUDAAllocConf is what holds where AllocConf isn't set.
	CUDAAllocConf Allocator // PYTORCH_CUDA_ALLOC_CONF

	// NoMemoryCaching makes the caching allocators ask the driver each time, to find errors in the use of memory.
	NoMemoryCaching bool // PYTORCH_NO_CUDA_MEMORY_CACHING

	// KernelCache says whether compiled kernels are kept in files. The name is PyTorch's, as is that of the next.
	KernelCache bool // USE_PYTORCH_KERNEL_CACHE

	// KernelProgress lets a terminal say that kernels are being compiled, if that takes more than two seconds.
	KernelProgress bool // CHORUS_KERNEL_PROGRESS

	// KernelAhead lets kernels be compiled beside the program, on all cores. PyTorch's CPU kernels compute what needs
	// one that isn't ready.
	KernelAhead bool // CHORUS_KERNEL_AHEAD

	// KernelCachePath is the directory of those files; empty: torch/kernels in the user's cache directory.
	KernelCachePath string // PYTORCH_KERNEL_CACHE_PATH

	// Run is the identity of the job, set by `chorus run` for the ranks it starts; empty under any other launcher.
	Run string // CHORUS_RUN

	// Record is the number of operations that the flight recorder of each communicator keeps; 0: nothing is recorded.
	Record int // CHORUS_RECORD

	// DumpDir is where each rank writes its flight record at its first failure and at SIGUSR1; empty: nowhere, and SIGUSR1
	// is left to the program.
	DumpDir string // CHORUS_DUMP_DIR

	// Secret is the text of the job's secret, which authenticates stores and links; empty: none, or that of SecretFile. It
	// is never shown.
	Secret Hidden // CHORUS_SECRET

	// SecretFile is the path of a file with the text of the job's secret. chorus run sets it for the ranks it starts.
	SecretFile string // CHORUS_SECRET_FILE

	// TLS encrypts the connections of stores and the TCP links, with certificates that the processes make for themselves.
	// It needs a secret.
	TLS bool // CHORUS_TLS

	// TLSCert, TLSKey and TLSCA are paths of PEM files: a certificate, its key, and the authorities that sign the job's
	// certificates. All three together switch TLS on.
	TLSCert string // CHORUS_TLS_CERT
	TLSKey  string // CHORUS_TLS_KEY
	TLSCA   string // CHORUS_TLS_CA

	// Insecure permits to listen where other hosts can connect without a secret or certificates.
	Insecure bool // CHORUS_INSECURE

	// Store is the address of the store where the ranks meet, as store.Open takes it; empty: the launcher serves one, or
	// rank 0 does.
	Store string // CHORUS_STORE

	// StorePlain says which clients may use a store that a process of Chorus serves without proof of the secret, as
	// PyTorch's clients do.
	StorePlain Plain // CHORUS_STORE_PLAIN

	vars []Var
}

// Hidden is text that is not shown: String and MarshalText say only whether there is any.
type Hidden string

func (h Hidden) String() string {
	if h == "" {
		return ""
	}
	return "(set)"
}

// GoString keeps %#v from showing the text.
func (h Hidden) GoString() string { return strconv.Quote(h.String()) }

// MarshalText keeps encodings such as JSON from showing the text.
func (h Hidden) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// Plain says whose connections a store takes without the job's secret.
type Plain string

const (
	PlainNone Plain = "none" // no client, if there is a secret
	PlainUser Plain = "user" // processes of the same user on the same host, which could read the secret anyway
	PlainAny  Plain = "any"  // everybody's
)

// WaitPolicy names how a rank waits for a word in shared memory to change.
type WaitPolicy string

const (
	WaitAuto  WaitPolicy = "auto"  // spin when the local ranks fit on the cores, yield when not
	WaitSpin  WaitPolicy = "spin"  // poll for a while, then sleep in the kernel
	WaitYield WaitPolicy = "yield" // give the core away between polls
	WaitBlock WaitPolicy = "block" // sleep in the kernel at once
)

// CMA says whether process_vm_readv and process_vm_writev may be used.
type CMA string

const (
	CMAAuto CMA = "auto" // where a probe shows that the kernel permits it
	CMAOff  CMA = "off"  // never
)

// Kernels names an implementation of the reduction loops.
type Kernels string

const (
	KernelsAuto       Kernels = "auto"       // the best one that the processor has
	KernelsAVX512BF16 Kernels = "avx512bf16" // amd64 with AVX-512 and its instructions for bfloat16
	KernelsAVX512     Kernels = "avx512"     // amd64 with AVX-512
	KernelsAVX2       Kernels = "avx2"       // amd64 with AVX2, F16C and FMA
	KernelsNEON       Kernels = "neon"       // arm64
	KernelsPortable   Kernels = "portable"   // plain Go
)

// Load reads the environment through lookup, which has the contract of [os.LookupEnv]; nil means os.LookupEnv itself.
//
// The Config is complete even when the error is not nil: a variable with a bad value then has its default. The error
// joins one [*Error] for each bad variable.
func Load(lookup func(name string) (string, bool)) (*Config, error) {
	if lookup == nil {
		lookup = os.LookupEnv
	}
	c := new(Config)
	var errs []error
	for _, s := range specs {
		if err := s.set(c, s.def); err != nil {
			panic(fmt.Sprintf("config: default of %s: %v", s.name, err)) // a mistake in the table; TestDefaults guards it
		}
		v := Var{Name: s.name, Value: s.def, Default: s.def, Origin: Default, Doc: s.doc}
		if text, ok := lookup(s.name); ok && text != "" {
			v.Value, v.Origin = text, Environment
			if err := s.set(c, text); err != nil {
				v.Err = &Error{Name: s.name, Value: text, Reason: err.Error()}
				errs = append(errs, v.Err)
			}
		}
		switch s.name {
		case secretVar:
			v.Value = c.Secret.String()
		case storeVar:
			v.Value = withoutPassword(v.Value)
		}
		c.vars = append(c.vars, v)
	}
	return c, errors.Join(errs...)
}

// Error is a variable whose value cannot be used.
type Error struct {
	Name, Value string
	Reason      string // what would be accepted
}

func (e *Error) Error() string { return fmt.Sprintf("%s=%q: %s", e.Name, e.Value, e.Reason) }
