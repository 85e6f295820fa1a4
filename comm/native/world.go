package native

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/comm/native/members"
	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/fabric"
	_ "github.com/chorus-comms/chorus/fabric/hybrid" // "auto", and with it "shm" and "tcp"
	_ "github.com/chorus-comms/chorus/fabric/mem"
	"github.com/chorus-comms/chorus/fabric/transport"
	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/plan"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

// Name is the name under which the backend is registered.
const Name = "native"

func init() { backend.Register(Name, Open, opHints()...) }

// Open joins a new communicator: it opens a fabric over the store and makes the
// first group on it.
func Open(ctx context.Context, c backend.Config) (backend.Backend, error) {
	at := backend.Where{Comm: c.Name, Reporter: c.Rank, Op: "new"}
	s, err := parseHints(c.Hints)
	if err != nil {
		return nil, &backend.InvalidArgumentError{Where: at, Detail: err.Error()}
	}
	cfg, err := config.Load(nil)
	if err != nil {
		return nil, err
	}
	s.fillFrom(cfg)
	if err := checkKernels(cfg); err != nil {
		return nil, err
	}
	policy, err := secure.Load(cfg)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	host, _ := s.hostID(cfg)     // if there's none, openFabric says so, when the others can be told
	cpus, _ := sys.AllowedCPUs() // where a sandbox refuses to say, their number must do
	mine := agreedSettings{Fabric: s.fabric, Cores: runtime.NumCPU(), Host: host, CPUs: cpus.String(),
		StageBytes: s.stageBytes, TLS: policy.TLS != nil,
		Machine: s.calibrated(c)}
	agreed, err := mine.agree(ctx, at, c.Exchange)
	if err != nil {
		return nil, err
	}
	s.stageBytes = agreed.StageBytes
	// The store may not be the job's own, so only records that are sealed with the secret are trusted.
	sealed := store.NewSealed(policy.Secret, c.Store)
	round := 0
	exchange := func(ctx context.Context, payload []byte) ([][]byte, error) {
		if c.Size == 1 {
			return [][]byte{payload}, nil
		}
		round++
		return bootstrap.Exchange(ctx, store.NewPrefix(fmt.Sprintf("%s/open/%d", c.Name, round), sealed), c.Rank, c.Size,
			payload)
	}
	together := startupFailure{start: start, at: at}
	if c.Size > 1 { // a world of one may have no store
		together.store = store.NewPrefix(c.Name+"/open", sealed)
	}
	watched, unwatch := together.watch(ctx)
	defer unwatch(nil)
	fab, err := s.openFabric(watched, cfg, fabric.Config{
		Rank: c.Rank, Size: c.Size, Exchange: exchange, HostID: host, Cores: agreed.here, Rendezvous: c.MasterAddr,
		Security: policy,
		Timeout:  c.Timeout, Options: s.fabricOptions, Defaults: cfg.FabricOptions(),
	})
	if err != nil {
		unwatch(&err)
		return nil, together.failed(ctx, s.fabricFailure(at, err))
	}
	w := newWorld(fab, agreed, c.Timeout)
	members := make([]int, c.Size)
	for r := range members {
		members[r] = r
	}
	g, err := w.newGroup(watched, rootID, c.Name, members, s, nil)
	if err != nil {
		unwatch(&err)
		why := together.failed(ctx, together.earlier(ctx, err))
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
		defer cancel()
		w.Fab.Close(late) // the others are told why
		if why == err {
			why = unopened(ctx, start, at, func(peer int) int { return peer }, err)
		}
		return nil, why
	}
	return g, nil
}

// fabricFailure is the error of a fabric that can't be opened.
func (s *settings) fabricFailure(at backend.Where, err error) error {
	err = fmt.Errorf("opening fabric %q (%s): %w", s.fabric, s.fabricBy, err)
	if _, ok := errors.AsType[*fabric.ConfigError](err); ok {
		return &backend.InvalidArgumentError{Where: at, Detail: err.Error()}
	} else if errors.Is(err, errors.ErrUnsupported) {
		return &backend.UnsupportedError{Where: at, Detail: err.Error()}
	}
	return err
}

// newWorld makes what the communicators of a rank have in common, over a fabric that is open.
func newWorld(fab fabric.Fabric, agreed agreedSettings, timeout time.Duration) *world {
	w := &world{World: members.World{Fab: transport.Extend(fab)}, groups: map[uint32]*group{}, timeout: timeout,
		machine: agreed.machine()}
	w.placer, _ = fab.(fabric.Placer)
	if w.sharer, _ = fab.(fabric.Sharer); w.sharer != nil {
		w.hosts = w.sharer.Hosts()
	} else {
		w.hosts = transport.Hosts(agreed.hosts)
	}
	w.Fab.Handle(w)
	return w
}

// hostID says which host this is.
func (s *settings) hostID(cfg *config.Config) (string, error) {
	if id := cmp.Or(s.host, cfg.HostID); id != "" {
		return id, nil
	}
	return bootstrap.HostID()
}

// openFabric opens the fabric, once it's known which host this is.
func (s *settings) openFabric(ctx context.Context, cfg *config.Config, c fabric.Config) (f fabric.Fabric, err error) {
	if c.HostID == "" {
		if c.HostID, err = s.hostID(cfg); err != nil {
			return nil, err
		}
	}
	return fabric.Open(ctx, s.fabric, c)
}

// leaveTime bounds how long a rank that could not join a world takes to leave it.
const leaveTime = time.Second

// world is what the groups that were split from each other share.
type world struct {
	members.World
	placer  fabric.Placer // nil if no memory can be mapped
	sharer  fabric.Sharer
	hosts   []int
	timeout time.Duration
	machine plan.Machine // the same on every rank

	mu     sync.Mutex
	groups map[uint32]*group
	led    uint32 // groups made whose lowest fabric rank is this one
	early  []early
	// joining has, by the group's number, the receiver of notices for a group that this rank is
	// joining.
	joining map[uint32]func(members.Notice)
}

// early is a notice about a communicator that this rank has not made yet: others
// may have, and failed.
type early struct {
	peer int
	n    members.Notice
}

const maxEarly = 1024

// rootID is the number of the group of all ranks.
const rootID = 1

// newID numbers a group that this rank is the lowest fabric rank of. No two groups of the world
// ever have the same number: it holds the rank, and which of the rank's groups it is. 0 means that
// there are no numbers left.
func (w *world) newID() uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := rootID + 1 + uint64(w.led)*uint64(w.Fab.Size()) + uint64(w.Fab.Rank())
	if id > math.MaxUint32 {
		return 0
	}
	w.led++
	return uint32(id)
}

// newGroup makes the part of this rank in a communicator of the given fabric ranks.
// from is nil for the world's first.
func (w *world) newGroup(ctx context.Context, id uint32, name string, members []int, s settings,
	from *splitOrigin) (*group, error) {
	n := len(members)
	g := &group{world: w, settings: s,
		base: make([]unsafe.Pointer, 4*n), dsts: make([]unsafe.Pointer, n+1),
		srcs: make([]unsafe.Pointer, n+1), machine: w.machine, met: make([]bool, n)}
	g.Init(&w.World, own{g}, id, name, members)
	g.transfers = base.Transfers{Life: &g.Life, Link: w.Fab, Comm: id, Members: members, RankOf: g.RankOf,
		Explain: g.AwaitReason, Lost: g.lostIn}
	g.windows = base.Windows{Transfers: &g.transfers, Rank: g.Rank, Own: g.own, Failed: g.Explain, LostPeer: g.LoseLink,
		Memory: exposed{g}}
	if err := g.join(ctx, from); err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.groups[id] = g
	for p, err := range w.Losses() {
		if r := g.RankOf(p); r >= 0 {
			g.Break(base.LossOf(g.Where(), r, err))
		}
	}
	mine := w.takeEarly(id)
	w.mu.Unlock()
	for _, e := range mine {
		g.Notice(e.peer, e.n)
	}
	return g, nil
}

// takeEarly returns the notices that have come for a group. The caller holds the lock.
func (w *world) takeEarly(id uint32) (mine []early) {
	w.early = slices.DeleteFunc(w.early, func(e early) bool {
		if e.n.Comm == id {
			mine = append(mine, e)
		}
		return e.n.Comm == id
	})
	return mine
}

// join opens what the group's ranks of this host share. If that fails the other members, who may be through with it or
// have nothing to share, are told; and a rank that hears so of another waits for it no longer.
func (g *group) join(ctx context.Context, from *splitOrigin) error {
	w, start := g.world, time.Now()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	heard := make(chan error, 1)
	over := func(n members.Notice) {
		if n.Known() {
			why := &peerGaveUpError{n.Translated(g.Member)}
			// Other failures reach this rank after it has joined, as they do the others.
			if n.Unopened || n.Kind == base.Lost && n.From == 0 {
				stop(why)
			}
			if n.Kind == base.Timeout && len(n.Missing) == 1 && n.Missing[0] == g.Rank {
				return // it has waited for this rank, which knows better for which rank it waits
			}
			select {
			case heard <- why:
			default: // not the first
			}
		}
	}
	w.mu.Lock()
	if w.joining == nil {
		w.joining = map[uint32]func(members.Notice){}
	}
	w.joining[g.ID] = over
	for _, e := range w.early {
		if e.n.Comm == g.ID {
			over(e.n)
		}
	}
	w.mu.Unlock()
	err := g.share(ctx)
	if from != nil && err != nil {
		err = from.explain(err)
	}
	if err != nil && !fabric.Exhausted(err) { // which others may have heard of, and passed on, but is this rank's own
		wait := time.Duration(0)
		if errors.Is(err, fabric.ErrLeft) || errors.Is(err, fabric.ErrClosing) { // the reason may be on its way
			wait = base.ReportTime
		}
		select {
		case err = <-heard:
		default:
			select {
			case err = <-heard:
			case <-time.After(wait):
			}
		}
	}
	w.mu.Lock()
	delete(w.joining, g.ID)
	if err != nil {
		w.takeEarly(g.ID)
	}
	w.mu.Unlock()
	if err == nil {
		return nil
	}
	if other := (*peerGaveUpError)(nil); errors.As(err, &other) {
		g.Forward(other.Failure.Translated(g.RankOf))
	} else {
		why := unopened(ctx, start, g.Where(), g.RankOf, err)
		if stall, ok := errors.AsType[*stallError](err); ok && stall.outside(g.RankOf) {
			why = errors.New(from.failure(ctx, err).Error()) // which names its ranks as what was split does
		}
		g.Broadcast(members.Notice{Failure: base.FailureOf(why, g.Rank), Comm: g.ID, Unopened: true})
	}
	return err
}

// A peerGaveUpError is another rank's report that a communicator which this rank joins has ended. Ranks in it are the
// fabric's.
type peerGaveUpError struct{ base.Failure }

func (e *peerGaveUpError) Error() string { return fmt.Sprintf("rank %d gave up: %s", e.Rank, e.Text) }

// leave takes a group out of the world; the last one closes the fabric.
func (w *world) leave(ctx context.Context, g *group) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.groups) > 1 {
		delete(w.groups, g.ID)
		w.Fab.Forget(g.ID)
		return nil
	}
	// The fabric reads what the others have sent until they say goodbye, too, and may find that it's of another
	// operation than this rank's last.
	w.mu.Unlock()
	err := w.Fab.Close(ctx)
	w.mu.Lock()
	delete(w.groups, g.ID)
	return err
}

// Control implements fabric.Handler.
func (w *world) Control(peer int, payload []byte) {
	var n members.Notice
	if json.Unmarshal(payload, &n) != nil {
		return
	}
	if g := w.recipient(peer, n); g != nil {
		g.Notice(peer, n)
	}
}

// recipient returns the group that a notice is for, or keeps the notice until there is one.
func (w *world) recipient(peer int, n members.Notice) *group {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.groups[n.Comm]
	if g == nil { // or the communicator is no more; then the notice is pushed out some day
		if len(w.early) == maxEarly {
			w.early = slices.Delete(w.early, 0, 1)
		}
		w.early = append(w.early, early{peer, n})
		if hear := w.joining[n.Comm]; hear != nil {
			hear(n)
		}
	}
	return g
}

func (w *world) group(id uint32) *group {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.groups[id]
}

// PeerLost breaks every group that the peer is a member of, and tells their
// other members, who may have no link to the peer.
func (w *world) PeerLost(peer int, err error) {
	w.Lose(peer, err) // before its groups are looked for, which new ones do the other way around
	w.mu.Lock()
	var hit []*group
	for _, g := range w.groups {
		if g.RankOf(peer) >= 0 {
			hit = append(hit, g)
		}
	}
	w.mu.Unlock()
	w.Telling.Begin()
	defer w.Telling.End()
	for _, g := range hit {
		g.Lost(peer, err)
	}
}

// PeerLeft lets ranks that look for survivors know that the peer won't come.
func (w *world) PeerLeft(peer int) {
	w.Leave(peer)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.groups {
		if r := g.RankOf(peer); r >= 0 {
			g.NoteGone(r, "")
		}
	}
}

// culprit returns the member of a group whose loss has broken another one, or -1.
func (w *world) culprit(of *group) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(w.groups)) {
		g := w.groups[id]
		if lost, ok := g.Cause().(*backend.PeerLostError); ok && lost.Peer >= 0 {
			if r := of.RankOf(g.Members[lost.Peer]); r >= 0 && r != of.Rank {
				return r
			}
		}
	}
	return -1
}

// Mismatch breaks the group whose ranks disagree about an operation.
func (w *world) Mismatch(peer int, key fabric.Key, local, remote fabric.Desc) {
	if g := w.group(key.Comm); g != nil {
		g.Disagree(peer, local, remote, key.Tag)
	}
}

// share opens the memory that the group's ranks of this host have in common.
func (g *group) share(ctx context.Context) (err error) {
	w := g.world
	g.LocalIndex = make([]int, len(g.Members))
	for r := range g.LocalIndex {
		g.LocalIndex[r] = -1
	}
	if w.sharer == nil || len(g.Members) == 1 {
		return nil
	}
	topo, crowded := g.topology()
	if !crowded {
		return nil // no two ranks share a host
	}
	g.topo = topo
	mine := topo.Host[g.Rank]
	var local []int
	for r, h := range topo.Host {
		if h == mine {
			local = append(local, r)
		}
	}
	// A space lists its members by ascending fabric rank.
	slices.SortFunc(local, func(a, b int) int { return g.Members[a] - g.Members[b] })
	ranks := make([]int, len(local))
	for i, r := range local {
		ranks[i] = g.Members[r]
		g.LocalIndex[r] = i
	}
	if len(ranks) == 1 {
		g.Space = fabric.NewSoloSpace(ranks[0], g.settings.stageBytes)
	} else if g.Space, err = w.sharer.Space(ctx, g.ID, ranks, g.settings.stageBytes); err != nil {
		return fmt.Errorf("sharing memory with ranks %s: %w", backend.Ranks(local), err)
	}
	g.Local = local
	g.stageBytes = g.settings.stageBytes / 2 &^ 63
	g.placer = w.placer
	return nil
}

// topology numbers the hosts of the group's ranks by their lowest rank, and
// tells whether any host has two.
func (g *group) topology() (*plan.Topology, bool) {
	t := &plan.Topology{Host: make([]int, len(g.Members))}
	number := map[int]int{}
	for r, m := range g.Members {
		h := g.world.hosts[m]
		if _, ok := number[h]; !ok {
			number[h] = len(number)
		}
		t.Host[r] = number[h]
	}
	return t, len(number) < len(g.Members)
}

// localSize counts the group's ranks on this rank's host.
func (g *group) localSize() int {
	n := 0
	for _, m := range g.Members {
		if g.world.hosts[m] == g.world.hosts[g.Members[g.Rank]] {
			n++
		}
	}
	return n
}
