package bootstrap

import (
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"strconv"
	"strings"
)

// methodVar selects a launcher by hand. Its values auto, torchrun, mpi and pals
// are those of torchcomms; the names of launchers are ours.
const methodVar = "TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD"

// storeVar is the address of the job's store, which chorus run gives to those who have the secret where MASTER_ADDR is
// its relay to it.
const storeVar = "CHORUS_STORE_ADDR"

// defaultPort is PyTorch's default for MASTER_PORT.
const defaultPort = 29500

// A method reads the variables of one launcher. It returns nil if they are not
// set.
type method struct {
	name string
	vars string // for the message that lists what was looked for
	read func(e env) (*Info, error)
}

// methods in the order in which they are tried. The order is that of torchcomms
// with two additions. A process whose environment shows that chorus run or
// torchrun started it (CHORUS_RUN, TORCHELASTIC_RUN_ID) believes them before an
// MPI launcher or Slurm, because these start launchers and not the other way
// round. Slurm and Kubernetes come last, because what runs below them may have
// been started by any of the others.
var methods = []method{
	{TorchComm, "TORCHCOMM_RANK/TORCHCOMM_SIZE", readTorchComm},
	{ChorusRun, "CHORUS_RUN with RANK/WORLD_SIZE", readChorusRun},
	{TorchRun, "TORCHELASTIC_RUN_ID with RANK/WORLD_SIZE", readElastic},
	{OpenMPI, "OMPI_COMM_WORLD_RANK/OMPI_COMM_WORLD_SIZE", readOpenMPI},
	{PMI, "PMI_RANK/PMI_SIZE", readPMI},
	{PMIx, "PMIX_RANK with SLURM_NTASKS or WORLD_SIZE", readPMIx},
	{PALS, "PALS_RANKID/PALS_SIZE", readPALS},
	{TorchRun, "RANK/WORLD_SIZE", readTorchRun},
	{Slurm, "SLURM_PROCID/SLURM_NTASKS in a step of srun", readSlurm},
	{Kubernetes, "JOB_COMPLETION_INDEX with WORLD_SIZE", readKubernetes},
}

// selections says which methods each value of methodVar admits besides the
// variables of torchcomms, which always come first.
var selections = map[string][]string{
	"auto":     {TorchComm, ChorusRun, TorchRun, OpenMPI, PMI, PMIx, PALS, Slurm, Kubernetes},
	"torchrun": {TorchComm, ChorusRun, TorchRun},
	"mpi":      {TorchComm, OpenMPI, PMI, PMIx},
	PALS:       {TorchComm, PALS},
	ChorusRun:  {TorchComm, ChorusRun},
	OpenMPI:    {TorchComm, OpenMPI},
	PMI:        {TorchComm, PMI},
	PMIx:       {TorchComm, PMIx},
	Slurm:      {TorchComm, Slurm},
	Kubernetes: {TorchComm, Kubernetes},
}

// Detect finds out from the launcher's variables where this process stands; env
// is os.Getenv outside of tests. An empty variable counts as unset. A value that
// makes no sense is an error that names the variable. If no launcher is found the
// error wraps ErrNoLauncher and lists what was looked for.
func Detect(getenv func(string) string) (Info, error) {
	e := env{getenv}
	choice := strings.ToLower(e.get(methodVar))
	if choice == "" {
		choice = "auto"
	}
	admitted, ok := selections[choice]
	if !ok {
		var names []string
		for name := range selections {
			names = append(names, name)
		}
		slices.Sort(names)
		return Info{}, e.bad(methodVar, "one of "+strings.Join(names, ", "))
	}
	var looked []string
	for _, m := range methods {
		if !slices.Contains(admitted, m.name) {
			continue
		}
		info, err := m.read(e)
		if err == nil && info != nil {
			err = info.complete(e)
		}
		if err != nil {
			return Info{}, fmt.Errorf("bootstrap: %s: %w", m.name, err)
		}
		if info != nil {
			info.Launcher = m.name
			return *info, nil
		}
		looked = append(looked, m.vars)
	}
	if err := e.half(admitted); err != nil {
		return Info{}, err
	}
	return Info{}, fmt.Errorf("%w; looked for %s%s", ErrNoLauncher, strings.Join(looked, ", "), e.hint())
}

// halves are pairs of variables that a launcher sets together: its name, the variable that is there, and what lacks.
var halves = [][3]string{
	{TorchRun, "RANK", "WORLD_SIZE"}, {TorchRun, "WORLD_SIZE", "RANK"},
	{OpenMPI, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {OpenMPI, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
	{PMI, "PMI_RANK", "PMI_SIZE"}, {PMI, "PMI_SIZE", "PMI_RANK"},
	{PMIx, "PMIX_RANK", "a size (PMI_SIZE, OMPI_COMM_WORLD_SIZE, SLURM_NTASKS or WORLD_SIZE)"},
	{PALS, "PALS_RANKID", "PALS_SIZE"}, {PALS, "PALS_SIZE", "PALS_RANKID"},
}

// half is the error of a process that a launcher has told only half of its place: it's no world of one. A size of 1 is
// enough for that.
func (e env) half(admitted []string) error {
	for _, h := range halves {
		if slices.Contains(admitted, h[0]) && e.has(h[1]) && !e.has(h[2]) && (e.get(h[1]) != "1" ||
			!strings.HasSuffix(h[1], "SIZE")) {
			return fmt.Errorf("bootstrap: %s: %s=%s is set, but not %s: set both, or neither", h[0], h[1], e.get(h[1]), h[2])
		}
	}
	return nil
}

// hint names variables that are set although their counterpart is missing. It's a hint and no error, since
// processes that are no ranks have such variables, too: batch scripts, and pods of a job whose parts are
// independent.
func (e env) hint() string {
	for _, pair := range [][2]string{
		{"JOB_COMPLETION_INDEX", "WORLD_SIZE"}, {"SLURM_PROCID", "SLURM_STEP_ID (start the program with srun)"},
	} {
		if e.has(pair[0]) && !e.has(pair[1]) {
			return fmt.Sprintf("; %s=%s is set, but not %s", pair[0], e.get(pair[0]), pair[1])
		}
	}
	return ""
}

// complete checks rank and size and fills in what any launcher's job may have.
func (i *Info) complete(e env) error {
	switch {
	case i.Size < 1:
		return fmt.Errorf("a world of %d ranks makes no sense", i.Size)
	case i.Size > MaxRanks:
		return CheckWorld(i.Rank, i.Size)
	case i.Rank < 0 || i.Rank >= i.Size:
		return fmt.Errorf("%s=%d is not in a world of %d ranks (0 to %d)", i.rankVar, i.Rank, i.Size, i.Size-1)
	}
	if e.has("CHORUS_RUN", storeVar) {
		host, port, err := net.SplitHostPort(e.get(storeVar))
		n, bad := strconv.Atoi(port)
		if err != nil || bad != nil || host == "" || n < 1 || n > 65535 {
			return e.bad(storeVar, "host:port")
		}
		i.MasterAddr, i.MasterPort, i.direct = host, n, true
		return nil
	}
	if addr := e.get("MASTER_ADDR"); addr != "" {
		i.MasterAddr, i.MasterPort, i.shared = strings.Trim(addr, "[]"), 0, false
	}
	port, err := e.number("MASTER_PORT", 0)
	if err != nil {
		return err
	}
	if port < 0 || port > 65535 {
		return e.bad("MASTER_PORT", "a port from 1 to 65535")
	}
	switch {
	case i.MasterAddr == "":
	case port > 0:
		i.MasterPort = port
	case i.MasterPort == 0:
		i.MasterPort = i.derivedPort()
	}
	return nil
}

// MasterHost returns the host by which ranks find their way to each other, as a launcher names it in the environment;
// empty: it doesn't. Detect finds it, too, in processes that are ranks.
func MasterHost(getenv func(string) string) string {
	e := env{getenv}
	if host, _, err := net.SplitHostPort(e.get(storeVar)); err == nil && e.has("CHORUS_RUN") {
		return host
	}
	return e.get("MASTER_ADDR")
}

// Attempt returns how often the launcher has started the ranks again, as its environment says; 0 if it doesn't. It
// holds for processes that were told their rank, too.
func Attempt(getenv func(string) string) int {
	e := env{getenv}
	n, err := e.number(e.first("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"), 0)
	if err != nil || n < 0 {
		return 0 // Detect says so
	}
	return n
}

// The ports that ranks agree on without a word lie below the range from which systems give out ports.
const firstPort, ports = 16000, 16000

// derivedPort is such a port.
func (i *Info) derivedPort() int {
	if i.RunID == "" {
		return defaultPort
	}
	h := fnv.New32a()
	h.Write([]byte(i.RunID))
	return firstPort + int(h.Sum32()%ports)
}

// env is an environment.
type env struct{ getenv func(string) string }

func (e env) get(name string) string { return strings.TrimSpace(e.getenv(name)) }

func (e env) has(names ...string) bool {
	for _, n := range names {
		if e.get(n) == "" {
			return false
		}
	}
	return true
}

// first returns the first of names that is set, or "".
func (e env) first(names ...string) string {
	for _, n := range names {
		if e.has(n) {
			return n
		}
	}
	return ""
}

func (e env) bad(name, want string) error {
	return fmt.Errorf("%s=%q is not %s", name, e.get(name), want)
}

// number reads an integer; unset is what it is if the variable is not set.
func (e env) number(name string, unset int) (int, error) {
	if name == "" || !e.has(name) {
		return unset, nil
	}
	n, err := strconv.Atoi(e.get(name))
	if err != nil {
		return 0, e.bad(name, "an integer")
	}
	return n, nil
}

// numbers reads several integers into their places, stopping at the first error.
func (e env) numbers(fields ...field) error {
	for _, f := range fields {
		n, err := e.number(f.name, f.unset)
		if err != nil {
			return err
		}
		*f.to = n
	}
	return nil
}

// A field ties a variable to its place.
type field struct {
	to    *int
	name  string
	unset int
}

// world reads rank and size, and the local and node numbers whose variables are
// named.
func (e env) world(rank, size, localRank, localSize, node, nodes string) (*Info, error) {
	i := &Info{rankVar: rank}
	err := e.numbers(
		field{&i.Rank, rank, 0}, field{&i.Size, size, 0},
		field{&i.LocalRank, localRank, -1}, field{&i.LocalSize, localSize, 0},
		field{&i.NodeRank, node, -1}, field{&i.Nodes, nodes, 0},
	)
	return i, err
}
