package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/chorus-comms/chorus/launch"
)

// runFlags are the flags of chorus run. Names and meanings are torchrun's, apart from those in the last group.
type runFlags struct {
	nprocPerNode string
	nnodes       string
	nodeRank     int
	standalone   bool

	rdzvBackend  string
	rdzvEndpoint string
	rdzvID       string
	rdzvConf     string
	masterAddr   string
	masterPort   int

	role            string
	mayLose         int
	maxRestarts     int
	monitorInterval float64

	logDir           string
	redirects        string
	tee              string
	localRanksFilter string

	noPython bool
	module   bool

	bindTo         string
	reportBindings bool

	grace       time.Duration
	joinTimeout time.Duration
	lastCall    time.Duration
	heartbeat   time.Duration
	http        httpFlags

	hosts hostFlags
}

const (
	// Ports that torchrun takes where none is given.
	defaultMasterPort = "29500"
	defaultRdzvPort   = "29400"
)

func newRunCmd() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] program [args...]",
		Short: "Start the ranks of a job",
		Long: `Start the ranks of a job, pass on their output with the rank before each line, and watch over them.

A program that ends in .py is run by python3 -u: the one that PYTHON_EXEC names, or that of the virtual environment that this
command is in, or the one in PATH. Any other program is started as it is. The ranks find torchrun's variables in their environment, and a TCPStore that the launcher serves at MASTER_ADDR:MASTER_PORT.

When a rank fails, all others are stopped (SIGTERM, then SIGKILL after --grace), and chorus run says which rank it was, how it
ended, what it last wrote, and what chorus explain makes of what all ranks have recorded; with --max-restarts all ranks are then started again. The exit status is that of the failed
rank, or 128 and the number of the signal that killed it.

SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to the ranks and end the job; a second one, at least a second later, kills. SIGUSR1 and SIGUSR2 are just
passed on. Standard input goes to local rank 0 unless it is a terminal.

With --bind-to each rank stays on its part of the node: a core with its hardware threads, a socket or a NUMA node. OMP_NUM_THREADS, unless it's set, is the number
of cores that the rank has for itself then, and 1 for several ranks that aren't bound.

Nodes that don't meet on the loopback need a secret, the same on all of them, so that nobody else can join the job or give it
orders: see chorus secret. On one node the launcher makes one and passes it to the ranks in CHORUS_SECRET_FILE.

With --nnodes MIN:MAX the nodes may change while the job runs, as under torchrun. When a node is lost or another one comes, all ranks are
started again, with another WORLD_SIZE, and go on from what they have saved. That's no restart that --max-restarts counts. The nodes meet at --rdzv-endpoint, and the job ends with
the launcher that serves there; or in the store that CHORUS_STORE names, which outlives any of them and needs an --rdzv-id.

With -H or --hostfile chorus run starts one launcher on each host itself: by ssh, or directly on this host. It hands them a secret, shows
what they and their ranks print, and ends them all when one is lost. The other hosts need chorus, the same directory and the program.
ssh asks no questions: keys must be known, and logging in must need no password. On the command line, as in mpirun's files, host:2 is
two ranks; hosts without a number have --nproc-per-node.

Flags may be spelled with underscores, and each may be given by a variable instead: PET_NPROC_PER_NODE for --nproc-per-node.`,
		Example: `  chorus run -n 4 ./train --epochs 3
  chorus run --nproc-per-node auto --log-dir logs train.py
  chorus run --nnodes 2 --rdzv-endpoint node0:29400 -n 8 ./train     # the same on both nodes
  chorus run --nnodes 2:4 --rdzv-endpoint node0:29400 -n 8 ./train   # on two to four nodes
  chorus run -H node0:8,node1:8 ./train                              # starts both by ssh`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("run: no program given")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.add(cmd)
	return cmd
}

// add declares the flags.
func (f *runFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SetInterspersed(false) // what follows the program belongs to it
	fs.StringVarP(&f.nprocPerNode, "nproc-per-node", "n", "1",
		"ranks on this node: a number, cpu (one for each core), gpu, or auto (gpu if there are any, else cpu)")
	fs.StringVar(&f.nnodes, "nnodes", "1", "number of nodes, or MIN:MAX if they may change; chorus run is started on each")
	fs.IntVar(&f.nodeRank, "node-rank", launch.AnyNodeRank, "place of this node, from 0; -1: by arrival")
	fs.BoolVar(&f.standalone, "standalone", false, "one node that needs no endpoint")
	fs.StringVar(&f.rdzvBackend, "rdzv-backend", "",
		"how nodes get their places: static (by --node-rank) or c10d (by arrival where no --node-rank is given)")
	fs.StringVar(&f.rdzvEndpoint, "rdzv-endpoint", "",
		"host:port where the nodes meet; the launcher of node 0 serves there")
	fs.StringVar(&f.rdzvID, "rdzv-id", "", "identity of the job")
	fs.StringVar(&f.rdzvConf, "rdzv-conf", "", "rendezvous settings: join_timeout=SECONDS or timeout=SECONDS, last_call_timeout=SECONDS")
	fs.StringVar(&f.masterAddr, "master-addr", "",
		"MASTER_ADDR of the ranks; with several nodes also where the nodes meet if there is no --rdzv-endpoint")
	fs.IntVar(&f.masterPort, "master-port", 0,
		"MASTER_PORT of the ranks, or the port where the nodes meet; 0: any free port, or "+defaultMasterPort)
	fs.StringVar(&f.role, "role", "default", "ROLE_NAME of this node's ranks")
	fs.IntVar(&f.mayLose, "may-lose", 0,
		"ranks of each node that may fail while the others go on, for programs that do without them (docs/recovery.md)")
	fs.IntVar(&f.maxRestarts, "max-restarts", 0, "how often all ranks are started again after a failure")
	fs.Float64Var(&f.monitorInterval, "monitor-interval", 0.1, "seconds between looks for news of the other nodes")
	fs.StringVar(&f.logDir, "log-dir", "", "directory for log files: DIR/ID/attempt_N/RANK/{stdout,stderr}.log")
	fs.StringVarP(&f.redirects, "redirects", "r", "0",
		"streams that go to log files only: 1 stdout, 2 stderr, 3 both, or by local rank: 0:3,1:2")
	fs.StringVarP(&f.tee, "tee", "t", "0", "streams that go to log files and to the console, as in --redirects")
	fs.StringVar(&f.localRanksFilter, "local-ranks-filter", "", "local ranks whose output is shown, such as 0,2")
	fs.BoolVar(&f.noPython, "no-python", false, "start the program as it is even if it ends in .py")
	fs.BoolVarP(&f.module, "module", "m", false, "the program is a Python module, as in python -m")
	fs.StringVar(&f.bindTo, "bind-to", string(launch.BindNone),
		"what each rank is bound to: none, core, socket or numa, in the ranks' order; with more ranks than cores none is")
	fs.BoolVar(&f.reportBindings, "report-bindings", false, "say which processors each rank is bound to")
	f.http.add(fs, "serve what this node's ranks do")
	f.hosts.add(cmd)
	fs.DurationVar(&f.grace, "grace", 10*time.Second, "time that ranks have to stop before they are killed")
	fs.DurationVar(&f.joinTimeout, "join-timeout", 5*time.Minute, "time that nodes have to come")
	fs.DurationVar(&f.lastCall, "last-call", 30*time.Second,
		"with --nnodes MIN:MAX: time that MIN nodes wait for more, at the start and after a loss")
	fs.DurationVar(&f.heartbeat, "heartbeat", 5*time.Second,
		"a node whose launcher is silent for so long is lost, and the job with it unless --nnodes is a range; that of node 0 counts")
}

// run is the command.
func (f *runFlags) run(cmd *cobra.Command, args []string) error {
	if err := setFromEnv(cmd.Flags()); err != nil {
		return usagef("run: %w", err)
	}
	var job *launch.Job
	var err error
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	if f.hosts.given() {
		err = f.onHosts(cmd, args)
	} else if job, err = f.prepared(ctx, args); err == nil {
		return job.Run(ctx)
	}
	if failure := (*launch.Failure)(nil); err == nil || errors.As(err, &failure) {
		return err
	}
	return fmt.Errorf("run: %w", err)
}

// prepared makes the job, and serves by HTTP what its ranks do, if that's asked for, until ctx ends.
func (f *runFlags) prepared(ctx context.Context, args []string) (*launch.Job, error) {
	job, err := f.job(args)
	if err != nil || f.http.address == "" {
		return job, err
	}
	l, err := f.http.listen()
	if err != nil {
		return nil, err
	}
	var dir atomic.Value
	dir.Store("")
	job.Recording = func(d string) { dir.Store(d) }
	go f.http.serve(ctx, l, func() string { return dir.Load().(string) })
	return job, nil
}

func (f *runFlags) notPositive() bool {
	return f.grace <= 0 || f.joinTimeout <= 0 || f.lastCall <= 0 || f.heartbeat <= 0 || f.monitorInterval <= 0
}

func errNotPositive() error {
	return usagef("--grace, --join-timeout, --last-call, --heartbeat and --monitor-interval must be positive")
}

// newGuardCmd is for chorus run alone.
func newGuardCmd() *cobra.Command {
	return &cobra.Command{
		Use:    "guard",
		Short:  "Kill what a killed launcher has left behind",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(*cobra.Command, []string) error { return launch.Guard(os.Stdin) },
	}
}

// setFromEnv sets the flags that the command line left out from variables such as PET_NNODES, by which Kubernetes
// operators configure torchrun.
func setFromEnv(fs *pflag.FlagSet) (err error) {
	fs.VisitAll(func(f *pflag.Flag) {
		name := "PET_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value := os.Getenv(name)
		if f.Changed || value == "" || err != nil {
			return
		}
		if e := fs.Set(f.Name, value); e != nil {
			err = fmt.Errorf("%s=%s: %w", name, value, e)
		}
	})
	return err
}

// job turns the flags into what they mean.
func (f *runFlags) job(args []string) (*launch.Job, error) {
	command, err := f.command(args)
	if err != nil {
		return nil, err
	}
	j := &launch.Job{
		Command:     command,
		RunID:       f.rdzvID,
		Role:        f.role,
		MayLose:     f.mayLose,
		MaxRestarts: f.maxRestarts,
		Grace:       f.grace,
		JoinTimeout: f.joinTimeout,
		LastCall:    f.lastCall,
		LostAfter:   f.heartbeat,
		Bind:        launch.Binding(f.bindTo),
		LogDir:      f.logDir,
		Records:     launch.JobsDir(),
		Env:         os.Environ(),
		Color:       term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == "",
		Adopt:       true,

		ReportBindings: f.reportBindings,
	}
	j.Attach(os.Stdout, os.Stderr)
	if f.notPositive() {
		return nil, errNotPositive()
	}
	j.Monitor = time.Duration(f.monitorInterval * float64(time.Second))
	if j.RanksPerNode, err = parseNproc(f.nprocPerNode); err != nil {
		return nil, usagef("--nproc-per-node: %w", err)
	}
	if err := f.nodes(j); err != nil {
		return nil, err
	}
	if err := f.output(j); err != nil {
		return nil, err
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		j.Stdin = os.Stdin
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	j.Guard = []string{self, "guard"}
	return j, nil
}

// command decides how the program is started.
func (f *runFlags) command(args []string) ([]string, error) {
	switch {
	case f.module && f.noPython:
		return nil, usagef("--module needs Python: it excludes --no-python")
	case f.noPython, !f.module && filepath.Ext(args[0]) != ".py":
		return args, nil
	}
	python := cmp.Or(os.Getenv("PYTHON_EXEC"), ownPython())
	if python == "" {
		var err error
		if python, err = exec.LookPath("python3"); err != nil {
			return nil, fmt.Errorf("%s needs Python: %w", args[0], err)
		}
	}
	command := []string{python, "-u"}
	if f.module {
		command = append(command, "-m")
	} else if _, err := os.Stat(args[0]); err != nil {
		return nil, err // rather than the same complaint from every rank
	}
	return append(command, args...), nil
}

// ownPython is the interpreter of the virtual environment that this command is installed in; empty: it's in none.
func ownPython() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	bin := filepath.Dir(self)
	python := filepath.Join(bin, "python3")
	if _, err := os.Stat(filepath.Join(bin, "..", "pyvenv.cfg")); err != nil {
		return ""
	}
	if _, err := exec.LookPath(python); err != nil {
		return ""
	}
	return python
}

// parseNproc reads --nproc-per-node.
func parseNproc(text string) (int, error) {
	gpus := func() int {
		devices, _ := filepath.Glob("/dev/nvidia[0-9]*")
		if len(devices) == 0 {
			devices, _ = filepath.Glob("/dev/dri/renderD*")
			if _, err := os.Stat("/dev/kfd"); err != nil {
				return 0 // render nodes of graphics cards without ROCm do not count
			}
		}
		return len(devices)
	}
	switch text {
	case "cpu":
		return runtime.NumCPU(), nil
	case "auto":
		return cmp.Or(gpus(), runtime.NumCPU()), nil
	case "gpu":
		if n := gpus(); n > 0 {
			return n, nil
		}
		return 0, fmt.Errorf("no GPU on this node")
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("want a positive number, cpu, gpu or auto, not %q", text)
	}
	return n, nil
}

// parseNnodes reads --nnodes, a number or a range.
func parseNnodes(text string) (least, most int, err error) {
	lo, hi, ranged := strings.Cut(text, ":")
	if !ranged {
		hi = lo
	}
	n, err := strconv.Atoi(lo)
	m, err2 := strconv.Atoi(hi)
	if err != nil || err2 != nil || n < 1 || m < n {
		return 0, 0, fmt.Errorf("want a positive number, or MIN:MAX, not %q", text)
	}
	return n, m, nil
}

// nodes fills in how many nodes there are and where they meet.
func (f *runFlags) nodes(j *launch.Job) (err error) {
	if j.MinNodes, j.Nodes, err = parseNnodes(f.nnodes); err != nil {
		return usagef("--nnodes: %w", err)
	}
	elastic := j.MinNodes < j.Nodes
	if f.standalone && (j.Nodes > 1 || f.rdzvEndpoint != "") {
		return usagef("--standalone is for one node without an endpoint")
	}
	switch f.rdzvBackend {
	case "", "c10d":
	case "static":
		if elastic {
			return usagef("--rdzv-backend static is for nodes that don't change; --nnodes %s needs c10d", f.nnodes)
		}
		if j.Nodes > 1 && f.nodeRank == launch.AnyNodeRank {
			return usagef("--rdzv-backend static needs --node-rank; c10d gives places by arrival")
		}
	default:
		return usagef("--rdzv-backend %s: only static and c10d are supported", f.rdzvBackend)
	}
	if err := f.conf(j); err != nil {
		return usagef("--rdzv-conf: %w", err)
	}
	j.NodeRank, j.MasterAddr, j.MasterPort = f.nodeRank, f.masterAddr, f.masterPort
	if j.Nodes == 1 {
		if f.nodeRank > 0 {
			return usagef("--node-rank %d needs --nnodes of at least %d", f.nodeRank, f.nodeRank+1)
		}
		return f.endpointOfOne(j)
	}
	met := ""
	if elastic {
		met = os.Getenv("CHORUS_STORE")
	}
	switch {
	case met != "":
		if f.rdzvEndpoint != "" {
			return usagef("CHORUS_STORE and --rdzv-endpoint both say where the nodes meet: give one of them")
		}
		if j.RunID == "" {
			return usagef("nodes that meet in the store of CHORUS_STORE need --rdzv-id, a name that no other job there has had")
		}
		j.Store = met
	case f.rdzvEndpoint != "":
		j.Endpoint = withPort(f.rdzvEndpoint, defaultRdzvPort)
	case f.masterAddr != "":
		port := defaultMasterPort
		if f.masterPort != 0 {
			port = strconv.Itoa(f.masterPort)
		}
		j.Endpoint = net.JoinHostPort(f.masterAddr, port)
		j.MasterPort = 0 // the launchers hold that one
	default:
		return usagef("%d nodes need --rdzv-endpoint or --master-addr, to meet at", j.Nodes)
	}
	return nil
}

// endpointOfOne takes the address of a single node from --rdzv-endpoint, as torchrun does.
func (f *runFlags) endpointOfOne(j *launch.Job) error {
	if f.rdzvEndpoint == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(withPort(f.rdzvEndpoint, "0"))
	if err != nil {
		return usagef("--rdzv-endpoint: %w", err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return usagef("--rdzv-endpoint: %q is not a port", port)
	}
	j.MasterAddr = cmp.Or(j.MasterAddr, host)
	j.MasterPort = cmp.Or(j.MasterPort, n)
	return nil
}

func withPort(endpoint, port string) string {
	if _, _, err := net.SplitHostPort(endpoint); err == nil {
		return endpoint
	}
	return net.JoinHostPort(strings.Trim(endpoint, "[]"), port)
}

// conf reads --rdzv-conf.
func (f *runFlags) conf(j *launch.Job) error {
	if f.rdzvConf == "" {
		return nil
	}
	for entry := range strings.SplitSeq(f.rdzvConf, ",") {
		key, value, _ := strings.Cut(entry, "=")
		if key != "timeout" && key != "join_timeout" && key != "last_call_timeout" {
			return fmt.Errorf("%s is not supported; timeout, join_timeout and last_call_timeout are", key)
		}
		s, err := strconv.ParseFloat(value, 64)
		if err != nil || s <= 0 {
			return fmt.Errorf("%s: want a positive number of seconds", entry)
		}
		d := time.Duration(s * float64(time.Second))
		if key == "last_call_timeout" {
			j.LastCall = d
		} else {
			j.JoinTimeout = d
		}
	}
	return nil
}

// output fills in where the ranks' output goes.
func (f *runFlags) output(j *launch.Job) (err error) {
	if j.Redirect, err = launch.ParseStreams(f.redirects); err != nil {
		return usagef("--redirects: %w", err)
	}
	if j.Tee, err = launch.ParseStreams(f.tee); err != nil {
		return usagef("--tee: %w", err)
	}
	if f.localRanksFilter != "" {
		for text := range strings.SplitSeq(f.localRanksFilter, ",") {
			l, err := strconv.Atoi(strings.TrimSpace(text))
			if err != nil {
				return usagef("--local-ranks-filter: want a list such as 0,2, not %q", f.localRanksFilter)
			}
			j.Console = append(j.Console, l)
		}
	}
	if j.LogDir == "" && (f.redirects != "0" || f.tee != "0") {
		if j.LogDir, err = os.MkdirTemp("", "chorus-logs-"); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "chorus: log files go to %s\n", j.LogDir)
	}
	return nil
}
