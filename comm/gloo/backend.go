package gloo

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/plan"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

// Name is the name under which the backend is registered.
const Name = "gloo"

func init() { backend.Register(Name, open) }

// prefixHint is the hint that names the keys under which PyTorch's ranks meet, if it isn't those of init_process_group:
// a program that gives that a store of its own has them under "".
const prefixHint = "prefix"

// interfaceHint is the hint that names the interfaces to listen at, as GLOO_SOCKET_IFNAME does, which it wins over.
const interfaceHint = "interface"

// ownHint is the hint that says with "true" that the store is this group's alone, as PyTorch gives it to a backend of a
// group; other groups come as communicators of their own, too.
const ownHint = "own_store"

// pytorchHint is the hint that says which PyTorch the others are: "1.13", or any from 2.2 on, which is the default.
const pytorchHint = "pytorch"

// job is what the groups of a rank have in common.
type job struct {
	store  store.Store // below the prefix
	root   string      // path of the default group's keys
	hosts  []string    // where to listen: one address for each interface
	device string      // before an interface's number in the keys of a group
	groups int         // that new_group has numbered, which is called for the default group's communicator alone
	old    bool        // the others are PyTorch 1.13
	tls    *tls.Config // nil: connections aren't encrypted
	world  int         // ranks of the default group
}

// group is one rank's part of a communicator.
type group struct {
	base.Life
	job        *job
	path       string // of its keys, below the job's
	splits     int    // among ranks of Chorus alone
	meshes     meshes
	mesh       *mesh // that of the collective under way
	rank, size int
	transfers  base.Transfers

	// Of the collective under way.
	waiter  *fabric.Waiter
	work    base.Job
	request plan.Request
	slot    uint64
	tag     uint32 // of the next one
	seq     uint64
	scratch base.Scratch
	open    []*fabric.Msg
	free    []*fabric.Msg
	dst     [1]unsafe.Pointer
	src     [2]unsafe.Pointer
}

func open(ctx context.Context, c backend.Config) (backend.Backend, error) {
	at := backend.Where{Comm: c.Name, Reporter: c.Rank, Op: "new"}
	prefix := "default_pg"
	j := &job{root: "0/", device: "/cpu//", world: c.Size}
	own, cards := false, cmp.Or(os.Getenv("GLOO_SOCKET_IFNAME"), os.Getenv("TP_SOCKET_IFNAME"))
	for name, value := range c.Hints {
		switch {
		case name == prefixHint:
			prefix = value
		case name == ownHint && value == "true":
			own = true
		case name == interfaceHint:
			cards = value
		case name == pytorchHint:
			var err error
			if j.old, err = oldPyTorch(value); err != nil {
				return nil, &backend.InvalidArgumentError{Where: at, Detail: err.Error()}
			}
		default:
			detail := fmt.Sprintf("unknown hint %s=%q; %s takes %s, %s, %s, and %s=true", name, value, Name, interfaceHint,
				prefixHint, pytorchHint, ownHint)
			return nil, &backend.InvalidArgumentError{Where: at, Detail: detail}
		}
	}
	switch _, given := c.Hints[prefixHint]; {
	case j.old && own:
		detail := fmt.Sprintf("%s=true is for groups of PyTorch from 2.2 on", ownHint)
		return nil, &backend.InvalidArgumentError{Where: at, Detail: detail}
	case j.old:
		if j.root, j.device = "0", "/"; !given {
			prefix = attempt() + prefix
		}
	case own:
		prefix, j.root, j.device = "", "", ""
	}
	if c.Size > 1 {
		var err error
		if j.tls, err = tlsOf(); err == nil && j.tls != nil && j.old {
			err = errors.New("it's not known how ranks of PyTorch 1.13 encrypt")
		}
		if err != nil {
			return nil, &backend.UnsupportedError{Where: at, Detail: err.Error()}
		}
		if j.hosts, err = listenAt(cards, c.MasterAddr); err != nil {
			return nil, err
		}
		for _, host := range j.hosts {
			if j.tls != nil { // TLS proves the identity of a peer
				break
			}
			if err := permitted(at, host); err != nil {
				return nil, err
			}
		}
		if j.store = c.Job; prefix != "" {
			j.store = store.NewPrefix(prefix, j.store)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	giveBack, err := claim(ctx, &c)
	if err != nil {
		return nil, err
	}
	g, err := j.group(ctx, c.Name, j.root, c.Rank, c.Size)
	if err != nil {
		giveBack()
		return nil, j.wrongVersionHint(err)
	}
	if j.old && c.Size > 1 {
		if err := j.meet(ctx, g); err != nil {
			g.Finalize(ctx)
			giveBack()
			return nil, err
		}
	}
	return g, nil
}

// claim makes sure that the name of a communicator has not been used on its store. The keys of PyTorch's ranks belong
// to no attempt: those of a communicator that has ended look like new ones. A rank that fails gives its claim back.
func claim(ctx context.Context, c *backend.Config) (giveBack func(), err error) {
	const key = "joined"
	if c.Size == 1 {
		return func() {}, nil
	}
	n, err := c.Store.Add(ctx, key, 1)
	if err != nil {
		return nil, err
	}
	giveBack = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_, _ = c.Store.Add(ctx, key, -1) // else the name can't be used again
	}
	if n > int64(c.Size) {
		giveBack()
		return nil, c.Used()
	}
	return giveBack, nil
}

// group begins this rank's part of a group with a name of PyTorch's.
func (j *job) group(ctx context.Context, name, path string, rank, size int) (*group, error) {
	ms, err := j.connect(ctx, path, rank, size)
	if err != nil {
		return nil, err
	}
	g := &group{job: j, path: path, meshes: ms, mesh: ms[0], rank: rank, size: size}
	g.Begin(name, rank, func(uint64, error) { ms.kill(fabric.ErrClosed) })
	g.waiter = g.Waiter()
	members := make([]int, size)
	for r := range members {
		members[r] = r
	}
	g.transfers = base.Transfers{Life: &g.Life, Link: ms, Members: members, RankOf: func(peer int) int { return peer },
		Lost: func(op *backend.Op, err *fabric.PeerError) error {
			g.Fail(g.loss(g.Of(op), err.Peer))
			return g.Err(g.Of(op))
		}}
	return g, nil
}

// listenAt returns the addresses at which the others find this rank: those of the interfaces that are
// named, or that of the way to the rendezvous.
func listenAt(names, master string) (all []string, err error) {
	if names != "" {
		for name := range strings.SplitSeq(names, ",") {
			at, err := addressOf(name)
			if err != nil {
				return nil, fmt.Errorf("the interfaces %s (GLOO_SOCKET_IFNAME, or the hint %s): %w", names, interfaceHint, err)
			}
			all = append(all, at)
		}
		return all, nil
	}
	if master == "" {
		return []string{"127.0.0.1"}, nil
	}
	ip, err := bootstrap.LocalAddrFor(master)
	return []string{ip.String()}, err
}

// addressOf returns an interface's first address.
func addressOf(name string) (string, error) {
	card, err := net.InterfaceByName(name)
	if err != nil {
		return "", err
	}
	addrs, err := card.Addrs()
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok {
			return zoned(ip.IP, name), nil
		}
	}
	return "", errors.Join(fmt.Errorf("the interface %s has no address", name), err)
}

// zoned returns an address as one listens at it.
func zoned(ip net.IP, card string) string {
	if ip.IsLinkLocalUnicast() && ip.To4() == nil {
		return ip.String() + "%" + card
	}
	return ip.String()
}

// permitted refuses what the job's secret, or certificates, should keep out and this wire can't.
func permitted(at backend.Where, host string) error {
	policy, err := secure.Environment()
	if err != nil || policy.Insecure || secure.Loopback(host) {
		return err
	}
	return &backend.UnsupportedError{Where: at, Detail: fmt.Sprintf("the wire of Gloo has no way to prove who connects, "+
		"and %s can be reached from other hosts: on a network that you trust CHORUS_INSECURE=true permits it; "+
		"GLOO_SOCKET_IFNAME=lo keeps the job on this host", host)}
}

// Capabilities implements backend.Backend.
func (g *group) Capabilities() backend.Capabilities {
	c := backend.Capabilities{Name: Name, Devices: []string{"cpu"}, Abort: true, AnySource: true, Tags: true,
		InProcess: true, Foreign: true}
	if g.hasPyTorch() {
		c.Reduces = g.job.pytorchReduces
	}
	return c
}

// Submit implements backend.Backend.
func (g *group) Submit(op *backend.Op) error {
	if op.Kind.PointToPoint() {
		if op.Tag > maxTag && op.Tag < ownTags {
			detail := fmt.Sprintf("tag %d is greater than PyTorch's greatest, %d", op.Tag, maxTag)
			return &backend.InvalidArgumentError{Where: g.Of(op), Detail: detail}
		}
		return g.transfers.Post(op)
	}
	g.seq++
	op.Seq, op.Algorithm = g.seq, Name
	if g.Raised() {
		return g.Err(g.Of(op))
	}
	if err := g.refuseUnsupported(op); err != nil {
		return err
	}
	g.request = plan.Request{World: g.size, Rank: g.rank}
	g.work.Lower(op, &g.request)
	g.scratch.Reset()
	g.waiter.Begin(op.Ctx, op.Timeout)
	g.next(op.Kind)
	return nil
}

// Wait implements backend.Backend.
func (g *group) Wait(op *backend.Op) error {
	if op.Kind.PointToPoint() {
		return g.transfers.Complete(op)
	}
	err := g.carry(op)
	if err != nil {
		err = g.failed(op, err)
		g.withdraw()
	} else {
		g.Ended(op.Seq)
	}
	g.mesh.end()
	return err
}

// Finalize implements backend.Backend.
func (g *group) Finalize(ctx context.Context) error {
	g.End()
	g.meshes.close(ctx)
	g.scratch.Free()
	return nil
}
