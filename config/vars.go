package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Origin says where the value of a variable comes from.
type Origin string

const (
	Default     Origin = "default"
	Environment Origin = "environment"
)

// Var describes one variable. Value is the text that was found, or the default.
type Var struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Default string `json:"default"`
	Origin  Origin `json:"origin"`
	Doc     string `json:"doc"`
	Err     error  `json:"-"` // why the value cannot be used, an [*Error], or nil
}

// Vars describes every variable in the order of the fields of Config. The slice is the caller's.
func (c *Config) Vars() []Var { return slices.Clone(c.vars) }

// spec ties a variable to its field: set parses text into the field and leaves the field alone when it cannot.
type spec struct {
	name, def, doc string
	set            func(c *Config, text string) error
}

// fabricOptions names the options of fabrics that variables set. Which of them a fabric has is the fabric's to say.
var fabricOptions = map[string]string{
	"CHORUS_INTERFACE": "interface", "CHORUS_ADDR": "addr", "CHORUS_ADVERTISE": "advertise", "CHORUS_PORTS": "ports",
	"CHORUS_TCP_CONNECTIONS": "connections", "CHORUS_WAIT_POLICY": "wait", "CHORUS_CMA": "cma",
	"CHORUS_FABRIC_FAR": "far",
}

// FabricOptions returns the options of fabrics that the environment sets, by name.
func (c *Config) FabricOptions() map[string]string {
	set := map[string]string{}
	for _, v := range c.vars {
		if name := fabricOptions[v.Name]; name != "" && v.Origin != Default {
			set[name] = v.Value
		}
	}
	return set
}

// others are variables of Chorus that have no field: the launcher sets one, and the Python package reads the rest.
var others = []string{
	"CHORUS_STORE_ADDR", "CHORUS_LIBRARY", "CHORUS_PATCHES", "CHORUS_MONITOR_SLACK", "CHORUS_COMMAND", "CHORUS_TORCH_DEVICE",
	"CHORUS_ZOOM_DRIVER", "CHORUS_ACCINTE_DRIVER", "CHORUS_COMPILED_KERNELS",
}

// Unknown returns variables of an environment, given as os.Environ returns it, that begin like Chorus's but aren't
// read. Each has the known variable of the most similar spelling beside it; empty if none is similar.
func Unknown(environ []string) (names, nearest []string) {
	known := slices.Clone(others)
	for _, s := range specs {
		known = append(known, s.name)
	}
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "CHORUS_") || strings.HasPrefix(name, "CHORUS_TEST_") || slices.Contains(known, name) ||
			slices.Contains(names, name) {
			continue
		}
		near, least := "", len(name)/3+1 // what differs in more isn't alike
		for _, k := range known {
			if d := distance(name, k); d < least {
				near, least = k, d
			}
		}
		names, nearest = append(names, name), append(nearest, near)
	}
	return names, nearest
}

// distance is how many letters must be changed, put in or taken out to make one name of another.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := corner
			if a[i] != b[j] {
				cost++
			}
			corner = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// secretVar is the one variable whose value is not shown. That of storeVar is shown without a password.
const (
	secretVar = "CHORUS_SECRET"
	storeVar  = "CHORUS_STORE"
)

// withoutPassword replaces the password in an address.
func withoutPassword(address string) string {
	scheme, rest, _ := strings.Cut(address, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	at := strings.LastIndexByte(rest[:end], '@')
	if at < 0 {
		return address
	}
	user, _, hidden := strings.Cut(rest[:at], ":")
	if hidden {
		user += ":(set)"
	}
	return scheme + "://" + user + rest[at:]
}

const (
	maxTCPConnections = 64
	minStageBytes     = 64 << 10
	maxStageBytes     = 16 << 30
	maxAccInteDevices = 64
	minAccInteMemory  = 64 << 10
	maxAccInteMemory  = 1 << 40
	maxRecord         = 1 << 20
)

// specs is in the order of the fields of Config.
var specs = []spec{
	{"TORCHCOMM_ABORT_ON_ERROR", "false", "abort the process when an operation times out or the communicator breaks",
		func(c *Config, s string) error { return setBool(&c.AbortOnError, s) }},
	{"TORCHCOMM_TIMEOUT_SECONDS", "600", "deadline in seconds of an operation that names none",
		func(c *Config, s string) error { return setSeconds(&c.Timeout, s) }},
	{"CHORUS_LOG", "warn", "lowest level that is logged: debug, info, warn or error",
		func(c *Config, s string) error { return setLevel(&c.Log, s) }},
	{"CHORUS_HOST_ID", "", "identity by which ranks decide whether they share a host; empty: found out from the kernel",
		func(c *Config, s string) error { c.HostID = s; return nil }},
	{"CHORUS_BACKEND", "native", "backend of communicators whose program names none: native, mpi, or another that the program has",
		func(c *Config, s string) error { return setName(&c.Backend, s) }},
	{"CHORUS_FABRIC", "auto", "how bytes move between ranks: auto, shm, tcp, or another fabric that the program has",
		func(c *Config, s string) error { return setName(&c.Fabric, s) }},
	{"CHORUS_FABRIC_FAR", "auto", "what the fabric auto uses between hosts: tcp, another fabric that the program has, or auto: ucx where all ranks have RDMA, or else tcp",
		func(c *Config, s string) error { return setName(&c.FabricFar, s) }},
	{"CHORUS_INTERFACE", "",
		"network interfaces for TCP links, by name or network (eth1,10.1.0.0/16), the first that is there; empty: the one that routes to the rendezvous",
		func(c *Config, s string) error { c.Interface = s; return nil }},
	{"CHORUS_ADDR", "", "IP address that TCP links bind and publish; empty: chosen by interface or route",
		func(c *Config, s string) error { return setAddr(&c.Addr, s) }},
	{"CHORUS_ADVERTISE", "",
		"IP addresses by which the other ranks reach this one, where they aren't those that it binds; empty: those that it binds",
		func(c *Config, s string) error { return setAddrs(&c.Advertise, s) }},
	{"CHORUS_PORTS", "", "ports on which TCP links listen, low-high; empty: any",
		func(c *Config, s string) error { return setPorts(&c.Ports, s) }},
	{"CHORUS_TCP_CONNECTIONS", "2", "connections to each peer that large messages are spread over",
		func(c *Config, s string) error { return setInt(&c.TCPConnections, s, 1, maxTCPConnections) }},
	{"CHORUS_SHM_STAGE_BYTES", "8MiB", "size of each rank's shared staging segment; KiB, MiB and GiB are understood",
		func(c *Config, s string) error { return setBytes(&c.SHMStageBytes, s, minStageBytes, maxStageBytes) }},
	{"CHORUS_WAIT_POLICY", string(WaitAuto), "how a rank waits for a peer on its host: auto, spin, yield or block",
		func(c *Config, s string) error {
			return setChoice(&c.WaitPolicy, s, WaitAuto, WaitSpin, WaitYield, WaitBlock)
		}},
	{"CHORUS_CMA", string(CMAAuto), "copying straight out of a peer process: auto or off",
		func(c *Config, s string) error { return setChoice(&c.CMA, s, CMAAuto, CMAOff) }},
	{"CHORUS_KERNELS", string(KernelsAuto),
		"implementation of the reduction loops: auto, avx512bf16, avx512, avx2, neon or portable",
		func(c *Config, s string) error {
			return setChoice(&c.Kernels, s, KernelsAuto, KernelsAVX512BF16, KernelsAVX512, KernelsAVX2, KernelsNEON,
				KernelsPortable)
		}},
	{"CHORUS_CALIBRATION", "off",
		"choose algorithms by what chorus bench --calibrate measured: off, on, or the path of its file",
		func(c *Config, s string) error { return setFile(&c.Calibration, s) }},
	{"TORCH_DEVICE_BACKEND_AUTOLOAD", "true", "load registered device drivers when their device is first named",
		func(c *Config, s string) error { return setBool(&c.DeviceAutoload, s) }},
	{"CHORUS_ACCINTE_DEVICES", "2", "number of emulated accelerators",
		func(c *Config, s string) error { return setInt(&c.AccInteDevices, s, 1, maxAccInteDevices) }},
	{"CHORUS_ACCINTE_MEMORY", "4GiB", "memory of each emulated accelerator; KiB, MiB and GiB are understood",
		func(c *Config, s string) error {
			return setBytes(&c.AccInteMemory, s, minAccInteMemory, maxAccInteMemory)
		}},
	{"CHORUS_ACCINTE_PEERS", "true", "let emulated accelerators touch each other's memory",
		func(c *Config, s string) error { return setBool(&c.AccIntePeers, s) }},
	{"CHORUS_DEVICE_INLINE", "true", "do what an idle stream is asked for on the thread that asks: operators, and synchronous collectives if all ranks have come",
		func(c *Config, s string) error { return setBool(&c.DeviceInline, s) }},
	{"CHORUS_DEVICE_BLOCKING", "false", "for debugging: each operator of PyTorch's on a device waits for its work, so that an error is raised by the call that caused it",
		func(c *Config, s string) error { return setBool(&c.DeviceBlocking, s) }},
	{"CHORUS_DEVICE_KERNELS", "true", "compute PyTorch's operators by kernels where the device's driver compiles them",
		func(c *Config, s string) error { return setBool(&c.DeviceKernels, s) }},
	{"CHORUS_NCCL_LIBRARY", "", "file of the library of the backends nccl, ncclx and rccl; empty: the first that is found",
		func(c *Config, s string) error { c.NCCLLibrary = s; return nil }},
	{"CHORUS_MPI_LIBRARY", "", "file of the library of backend mpi; empty: the first that is found",
		func(c *Config, s string) error { c.MPILibrary = s; return nil }},
	{"CHORUS_BLAS_LIBRARY", "",
		"files of libraries that multiply matrices on devices, separated by colons; none: kernels do; empty: those that are found",
		func(c *Config, s string) error { c.BLASLibrary = s; return nil }},
	{"DISABLE_HIPBLASLT", "", "any value: kernels multiply matrices of 8 bits, not cuBLASLt or hipBLASLt, which add no biases either",
		func(c *Config, s string) error { c.NoLt = s != ""; return nil }},
	{"CHORUS_FFT_LIBRARY", "",
		"files of libraries that compute Fourier transforms on devices, likewise; none: PyTorch's CPU kernels do",
		func(c *Config, s string) error { c.FFTLibrary = s; return nil }},
	{"CHORUS_SOLVER_LIBRARY", "",
		"files of libraries that factor matrices and solve linear systems on GPUs, likewise; none: PyTorch's CPU kernels do",
		func(c *Config, s string) error { c.SolverLibrary = s; return nil }},
	{"CHORUS_SPARSE_LIBRARY", "",
		"files of libraries that multiply sparse matrices by dense ones on GPUs, likewise; none: kernels do",
		func(c *Config, s string) error { c.SparseLibrary = s; return nil }},
	{"CUBLAS_WORKSPACE_CONFIG", "", "memory that cuBLAS gets for each stream, as :KIB:COUNT, such as :4096:8",
		func(c *Config, s string) error { c.CUBLASWorkspace = s; return nil }},
	{"HIPBLAS_WORKSPACE_CONFIG", "", "memory that hipBLAS gets for each stream, likewise",
		func(c *Config, s string) error { c.HIPBLASWorkspace = s; return nil }},
	{"CHORUS_OPENCL_LIBRARY", "", "files of OpenCL's loader or drivers, separated by colons; empty: those that are found",
		func(c *Config, s string) error { c.OpenCLLibrary = s; return nil }},
	{"CHORUS_OPENCL_SHARED_MEMORY", "true",
		"shared virtual memory for devices of OpenCL that have it; false: buffers, for a driver whose shared memory is broken, and for tests",
		func(c *Config, s string) error { return setBool(&c.OpenCLSharedMemory, s) }},
	{"CHORUS_OPENCL_COMPILER", "",
		"command whose process compiles sources for OpenCL, or self, or none; empty: one of Python, else this process",
		func(c *Config, s string) error { c.OpenCLCompiler = strings.TrimSpace(s); return nil }},
	{"CHORUS_OPENCL_COMPILER_TIMEOUT", "120", "seconds of the processor's time that such a process may take for a source",
		func(c *Config, s string) error { return setSeconds(&c.OpenCLCompilerTimeout, s) }},
	{"CHORUS_UCX_LIBRARY", "", "file of libucp, for the fabric ucx; empty: the first that is found",
		func(c *Config, s string) error { c.UCXLibrary = s; return nil }},
	{"PYTORCH_ALLOC_CONF", "",
		"settings of the caching allocators of devices, such as max_split_size_mb:128,expandable_segments:True",
		func(c *Config, s string) error { return setAllocator(&c.AllocConf, s) }},
	{"PYTORCH_CUDA_ALLOC_CONF", "", "older name of PYTORCH_ALLOC_CONF, which wins",
		func(c *Config, s string) error { return setAllocator(&c.CUDAAllocConf, s) }},
	{"PYTORCH_NO_CUDA_MEMORY_CACHING", "false", "ask the driver of a device for memory each time, without a cache",
		func(c *Config, s string) error { return setBool(&c.NoMemoryCaching, s) }},
	{"USE_PYTORCH_KERNEL_CACHE", "true", "keep compiled kernels in files",
		func(c *Config, s string) error { return setBool(&c.KernelCache, s) }},
	{"CHORUS_KERNEL_PROGRESS", "true", "say on a terminal that kernels are being compiled, if it takes more than two seconds",
		func(c *Config, s string) error { return setBool(&c.KernelProgress, s) }},
	{"CHORUS_KERNEL_AHEAD", "false",
		"compile kernels beside the program, on all cores, and compute by PyTorch's CPU kernels until they're ready; torch_zoom --warm sets it",
		func(c *Config, s string) error { return setBool(&c.KernelAhead, s) }},
	{"PYTORCH_KERNEL_CACHE_PATH", "",
		"directory of compiled kernels; empty: torch/kernels in the user's cache directory",
		func(c *Config, s string) error { c.KernelCachePath = s; return nil }},
	{"CHORUS_RUN", "", "identity of the job; chorus run sets it for the ranks it starts",
		func(c *Config, s string) error { c.Run = s; return nil }},
	{"CHORUS_RECORD", "1024", "operations that each communicator's flight recorder keeps; 0: nothing is recorded",
		func(c *Config, s string) error { return setInt(&c.Record, s, 0, maxRecord) }},
	{"CHORUS_DUMP_DIR", "",
		"directory to which each rank dumps its flight record at its first failure and at SIGUSR1; empty: nowhere",
		func(c *Config, s string) error { c.DumpDir = s; return nil }},
	{secretVar, "", "secret of the job, at least 16 random characters, by which its processes know each other; never shown",
		func(c *Config, s string) error { c.Secret = Hidden(s); return nil }},
	{"CHORUS_SECRET_FILE", "", "file that holds the secret of the job; chorus run makes one for the ranks it starts",
		func(c *Config, s string) error { c.SecretFile = s; return nil }},
	{"CHORUS_TLS", "false",
		"encrypt the connections of stores and the TCP links; needs a secret, or the three files below",
		func(c *Config, s string) error { return setBool(&c.TLS, s) }},
	{"CHORUS_TLS_CERT", "",
		"PEM file with the certificate to show; empty: each process makes its own, and the secret vouches for it",
		func(c *Config, s string) error { c.TLSCert = s; return nil }},
	{"CHORUS_TLS_KEY", "", "PEM file with the key of the certificate",
		func(c *Config, s string) error { c.TLSKey = s; return nil }},
	{"CHORUS_TLS_CA", "", "PEM file with the authorities that sign the certificates of the job",
		func(c *Config, s string) error { c.TLSCA = s; return nil }},
	{"CHORUS_INSECURE", "false", "let stores listen for other hosts without a secret or certificates",
		func(c *Config, s string) error { return setBool(&c.Insecure, s) }},
	{storeVar, "",
		"address of the store where the ranks meet, or the launchers of an elastic job, such as etcd://HOST:2379; " +
			"empty: the launcher's, or that of rank 0",
		func(c *Config, s string) error { return setStore(&c.Store, s) }},
	{"CHORUS_STORE_PLAIN", string(PlainUser),
		"who may use a store of Chorus without the secret, as PyTorch's clients do: none, user (the same user on the same host) or any",
		func(c *Config, s string) error { return setChoice(&c.StorePlain, s, PlainNone, PlainUser, PlainAny) }},
}

func setChoice[T ~string](field *T, text string, choices ...T) error {
	if i := slices.Index(choices, T(strings.ToLower(text))); i >= 0 {
		*field = choices[i]
		return nil
	}
	names := make([]string, len(choices))
	for i, c := range choices {
		names[i] = string(c)
	}
	return fmt.Errorf("want one of %s", strings.Join(names, ", "))
}

// setName accepts one word.
func setName(field *string, text string) error {
	if strings.ContainsFunc(text,
		func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '-' && r != '_' }) {
		return errors.New("want one name")
	}
	*field = strings.ToLower(text)
	return nil
}

// setFile accepts off, on, or a path, which has a slash.
func setFile(field *string, text string) error {
	if low := strings.ToLower(text); low == "off" || low == "on" {
		text = low
	} else if !strings.Contains(text, "/") {
		return errors.New("want off, on, or a path with a slash")
	}
	*field = text
	return nil
}

// setStore accepts an address with a scheme. Whether the program knows the scheme is found out when it opens the store.
func setStore(field *string, text string) error {
	if scheme, _, found := strings.Cut(text, ":"); text != "" && (!found || scheme == "") {
		return errors.New("want an address with a scheme, such as tcp://HOST:PORT")
	}
	*field = text
	return nil
}

func setAllocator(field *Allocator, text string) error {
	a, err := ParseAllocator(text)
	if err == nil {
		*field = a
	}
	return err
}

func setBool(field *bool, text string) error {
	switch strings.ToLower(text) {
	case "1", "t", "true", "y", "yes", "on":
		*field = true
	case "0", "f", "false", "n", "no", "off":
		*field = false
	default:
		return errors.New("want true or false")
	}
	return nil
}

func setInt(field *int, text string, lo, hi int) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < lo || n > hi {
		return fmt.Errorf("want an integer from %d to %d", lo, hi)
	}
	*field = n
	return nil
}

// setSeconds accepts fractions. A duration of zero would make every operation time out, so it is refused.
func setSeconds(field *time.Duration, text string) error {
	s, err := strconv.ParseFloat(text, 64)
	ns := s * float64(time.Second)
	if err != nil || !(ns >= 1) || ns >= math.MaxInt64 {
		return errors.New("want a positive number of seconds")
	}
	*field = time.Duration(ns)
	return nil
}

func setLevel(field *slog.Level, text string) error {
	var l slog.Level
	if err := l.UnmarshalText([]byte(text)); err != nil {
		return errors.New("want debug, info, warn or error")
	}
	*field = l
	return nil
}

func setAddr(field *netip.Addr, text string) error {
	if text == "" {
		return nil
	}
	a, err := parseAddr(text)
	if err == nil {
		*field = a
	}
	return err
}

// setAddrs keeps the text of a list of addresses, once each of them has been understood.
func setAddrs(field *string, text string) error {
	for a := range strings.SplitSeq(text, ",") {
		if _, err := parseAddr(strings.TrimSpace(a)); err != nil && text != "" {
			return err
		}
	}
	*field = text
	return nil
}

func parseAddr(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return a, errors.New("want an IP address such as 10.0.0.7 or fd00::7")
	}
	if a.IsUnspecified() || a.IsMulticast() {
		return a, errors.New("want an address that peers can connect to")
	}
	return a, nil
}

// setPorts keeps the text of a range of ports, once it has been understood.
func setPorts(field *string, text string) error {
	low, high, ranged := strings.Cut(text, "-")
	if !ranged {
		high = low
	}
	from, err := strconv.ParseUint(low, 10, 16)
	to, err2 := strconv.ParseUint(high, 10, 16)
	if text != "" && (err != nil || err2 != nil || from == 0 || to < from) {
		return errors.New("want ports from 1 to 65535, such as 29600-29699")
	}
	*field = text
	return nil
}

func setBytes(field *int, text string, lo, hi int) error {
	n, err := ParseBytes(text)
	if err != nil {
		return err
	}
	if n < int64(lo) || n > int64(hi) {
		return fmt.Errorf("want %d to %d bytes", lo, hi)
	}
	*field = int(n)
	return nil
}

// ParseBytes reads a size in bytes such as "4096", "64K", "8MiB" or "1.5GB". All suffixes are powers of 1024, as
// benchmarks and allocators mean them; upper and lower case are the same. A size is never negative.
func ParseBytes(text string) (int64, error) {
	bad := fmt.Errorf("want a size such as 4096, 64K or 8MiB, not %q", text)
	s := strings.ToLower(strings.TrimSpace(text))
	digits := strings.TrimRight(s, "bikmgt")
	shift, ok := map[string]uint{
		"": 0, "b": 0,
		"k": 10, "kb": 10, "kib": 10,
		"m": 20, "mb": 20, "mib": 20,
		"g": 30, "gb": 30, "gib": 30,
		"t": 40, "tb": 40, "tib": 40,
	}[s[len(digits):]]
	digits = strings.TrimSpace(digits)
	if !ok || strings.Trim(digits, "0123456789.") != "" {
		return 0, bad
	}
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil {
		if n > math.MaxInt64>>shift {
			return 0, bad
		}
		return n << shift, nil
	}
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil || math.Ldexp(f, int(shift)) >= math.MaxInt64 {
		return 0, bad
	}
	return int64(math.Ldexp(f, int(shift))), nil
}
