package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
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
)

// A round of launchers has one for each rank of the program, on a node of its own, which starts one rank. The reports
// of the round are the launchers'.
//
// With Apart the ranks work together until they're ended: the links between the launcher at fault and the others fall
// silent, and all launchers must return, and say which node is lost. With Deserted the rank at fault is many clients of
// its launcher, which go away while they're answered, between its operations; all must succeed.

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
}

// launchers runs a round of launchers.
func (r *runner) launchers(o *Outcome, round int) error {
	p := o.Program
	port, err := nettest.FreePort()
	if err != nil {
		return err
	}
	endpoint := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	links := make([]*nettest.Blackhole, p.Size) // of each launcher to the first
	for n := 1; n < p.Size; n++ {
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
		t.Launcher = &place{Node: node, Nodes: p.Size, Endpoint: endpoint}
		if node > 0 {
			t.Launcher.Endpoint = links[node].Addr()
		}
		proc.tasks.Encode(t) // a process that is gone tells by the end of its answers
	}
	cut := func() {
		for n, k := range links {
			if k != nil && (n == p.Fault.Rank || p.Fault.Rank == 0) {
				k.Cut()
			}
		}
		o.struck = time.Now().UnixNano()
	}
	over := make(chan struct{})
	defer close(over)
	answers := nodeAnswers(ps, over)
	limit := time.NewTimer(realBudget)
	defer limit.Stop()
	var begun, ended int
	for ended < p.Size && o.Stuck == "" {
		select {
		case w := <-answers:
			switch {
			case !w.ok:
				o.Stuck = fmt.Sprintf("the launcher of node %d ended: %s", w.node, ps[w.node].errors.String())
			case w.a.Reports != nil:
				o.Reports[w.node] = w.a.Reports[0]
				ended++
			default:
				begun++
			}
			if begun == p.Size && o.struck == 0 && p.Fault.Kind == Deserted {
				o.struck = time.Now().UnixNano() // the rank does it by itself
			}
			if begun == p.Size && o.struck == 0 {
				time.Sleep(p.Fault.Delay)
				cut()
				limit.Reset(lingering)
			}
		case <-limit.C:
			o.Stuck = fmt.Sprintf("%d of %d launchers have returned", ended, p.Size)
		case <-r.ctx.Done():
			kill(ps)
			return errStopped
		}
	}
	if o.Stuck != "" {
		kill(ps)
		return nil
	}
	r.give(ps...)
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
	// The rank reads its program from standard input.
	in, out, err := os.Pipe()
	if err != nil {
		return Report{}, err
	}
	defer in.Close()
	at := *t.Launcher
	t.Launcher = nil
	t.Launched = true
	err = json.NewEncoder(out).Encode(t)
	if err = errors.Join(err, out.Close()); err != nil {
		return Report{}, err
	}
	job := &launch.Job{
		Command: os.Args, RanksPerNode: 1, Stdin: in,
		Nodes: at.Nodes, NodeRank: at.Node, Endpoint: at.Endpoint,
		JoinTimeout: p.Patient, LostAfter: launcherBeat, Grace: launcherBeat, RunID: t.Name,
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
		job.Env = append(os.Environ(), pageVariable+"="+l.Addr().String())
		job.Attach(stdout, io.Discard)
	} else {
		job.Stdout = stdout
	}
	err = job.Run(context.Background())
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

// desertions is how many operations there are in a round of Deserted, and how many clients go away between them.
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
	deserted := p.Fault.Kind == Deserted
	for k := 0; !deserted || k < desertions; k++ {
		x.Fill(float32(1))
		err := c.AllReduce(ctx, x, comm.Sum)
		switch {
		case deserted && err != nil:
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
