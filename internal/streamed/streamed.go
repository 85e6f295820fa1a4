package streamed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/tensor"
)

// Name is the name under which the backend is registered.
const Name = "streamed"

func init() { backend.Register(Name, Open) }

// group is what the ranks of a communicator have in common.
type group struct {
	mu       sync.Mutex
	ranks    []*rank // nil: not there yet
	meetings map[key]*meeting
}

// groups are those whose ranks still come, by the name that rank 0 publishes.
var (
	groups  sync.Map
	counter atomic.Uint64
)

// rank is one rank's part of a communicator.
type rank struct {
	base.Life
	group    *group
	rank     int
	device   string
	seq      uint64   // collectives so far
	splits   uint64   // so far
	messages []uint64 // to each rank so far, and then from each
}

var _ backend.Enqueuer = (*rank)(nil)

func newGroup(size int) *group {
	return &group{ranks: make([]*rank, size), meetings: map[key]*meeting{}}
}

func (g *group) join(name string, me int, dev string) *rank {
	r := &rank{group: g, rank: me, device: dev, messages: make([]uint64, 2*len(g.ranks))}
	r.Begin(name, me, r.tell)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ranks[me] = r
	return r
}

// Open begins a rank's part, when all have come.
func Open(ctx context.Context, c backend.Config) (backend.Backend, error) {
	if len(c.Hints) > 0 {
		return nil, fmt.Errorf("hints %v; %s takes none", c.Hints, Name)
	}
	if _, err := device.Get(c.Device); err != nil {
		return nil, err
	}
	g := newGroup(c.Size)
	if c.Size > 1 {
		id := fmt.Sprintf("%d-%d", os.Getpid(), counter.Add(1))
		if c.Rank == 0 {
			groups.Store(id, g)
			defer groups.Delete(id) // the others have it then, or won't
			if err := c.Store.Set(ctx, "group", []byte(id)); err != nil {
				return nil, err
			}
		} else {
			text, err := c.Store.Get(ctx, "group")
			if err != nil {
				return nil, err
			}
			found, ok := groups.Load(string(text))
			if !ok {
				return nil, fmt.Errorf("rank 0 is in another process, or has left: %s", text)
			}
			g = found.(*group)
		}
	}
	r := g.join(c.Name, c.Rank, c.Device)
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	_, err := r.meet(ctx, key{}, &part{rank: c.Rank}, func(*meeting) error { return nil })
	return r, err
}

// tell passes a failure on to the other ranks.
func (r *rank) tell(_ uint64, cause error) {
	f := base.FailureOf(cause, r.rank)
	r.group.mu.Lock()
	ranks := slices.Clone(r.group.ranks)
	r.group.mu.Unlock()
	for _, o := range ranks {
		if o != nil && o != r {
			o.Break(f.Err(o.Where()))
		}
	}
}

// Capabilities implements backend.Backend.
func (r *rank) Capabilities() backend.Capabilities {
	return backend.Capabilities{Name: Name, Devices: []string{r.device}, Abort: true, InProcess: true,
		LocalSize: len(r.group.ranks)}
}

// Submit implements backend.Backend. Nothing comes this way: no tensor is on the host.
func (r *rank) Submit(op *backend.Op) error {
	return &backend.UnsupportedError{Where: r.Of(op), Detail: Name + " works on streams only"}
}

// Wait implements backend.Backend.
func (r *rank) Wait(*backend.Op) error { return nil }

// Enqueue implements backend.Enqueuer.
func (r *rank) Enqueue(ops ...*backend.Op) error {
	if r.Raised() {
		return r.Err(r.Of(ops[0]))
	}
	keys, parts := make([]key, len(ops)), make([]*part, len(ops))
	for i, op := range ops {
		if op.Kind == backend.Recv && op.Peer == backend.AnySource || op.Tag != 0 {
			return &backend.UnsupportedError{Where: r.Of(op), Detail: Name + " has neither tags nor any source"}
		}
		p := &part{rank: r.rank, op: *op}
		if err := p.op.Replace((*tensor.Tensor).EngineView); err != nil {
			return err
		}
		op.Algorithm, op.From = Name, op.Peer
		keys[i] = key{kind: op.Kind}
		switch k := &keys[i]; op.Kind {
		case backend.Send:
			r.messages[op.Peer]++
			*k = key{kind: backend.Send, from: r.rank, to: op.Peer, seq: r.messages[op.Peer]}
			p.rank = 0
		case backend.Recv:
			n := &r.messages[len(r.group.ranks)+op.Peer]
			*n++
			*k = key{kind: backend.Send, from: op.Peer, to: r.rank, seq: *n}
			p.rank = 1
		default:
			r.seq++
			op.Seq, p.op.Seq = r.seq, r.seq
			*k = key{seq: r.seq}
		}
		parts[i] = p
	}
	return ops[0].Stream.HostFunc(ops[0].Kind.String(), func() (err error) {
		met := make([]*meeting, len(ops))
		for i, p := range parts {
			keys[i].run++ // of a graph, which has one at a time
			n, act := len(r.group.ranks), r.collective
			if p.op.Kind.PointToPoint() {
				n, act = 2, r.message
			}
			met[i] = r.group.arrive(keys[i], p, n, act)
		}
		for i, p := range parts {
			err = errors.Join(err, r.await(context.Background(), keys[i], p, met[i]))
		}
		if err != nil && r.Raised() {
			return r.Err(r.Of(&parts[0].op))
		}
		return err
	})
}

// Overdue implements backend.Enqueuer.
func (r *rank) Overdue(op *backend.Op, elapsed time.Duration) {
	e := &backend.TimeoutError{Where: r.Of(op), Attendance: backend.Attendance{Elapsed: elapsed}}
	if op.Kind.PointToPoint() {
		e.Missing = []int{op.Peer}
	} else {
		e.Arrived, e.Missing = r.group.attendance(op.Seq)
	}
	r.Fail(e)
}

// Split implements backend.Backend.
func (r *rank) Split(ctx context.Context, name string, list []int, timeout time.Duration,
	hints map[string]string) (backend.Backend, error) {
	at := r.In("split")
	if len(hints) > 0 {
		return nil, &backend.InvalidArgumentError{Where: at, Detail: fmt.Sprintf("hints %v; %s takes none", hints, Name)}
	}
	if r.Raised() {
		return nil, r.Err(at)
	}
	r.splits++
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	p := &part{rank: r.rank, list: list}
	k := key{split: true, seq: r.splits}
	m, err := r.meet(ctx, k, p, divide)
	switch mismatch, ok := errors.AsType[*backend.MismatchError](err); {
	case ok: // which breaks nothing
		e := *mismatch
		e.Where = at
		return nil, &e
	case err != nil:
		r.Fail(&backend.TimeoutError{Where: at, Attendance: backend.Attendance{Elapsed: time.Since(start)}})
		return nil, r.Err(at)
	case len(list) == 0:
		return nil, nil
	}
	return m.groups[list[0]].join(name, slices.Index(list, r.rank), r.device), nil
}

// divide makes the groups of a split, if the lists agree.
func divide(m *meeting) error {
	m.groups = map[int]*group{}
	for q, p := range m.parts {
		for _, o := range p.list {
			if err := differ(backend.Where{}, q, o, words(p.list), words(m.parts[o].list)); err != nil {
				return err
			}
		}
		if len(p.list) > 0 && m.groups[p.list[0]] == nil {
			m.groups[p.list[0]] = newGroup(len(p.list))
		}
	}
	return nil
}

func words(list []int) string { return fmt.Sprintf("split%v", list) }

// Finalize implements backend.Backend.
func (r *rank) Finalize(context.Context) error {
	r.End()
	return nil
}
