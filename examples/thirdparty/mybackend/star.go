package mybackend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/fabric"
)

// Name is the name under which the backend is registered.
const Name = "star"

func init() { backend.Register(Name, open) }

// job is what the communicators of one rank share: the link to the hub.
type job struct {
	link *link
	hub  *hub // in the process of rank 0
	log  *slog.Logger
	done chan struct{} // closed when the link is no longer read

	mu     sync.Mutex
	groups map[uint32]*group
	ending bool // this rank has said goodbye
}

// open starts the hub on rank 0 and connects every rank to it.
func open(ctx context.Context, c backend.Config) (backend.Backend, error) {
	for name := range c.Hints {
		return nil, fmt.Errorf("unknown hint %q; star takes none", name)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	j := &job{done: make(chan struct{}), log: c.Log}
	addr, err := j.findHub(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("star: %w", err)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("star: connecting to the hub at rank 0: %w", err)
	}
	j.link = newLink(conn)
	if err := j.link.send(&message{Kind: hello, From: c.Rank}); err != nil {
		conn.Close()
		return nil, fmt.Errorf("star: %w", err)
	}
	g := newGroup(j, 1, c.Rank, c.Size)
	g.name = c.Name
	j.groups = map[uint32]*group{1: g}
	if d, ok := ctx.Deadline(); ok {
		conn.SetReadDeadline(d.Add(time.Second)) // by then the hub has said who is missing
	}
	m, err := j.link.receive()
	switch {
	case err != nil:
		err = fmt.Errorf("star: waiting for the other ranks: %w", err)
	case m.Kind == broken && m.Failure != nil:
		err = fmt.Errorf("star: %s", m.Failure.Text)
	case m.Kind != welcome:
		err = errors.New("star: the hub speaks another language")
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	conn.SetReadDeadline(time.Time{})
	go j.read()
	return g, nil
}

// findHub returns the hub's address, which rank 0 publishes.
func (j *job) findHub(ctx context.Context, c backend.Config) (string, error) {
	if c.Rank == 0 {
		host := "127.0.0.1"
		if c.MasterAddr != "" {
			host = c.MasterAddr
		}
		ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			return "", err
		}
		j.hub = &hub{ended: make(chan struct{})}
		admission, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Timeout)
		go func() {
			defer cancel()
			j.hub.serve(admission, ln, c.Size)
		}()
		if c.Size > 1 {
			if err := c.Store.Set(ctx, "hub", []byte(ln.Addr().String())); err != nil {
				ln.Close()
				return "", err
			}
		}
		return ln.Addr().String(), nil
	}
	addr, err := c.Store.Get(ctx, "hub")
	return string(addr), err
}

// read takes what the hub says and passes it to the group that it's for. It
// never waits for anybody.
func (j *job) read() {
	defer close(j.done)
	for {
		m, err := j.link.receive()
		j.mu.Lock()
		if err != nil {
			for _, g := range j.groups {
				g.abort.Raise(&failure{Is: isLost, Rank: g.hubRank(), Text: fmt.Sprintf("the connection to the hub broke: %v", err)})
			}
			j.mu.Unlock()
			return
		}
		g := j.groups[m.Comm]
		if g != nil && m.Kind == result && m.Tag != 0 {
			// The new communicator's messages may follow at once.
			j.groups[uint32(m.Tag)] = newGroup(j, uint32(m.Tag), m.From, len(m.Sizes))
		}
		j.mu.Unlock()
		switch {
		case g == nil: // finalized on this rank
		case m.Kind == result:
			select {
			case g.results <- m:
			default: // of an operation that has given up
			}
		case m.Kind == letter:
			g.mail.arrive(m)
		case m.Kind == broken && m.Failure != nil:
			g.abort.Raise(m.Failure)
		}
	}
}

// group is one rank's part of one communicator. It implements backend.Backend.
type group struct {
	job        *job
	id         uint32
	name       string
	rank, size int
	abort      *fabric.Abort
	seq        uint64
	results    chan *message
	mail       mail
}

func newGroup(j *job, id uint32, rank, size int) *group {
	return &group{job: j, id: id, rank: rank, size: size, abort: fabric.NewAbort(), results: make(chan *message, 1)}
}

// hubRank is what to call rank 0 of the job, whose process the hub lives in: it
// may not be a member of this communicator.
func (g *group) hubRank() int {
	if g.id == 1 {
		return 0
	}
	return -1
}

// Capabilities implements backend.Backend.
func (g *group) Capabilities() backend.Capabilities {
	return backend.Capabilities{Name: Name, Devices: []string{"cpu"}, Abort: true, AnySource: true, Tags: true, InProcess: true}
}

func (g *group) where(op *backend.Op) backend.Where {
	return backend.Where{Comm: g.name, Rank: g.rank, Op: op.Kind.String(), Seq: op.Seq}
}

// cause makes an error of why the communicator is broken.
func (g *group) cause(w backend.Where) error {
	if f, ok := g.abort.Cause().(*failure); ok {
		return f.at(w)
	}
	return nil
}

// Submit implements backend.Backend.
func (g *group) Submit(op *backend.Op) error {
	if op.Kind.PointToPoint() {
		return g.post(op)
	}
	m := contribution(op, g.rank, g.size)
	answer, err := g.ask(op.Ctx, op.Timeout, op.Kind.String(), m)
	op.Seq, op.Algorithm = g.seq, Name
	if err == nil {
		err = deliver(op, g.rank, answer.Data)
		if err != nil {
			err = g.fail(backend.Where{Comm: g.name, Rank: g.rank, Op: op.Kind.String(), Seq: g.seq}, &failure{Text: err.Error()})
		}
	}
	return err
}

// ask takes part in a collective: it sends this rank's part and waits for the answer.
func (g *group) ask(ctx context.Context, timeout time.Duration, op string, m *message) (*message, error) {
	at := backend.Where{Comm: g.name, Rank: g.rank, Op: op, Seq: g.seq + 1}
	if err := g.cause(at); err != nil {
		return nil, err
	}
	g.seq++
	m.Kind, m.Comm, m.Seq = part, g.id, g.seq
	start := time.Now()
	if err := g.job.link.send(m); err != nil {
		return nil, g.fail(at, &failure{Is: isLost, Rank: g.hubRank(), Text: err.Error()})
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	late := false
	for {
		select {
		case r := <-g.results:
			if r.Failure != nil {
				return nil, r.Failure.at(at)
			}
			return r, nil
		case <-g.abort.Done():
			return nil, g.cause(at)
		case <-ctx.Done():
			return nil, g.fail(at, &failure{Is: isAborted, Rank: g.rank, Text: fmt.Sprintf("its context ended in the middle of the operation: %v", context.Cause(ctx))})
		case <-timer.C:
			// The hub knows who is missing. If it doesn't answer either, nobody knows.
			elapsed := time.Since(start)
			if late {
				return nil, g.fail(at, &failure{Is: isTimeout, Op: op, Seq: g.seq, Elapsed: elapsed})
			}
			late = true
			g.job.link.send(&message{Kind: overdue, Comm: g.id, Seq: g.seq, Desc: op, Elapsed: elapsed})
			timer.Reset(time.Second)
		}
	}
}

// fail breaks the communicator on all ranks and returns the first cause.
func (g *group) fail(at backend.Where, f *failure) error {
	if g.abort.Raise(f) {
		g.job.link.send(&message{Kind: broken, Comm: g.id, Failure: f})
	}
	return g.cause(at)
}

// Split implements backend.Backend.
func (g *group) Split(ctx context.Context, name string, ranks []int, timeout time.Duration, hints map[string]string) (backend.Backend, error) {
	for h := range hints {
		return nil, &backend.InvalidArgumentError{Where: backend.Where{Comm: g.name, Rank: g.rank, Op: "split"}, Detail: fmt.Sprintf("unknown hint %q; star takes none", h)}
	}
	m, err := g.ask(ctx, timeout, "split", &message{Desc: "split", Sizes: ranks})
	if err != nil || len(ranks) == 0 {
		return nil, err
	}
	g.job.mu.Lock()
	defer g.job.mu.Unlock()
	child := g.job.groups[uint32(m.Tag)]
	child.name = name
	return child, nil
}

// Abort implements backend.Backend.
func (g *group) Abort(cause error) {
	g.fail(backend.Where{}, &failure{Is: isAborted, Rank: g.rank, Text: cause.Error()})
}

// Broken implements backend.Backend.
func (g *group) Broken() <-chan struct{} { return g.abort.Done() }

// Cause implements backend.Backend.
func (g *group) Cause() error { return g.cause(backend.Where{Comm: g.name, Rank: g.rank}) }

// Finalize implements backend.Backend. The last one of a rank ends its link; on
// rank 0 it then waits until the other ranks have left the hub, too.
func (g *group) Finalize(ctx context.Context) error {
	j := g.job
	g.abort.Raise(&failure{Is: isEnded})
	j.mu.Lock()
	delete(j.groups, g.id)
	last := len(j.groups) == 0
	j.mu.Unlock()
	if !last {
		return nil
	}
	j.link.send(&message{Kind: goodbye})
	select {
	case <-j.done: // the hub hangs up when it has read the goodbye
	case <-ctx.Done():
	}
	err := j.link.conn.Close()
	<-j.done
	if j.hub != nil {
		select {
		case <-j.hub.ended:
		case <-ctx.Done():
			j.log.Warn("star: rank 0 leaves before the others; they will lose it", "comm", g.name)
			return context.Cause(ctx)
		}
	}
	return err
}
