package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil/nettest"
	"github.com/chorus-comms/chorus/launch"
	"github.com/chorus-comms/chorus/observe/endpoint"
	"github.com/chorus-comms/chorus/secure"
)

// A round of launchers has one for each rank of the program, on a node of its own, which starts one rank. The reports
// of the round are the launchers'.
//
// With Apart, Silent and Unserved the ranks work together until they're ended. The links between the launcher at fault
// and the others fall silent, or it stands still, or it's the one that serves the rendezvous, and dies. All others must
// return, and say which node is lost; so must the one that stood still, once it goes on. With Deserted the rank at fault
// is many clients of its launcher, which go away while they're answered, between its operations. With Unresolved the
// name at which the launchers meet resolves late. After these two all must succeed.

const (
	// launcherBeat is the launchers' heartbeat.
	launcherBeat = time.Second
	// lingering is how long a launcher may take to return after its links were cut: the heartbeat, the time that ranks
	// have to end, and what a busy host needs.
	lingering = 10 * time.Second
)

// place is what a worker needs to be a launcher.
type place struct {
	Node     int    `json:"node"`
	Nodes    int    `json:"nodes"`
	Endpoint string `json:"endpoint"`
	Secret   string `json:"secret,omitempty"` // of the job, if its launchers don't meet on the loopback
}

// lateName is the name at which launchers meet that resolves late.
const lateName = "node0.chorus.test"

// launchers runs a round of launchers.
func (r *runner) launchers(o *Outcome, round int) error {
	p := o.Program
	port, err := nettest.FreePort()
	if err != nil {
		return err
	}
	endpoint, secret := net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), ""
	if p.Fault.Kind == Unresolved {
		endpoint, secret = net.JoinHostPort(lateName, strconv.Itoa(port)), secure.Generate()
	}
	links := make([]*nettest.Blackhole, p.Size) // of each launcher to the first
	for n := 1; n < p.Size && p.Fault.Kind == Apart; n++ {
		if links[n], err = nettest.NewBlackhole(endpoint); err != nil {
			return err
		}
		defer links[n].Close()
	}
	ps, err := r.take(p.Size)
	if err != nil {
		return err
	}
	for node, proc := range ps {
		t := r.task(p)
		t.Name, t.Rank = fmt.Sprintf("round%d", round), node
		t.Launcher = &place{Node: node, Nodes: p.Size, Endpoint: endpoint, Secret: secret}
		if links[node] != nil {
			t.Launcher.Endpoint = links[node].Addr()
		}
		proc.tasks.Encode(t) // a process that is gone tells by the end of its answers
	}
	culprit := ps[p.Fault.Rank]
	strike := func() {
		switch p.Fault.Kind {
		case Apart:
			for n, k := range links {
				if k != nil && (n == p.Fault.Rank || p.Fault.Rank == 0) {
					k.Cut()
				}
			}
		case Silent:
			culprit.signal(syscall.SIGSTOP)
		case Unserved:
			culprit.signal(syscall.SIGKILL)
		}
		o.struck = time.Now().UnixNano()
	}
	over := make(chan struct{})
	defer close(over)
	answers := nodeAnswers(ps, over)
	limit := time.NewTimer(realBudget)
	defer limit.Stop()
	await := p.Size // launchers
	if p.Fault.Kind == Unserved {
		await--
	}
	var begun, ended int
	for ended < await && o.Stuck == "" {
		select {
		case w := <-answers:
			switch {
			case !w.ok && p.Fault.Kind == Unserved && w.node == p.Fault.Rank && o.struck != 0:
			case !w.ok:
				o.Stuck = fmt.Sprintf("the launcher of node %d ended: %s", w.node, ps[w.node].errors.String())
			case w.a.Reports != nil:
				o.Reports[w.node] = w.a.Reports[0]
				if ended++; p.Fault.Kind == Silent && ended == await-1 {
					culprit.signal(syscall.SIGCONT)
					limit.Reset(lingering)
				}
			default:
				begun++
			}
			if begun < p.Size || o.struck != 0 {
				continue
			}
			if p.Fault.harmless() {
				o.struck = time.Now().UnixNano() // it has happened, or happens by itself
				continue
			}
			time.Sleep(p.Fault.Delay)
			strike()
			limit.Reset(lingering)
		case <-limit.C:
			o.Stuck = fmt.Sprintf("%d of %d launchers have returned", ended, await)
		case <-r.ctx.Done():
			kill(ps)
			return errStopped
		}
	}
	if o.Stuck != "" {
		kill(ps)
		return nil
	}
	for _, proc := range ps {
		if p.Fault.Kind != Unserved || proc != culprit {
			r.give(proc)
		}
	}
	return nil
}

// A nodeAnswer is what the process of a launcher has said.
type nodeAnswer struct {
	node int
	a    answer
	ok   bool // else the process has ended
}

// nodeAnswers yields what the processes say, of each until it reports or ends; it ends with over.
func nodeAnswers(ps []*process, over <-chan struct{}) <-chan nodeAnswer {
	all := make(chan nodeAnswer)
	for node, proc := range ps {
		go func() {
			for {
				a, ok := <-proc.answers
				select {
				case all <- nodeAnswer{node, a, ok}:
				case <-over:
					return
				}
				if !ok || a.Reports != nil {
					return
				}
			}
		}()
	}
	return all
}

func kill(ps []*process) {
	for _, p := range ps {
		p.signal(syscall.SIGKILL)
		go func() {
			for range p.answers {
			}
		}()
	}
}

// launcher carries out a launcher of a round.
func (w *worker) launcher(p *Program, t task) (Report, error) {
	at := *t.Launcher
	job := &launch.Job{
		Command: os.Args, RanksPerNode: 1, Env: rankEnv(t),
		Nodes: at.Nodes, NodeRank: at.Node, Endpoint: at.Endpoint,
		JoinTimeout: p.Patient, LostAfter: launcherBeat, Grace: launcherBeat, RunID: t.Name,
	}
	switch {
	case p.Fault.Kind == Unserved && p.Fault.Wrong%2 == 0:
		job.MinNodes = 1
	case p.Fault.Kind == Unresolved:
		// The ranks' store is at an address: they have the system's resolver.
		job.NodeRank, job.MasterAddr, job.Secret = launch.AnyNodeRank, "127.0.0.1", at.Secret
		defer resolvingLate(p.Fault.Delay)()
	}
	var stdout io.Writer = &begin{f: func() { w.say(answer{Fired: time.Now().UnixNano()}) }}
	if p.Fault.Kind == Deserted {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return Report{}, err
		}
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		go endpoint.Serve(ctx, l, func() string { return "" })
		job.Env = append(job.Env, pageVariable+"="+l.Addr().String())
		job.Attach(stdout, io.Discard)
	} else {
		job.Stdout = stdout
	}
	err := job.Run(context.Background())
	rep := Report{Rank: t.Rank}
	if err != nil {
		x := Failure{Kind: "untyped", At: time.Now().UnixNano(), Text: err.Error()}
		if f, ok := errors.AsType[*launch.Failure](err); ok {
			x.Kind = string(f.Kind)
			if f.Kind == launch.NodeLost {
				x.Named = []int{f.Node}
			}
		}
		rep.Failures = []Failure{x}
	}
	return rep, nil
}

// resolvingLate has lateName resolve only some time from now on, until it's undone.
func resolvingLate(delay time.Duration) (undo func()) {
	system, begin := net.DefaultResolver, time.Now()
	net.DefaultResolver = nettest.Resolver(func(name string) (netip.Addr, bool) {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), name == lateName && time.Since(begin) >= delay
	})
	return func() { net.DefaultResolver = system }
}

// begin calls a function when it's written to for the first time.
type begin struct {
	once sync.Once
	f    func()
}

// Write implements io.Writer.
func (b *begin) Write(p []byte) (int, error) {
	b.once.Do(b.f)
	return len(p), nil
}

// pageVariable is where a rank finds its launcher's page.
const pageVariable = "CHORUS_CHAOS_PAGE"

// desertions is how many operations there are in a round where all succeed, and in one of Deserted how many clients go
// away between them.
const desertions = 20

// launched is the rank of a launcher: it reduces with the others, until it's ended or has been deserted enough, and
// says so when it has begun.
func launched(p *Program, rank int, out io.Writer) error {
	ctx := context.Background()
	c, err := comm.New(ctx, comm.WithFabric(p.Fabric), comm.WithTimeout(p.Patient))
	if err != nil {
		return err
	}
	x, err := c.Empty(dtype.Float32, 16)
	if err != nil {
		return err
	}
	deserted, ends := p.Fault.Kind == Deserted, p.Fault.harmless()
	for k := 0; !ends || k < desertions; k++ {
		x.Fill(float32(1))
		err := c.AllReduce(ctx, x, comm.Sum)
		switch {
		case err != nil && (ends || p.Fault.Kind == Unserved): // whose survivors may hear from their ranks first
			return err
		case err != nil:
			time.Sleep(time.Hour) // another launcher was faster with its rank; that is no failure of this one
		}
		if k == 0 {
			fmt.Fprintln(out, "begun")
		}
		if deserted && rank == p.Fault.Rank {
			store := net.JoinHostPort(os.Getenv("MASTER_ADDR"), os.Getenv("MASTER_PORT"))
			err := errors.Join(nettest.ResetHTTPClient(os.Getenv(pageVariable)), nettest.ResetStoreClient(store))
			if err != nil {
				return err
			}
		}
		time.Sleep(time.Millisecond)
	}
	return c.Finalize(ctx)
}
