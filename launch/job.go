package launch

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/launch/internal/process"
	"github.com/chorus-comms/chorus/launch/internal/rendezvous"
	"github.com/chorus-comms/chorus/secure"
)

// Job is one node's share of a job. Fill the fields, then call Run once.
type Job struct {
	Command      []string // the program and its arguments; the program is looked up in PATH
	RanksPerNode int      // ranks that this node starts; at least 1

	// Several nodes. With Nodes of 0 or 1 the other fields here are ignored.
	Nodes    int    // launchers that take part
	NodeRank int    // this launcher's place among them, or AnyNodeRank
	Endpoint string // host:port of the rendezvous; the launcher of node 0 listens there
	// Serving, if there is one, is called when this launcher serves the rendezvous, with host:port. Then Endpoint may have
	// port 0, which is any free one.
	Serving     func(endpoint string)
	JoinTimeout time.Duration // how long to wait for all nodes, and for all to be ready for another attempt; 0: 5 minutes
	// A node whose launcher is silent for so long is lost; that of the launcher that serves the rendezvous counts; 0: 5 s.
	LostAfter time.Duration

	// An elastic job, whose nodes may be lost and may come while it runs: all ranks are started again then, with another
	// world. It has MinNodes to Nodes of them at a time; MinNodes of 0, or Nodes, is a job whose nodes are fixed. NodeRank
	// 0 says only that this launcher serves the rendezvous; nodes have their places by arrival.
	MinNodes int
	// LastCall is how long MinNodes wait for more at the begin, and after the loss of a node; 0: 30 s.
	LastCall time.Duration
	// Store is the address of a store where the launchers meet, as store.Open takes it, in the place of Endpoint: the job
	// outlives any of them then. It needs a RunID of its own. Ranks meet elsewhere, at their attempt's store.
	Store string

	RunID string // TORCHELASTIC_RUN_ID and CHORUS_RUN; empty: made up (several nodes: "none", torchrun's default)
	Role  string // ROLE_NAME; empty: "default"
	// Where the store of the ranks is served, their MASTER_ADDR unless that is a relay; empty: the host of Endpoint, or
	// 127.0.0.1 when there is one node.
	MasterAddr string
	MasterPort int // MASTER_PORT; 0: any free one, another for each attempt

	MayLose     int           // ranks of each node that may fail while the others go on, for programs that do without them
	MaxRestarts int           // how often all ranks may be started again after a failure
	Grace       time.Duration // time between asking a rank to stop and killing it; 0: 10 s
	Monitor     time.Duration // interval at which launchers look for news of each other; 0: 100 ms

	// Bind says what each rank is bound to, also in its environment: OMP_NUM_THREADS, unless Env has it, is the number of
	// cores that the rank has for itself. With more ranks than cores none is bound, which the launcher says. Empty:
	// BindNone.
	Bind           Binding
	ReportBindings bool // say on Stderr what each rank is bound to

	LogDir   string // log files go to LogDir/RunID/attempt_N/RANK/{stdout,stderr}.log; empty: no log files
	Redirect StreamMap
	Tee      StreamMap // with neither Redirect nor Tee, a LogDir tees everything
	Console  []int     // local ranks whose output is shown; nil: all

	// Records is the directory, such as JobsDir, in which the job gets one for what its ranks record: they find it as
	// CHORUS_DUMP_DIR, unless Env has that already. Empty: none.
	Records string
	// Recording, if there is one, is called at the begin of each attempt with the directory where its ranks record.
	Recording func(dir string)

	// Env is the environment that the ranks' variables are added to; nil: os.Environ(). CHORUS_SECRET, CHORUS_SECRET_FILE
	// and their neighbors in it protect the launcher's stores, too. Without a secret in it, the launcher of a single node
	// makes one for the job; launchers of several nodes need one unless they meet on the loopback, or CHORUS_INSECURE says
	// otherwise. Several ranks of a node that aren't bound get OMP_NUM_THREADS=1 unless it's there.
	Env []string
	// Secret is the text of the job's secret where the launcher got it otherwise than by Env, which must have none then.
	// Ranks find it as that which a launcher makes; empty: none.
	Secret string
	// Name is what the launcher calls itself in its messages where they are shown beside those of the job's other
	// launchers. With a name it says only what none of the others says. Empty: it says everything.
	Name   string
	Stdin  *os.File  // standard input of local rank 0; nil, and for all other ranks: /dev/null
	Stdout io.Writer // nil: discarded
	Stderr io.Writer // the ranks' standard error and the launcher's own messages; nil: discarded
	Color  bool      // colour the prefix of each line by rank

	Signals <-chan os.Signal // delivered to the ranks; see Run, and Attach for a command
	// Adopt makes this process, while Run runs, the parent of processes below it whose own parent has died, so that it
	// finds those that a rank leaves behind even if they have another environment. It's for programs that start no
	// processes but those of Run: any other child would be ended, too.
	Adopt bool

	Guard []string // a command that calls Guard with its standard input; empty: no guard

	security secure.Policy // of the launcher's stores
	handed   string        // text of the secret that the launcher hands to its ranks; empty: none
}

// MaxRanksPerNode is more ranks than a node can run, each of which is a process.
const MaxRanksPerNode = 1 << 16

const (
	defaultJoinTimeout = 5 * time.Minute
	defaultLostAfter   = 5 * time.Second
	defaultLastCall    = 30 * time.Second
	defaultGrace       = 10 * time.Second
	defaultMonitor     = 100 * time.Millisecond
)

// Run starts the ranks and returns nil when every rank of every node has exited with status 0.
//
// When a rank fails, and MayLose permits no more of that, all others are stopped and, while MaxRestarts permits,
// everything is started again. The last failure is returned as a [*Failure]; each has been explained on Stderr by then.
// Other errors mean that no attempt was made (ErrArgument, nodes missing at the deadline), or, an [*OutputError], that
// all went well but for the ranks' output; they have not been printed.
//
// In an elastic job all ranks are also started again when a node is lost, leaves by a signal, or comes. MaxRestarts
// doesn't count that, nor a rank that fails in an attempt that has lost a node.
//
// SIGUSR1 and SIGUSR2 on Signals are passed on to the ranks. Any other signal is passed on as well and ends the job:
// ranks that are still there after Grace, or at the next such signal, are killed. The end of ctx works like SIGTERM.
func (j *Job) Run(ctx context.Context) error {
	if err := j.prepare(); err != nil {
		return err
	}
	r, err := j.newRunner(ctx)
	if err != nil {
		return err
	}
	defer r.close()
	return r.run(ctx)
}

// prepare checks the fields and fills in the defaults.
func (j *Job) prepare() error {
	if len(j.Command) == 0 {
		return process.BadArgument("no program given")
	}
	if _, err := exec.LookPath(j.Command[0]); err != nil {
		return &startError{err}
	}
	if j.RanksPerNode < 1 {
		return process.BadArgument("%d ranks per node: want at least 1", j.RanksPerNode)
	}
	if j.RanksPerNode > MaxRanksPerNode {
		return process.BadArgument("%d ranks per node are more than a node can have, %d", j.RanksPerNode, MaxRanksPerNode)
	}
	if n := max(j.Nodes, 1); n > bootstrap.MaxRanks/j.RanksPerNode {
		return process.BadArgument("%d nodes with %d ranks each are a larger world than the largest, of %d", n, j.RanksPerNode,
			bootstrap.MaxRanks)
	}
	if j.MayLose < 0 || j.MayLose >= j.RanksPerNode {
		return process.BadArgument("%d of %d ranks may be lost: want 0 or more, and one to be left", j.MayLose, j.RanksPerNode)
	}
	setDefault(&j.Bind, BindNone)
	switch j.Bind {
	case BindNone, BindCore, BindSocket, BindNUMA:
	default:
		return process.BadArgument("ranks cannot be bound to %q: want %s, %s, %s or %s", j.Bind, BindNone, BindCore, BindSocket,
			BindNUMA)
	}
	if j.MaxRestarts < 0 {
		return process.BadArgument("%d restarts: want 0 or more", j.MaxRestarts)
	}
	if j.MasterPort < 0 || j.MasterPort > 65535 {
		return process.BadArgument("master port %d is not a port", j.MasterPort)
	}
	for _, l := range j.Console {
		if l < 0 || l >= j.RanksPerNode {
			return process.BadArgument("no local rank %d to show: this node has ranks 0 to %d", l, j.RanksPerNode-1)
		}
	}
	if j.Env == nil {
		j.Env = os.Environ()
	}
	if err := j.protect(); err != nil {
		return err
	}
	if j.MinNodes < 0 || j.MinNodes > max(j.Nodes, 1) {
		return process.BadArgument("%d nodes at least, of %d at most", j.MinNodes, j.Nodes)
	}
	if err := j.config().Check(); err != nil {
		return err
	}
	j.Nodes = max(j.Nodes, 1)
	if j.RunID == "" {
		j.RunID = newRunID(j.Nodes)
	}
	if strings.ContainsAny(j.RunID, "/\x00") || j.RunID == "." || j.RunID == ".." {
		return process.BadArgument("run id %q cannot name a directory", j.RunID)
	}
	setDefault(&j.Role, "default")
	setDefault(&j.JoinTimeout, defaultJoinTimeout)
	setDefault(&j.LostAfter, defaultLostAfter)
	setDefault(&j.LastCall, defaultLastCall)
	setDefault(&j.Grace, defaultGrace)
	setDefault(&j.Monitor, defaultMonitor)
	if j.Stdout == nil {
		j.Stdout = io.Discard
	}
	if j.Stderr == nil {
		j.Stderr = io.Discard
	}
	if j.LogDir != "" && j.Redirect.empty() && j.Tee.empty() {
		j.Tee = StreamMap{All: Both}
	}
	if j.LogDir == "" && (!j.Redirect.empty() || !j.Tee.empty()) {
		return process.BadArgument("redirect and tee need a log directory")
	}
	return nil
}

// elastic reports whether the job's nodes may change.
func (j *Job) elastic() bool { return j.config().Elastic() }

// config is what this launcher needs to meet the others.
func (j *Job) config() *rendezvous.Config {
	return &rendezvous.Config{RanksPerNode: j.RanksPerNode, Nodes: j.Nodes, MinNodes: j.MinNodes, NodeRank: j.NodeRank,
		Endpoint: j.Endpoint, Store: j.Store, Serving: j.Serving, JoinTimeout: j.JoinTimeout, LastCall: j.LastCall,
		LostAfter: j.LostAfter, RunID: j.RunID, Role: j.Role, MasterAddr: j.MasterAddr, MasterPort: j.MasterPort,
		MaxRestarts: j.MaxRestarts, Grace: j.Grace, Monitor: j.Monitor, Security: j.security, OnRefused: j.logRefused}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
