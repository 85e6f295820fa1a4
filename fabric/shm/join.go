package shm

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
	"github.com/chorus-comms/chorus/hostmem"
	"github.com/chorus-comms/chorus/internal/wire"
	"github.com/chorus-comms/chorus/secure"
)

// Name is the name under which the fabric is registered.
const Name = "shm"

func init() {
	transport.Register(Name, listen, func() fabric.Options { return new(options).table() })
}

// endpoint is a rank that can be reached by the others of its host, but has not joined them yet.
type endpoint struct {
	config   fabric.Config
	opts     options
	listener *net.UnixListener
	card     card
}

// A card has all that a peer needs to find and authenticate an endpoint. If the job has no secret, the card itself
// is one: a process that has it can join.
type card struct {
	Host   string
	Socket string           // in the abstract namespace: nothing in the file system
	Token  [tokenBytes]byte // makes, with the job's secret if there is one, the key that both ends of a link prove to know
}

// key is what callers of the endpoint have to know.
func (k card) key(secret secure.Secret) secure.Secret {
	return secret.Derive("shm link", k.Token[:])
}

// listen prepares a rank. It fails if this process can't share memory.
func listen(_ context.Context, c fabric.Config) (transport.Endpoint, error) {
	e := &endpoint{config: c, opts: defaults(), card: card{Host: c.HostID}}
	if err := e.opts.table().Set(Name, c.Options); err != nil {
		return nil, err
	}
	probe, err := hostmem.NewSparse(hostmem.LeastShared)
	if err != nil {
		return nil, fmt.Errorf("shm: no shared memory: %w", err)
	}
	probe.Close()
	rand.Read(e.card.Token[:])
	e.card.Socket = "@chorus-" + rand.Text()
	e.listener, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: e.card.Socket, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("shm: %w", err)
	}
	return e, nil
}

// Card implements transport.Endpoint.
func (e *endpoint) Card() []byte {
	b, err := json.Marshal(e.card)
	if err != nil {
		panic(err) // it's made of bytes and texts
	}
	return b
}

// Close implements transport.Endpoint: the fabric doesn't need the listener.
func (e *endpoint) Close() error { return e.listener.Close() }

// read returns what the others are found by, and who they are. All must be on this host.
func (e *endpoint) read(cards [][]byte) (known []card, locals []int, err error) {
	known = make([]card, len(cards))
	var elsewhere []int
	for r, b := range cards {
		if b == nil {
			continue
		}
		if err := json.Unmarshal(b, &known[r]); err != nil {
			return nil, nil, fmt.Errorf("shm: the card of rank %d: %w", r, err)
		}
		if locals = append(locals, r); known[r].Host != e.card.Host {
			elsewhere = append(elsewhere, r)
		}
	}
	if len(elsewhere) > 0 {
		err = fmt.Errorf("shm: all ranks must be on one host; not on rank %d's are %s", e.config.Rank,
			wire.NamedRanks(elsewhere))
	}
	return known, locals, err
}

// Join implements transport.Endpoint.
func (e *endpoint) Join(ctx context.Context, cards [][]byte, m *transport.Matcher) (fabric.Fabric, error) {
	c := e.config
	known, locals, err := e.read(cards)
	if err != nil {
		return nil, err
	}
	f := &Fabric{
		Base: transport.NewBase(Name, c.Rank, c.Size, m, wholeMax), rank: c.Rank, size: c.Size, local: slices.Index(locals,
			c.Rank), locals: locals,
		opts: e.opts, policy: e.opts.policy(len(locals), c.HostCores()), shape: shapeOf(len(locals)), timeout: c.Timeout,
		peers: make([]*peer, c.Size), offers: newOffers(), stop: make(chan struct{}),
	}
	if f.inbox, err = hostmem.NewSegment(f.shape.inboxBytes()); err != nil {
		return nil, fmt.Errorf("shm: %w", err)
	}
	f.page = (*inboxPage)(f.inbox.Base())
	var random [8]byte
	rand.Read(random[:])
	f.page.probe = binary.LittleEndian.Uint64(random[:])
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if err := f.connect(ctx, e, known); err != nil {
		for _, p := range f.near {
			p.link.conn.Close()
			p.mapping.Unmap()
		}
		f.inbox.Close()
		return nil, err
	}
	for _, p := range f.near {
		if p.pid == os.Getpid() {
			f.policy.InProcess = true
		}
	}
	f.unhook = hostmem.OnClose(func(id uint64) {
		for _, p := range f.near {
			p.closedSegment(id)
		}
	})
	f.workers.Add(len(f.near))
	for _, p := range f.near {
		go f.read(p)
	}
	if len(f.near) > 0 {
		f.workers.Add(1)
		go f.idleProgress()
	}
	return f, nil
}

// connect dials the local ranks below this one and awaits the calls of those above.
func (f *Fabric) connect(ctx context.Context, e *endpoint, known []card) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { e.listener.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var mu sync.Mutex
	var tasks sync.WaitGroup
	left := len(f.locals) - 1
	add := func(p *peer) bool {
		mu.Lock()
		defer mu.Unlock()
		if f.peers[p.rank] != nil {
			return false
		}
		f.peers[p.rank] = p
		f.near = append(f.near, p)
		if left--; left == 0 {
			e.listener.SetDeadline(time.Unix(1, 0)) // ends the loop below
		}
		return true
	}
	for _, r := range f.locals[:f.local] {
		tasks.Go(func() {
			p, err := f.dial(ctx, e, r, known[r])
			if fabric.Exhausted(err) {
				cancel(fmt.Errorf("shm: calling rank %d: %w", r, err))
				return
			}
			if err != nil {
				cancel(&fabric.PeerError{Peer: r, Err: fmt.Errorf("it can't be called: %w", err)})
				return
			}
			add(p)
		})
	}
	var limiter secure.AcceptLimiter
	for len(f.locals) > 1 { // until all are there, the deadline comes or a dial fails
		limiter.Wait(ctx)
		conn, err := e.listener.AcceptUnix()
		if err != nil {
			if fabric.Exhausted(err) {
				cancel(fmt.Errorf("shm: taking calls: %w", err))
			}
			break
		}
		pending := limiter.Add(conn)
		tasks.Go(func() {
			p, err := f.answerPeer(ctx, e, conn)
			if fabric.Exhausted(err) {
				cancel(fmt.Errorf("shm: taking a call: %w", err))
			}
			if !pending.Done(err == nil) || err != nil || !add(p) {
				conn.Close() // unauthenticated; a rank that doesn't come is found missing below
			}
		})
	}
	tasks.Wait()
	var missing []int
	for _, r := range f.locals {
		if r != f.rank && f.peers[r] == nil {
			missing = append(missing, r)
		}
	}
	if err := context.Cause(ctx); fabric.Exhausted(err) && ctx.Err() == context.Canceled {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("shm: %w", &fabric.AbsentError{Peers: missing, Err: context.Cause(ctx)})
	}
	slices.SortFunc(f.near, func(a, b *peer) int { return a.rank - b.rank })
	return nil
}

// greetTime bounds how long an unauthenticated process can hold a connection.
const greetTime = 10 * time.Second

// dial calls a rank and greets it.
func (f *Fabric) dial(ctx context.Context, e *endpoint, rank int, k card) (*peer, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unixpacket", k.Socket)
	if err != nil {
		return nil, err
	}
	conn := c.(*net.UnixConn)
	p, err := func() (*peer, error) {
		defer limitDial(ctx, conn, f.timeout)()
		pid, err := sameUser(conn)
		if err != nil {
			return nil, err
		}
		if err := k.key(e.config.Security.Secret).Initiate(conn, nil); err != nil {
			return nil, err
		}
		if err := f.greet(conn); err != nil {
			return nil, err
		}
		return f.meet(conn, pid, func(h hello) bool { return int(h.Rank) == rank })
	}()
	if err != nil {
		conn.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	return p, nil
}

// answerPeer answers a connection from a rank above this one.
func (f *Fabric) answerPeer(ctx context.Context, e *endpoint, conn *net.UnixConn) (*peer, error) {
	defer limitDial(ctx, conn, greetTime)()
	pid, err := sameUser(conn)
	if err != nil {
		return nil, err
	}
	if err := e.card.key(e.config.Security.Secret).Respond(conn, nil); err != nil {
		return nil, err
	}
	p, err := f.meet(conn, pid, func(h hello) bool {
		return int(h.Rank) > f.rank && slices.Contains(f.locals, int(h.Rank))
	})
	if err != nil {
		return nil, err
	}
	if err := f.greet(conn); err != nil {
		p.mapping.Unmap()
		return nil, err
	}
	return p, nil
}

// limitDial ends reads and writes of conn with ctx or after d, until the returned function is called.
func limitDial(ctx context.Context, conn *net.UnixConn, d time.Duration) (release func()) {
	conn.SetDeadline(time.Now().Add(d))
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	return func() {
		if stop() {
			conn.SetDeadline(time.Time{})
		}
	}
}

// greet tells the peer, which has proved that it belongs to the job, who this is, and gives it the inbox.
func (f *Fabric) greet(conn *net.UnixConn) error {
	h := hello{
		Rank: uint32(f.rank), World: uint32(f.size), Locals: uint32(len(f.locals)),
		ProbeAddr: uint64(uintptr(unsafe.Pointer(&f.page.probe))), Probe: f.page.probe,
	}
	say := fields{Kind: frameHello, Hello: h, Size: int64(f.inbox.Size()), Color: int32(f.inbox.Color())}
	return writePacket(conn, say.encode(nil), f.inbox.FD())
}

// meet reads the peer's greeting, checks who it is, and maps its inbox.
func (f *Fabric) meet(conn *net.UnixConn, pid int, expected func(hello) bool) (*peer, error) {
	fr, fd, err := readPacket(conn, make([]byte, maxPacket), make([]byte, 128))
	if err != nil {
		return nil, err
	}
	defer closeFD(fd)
	h := fr.Hello
	if fr.Kind != frameHello {
		return nil, errors.New("it is not a rank of this job")
	}
	if !expected(h) || int(h.World) != f.size || int(h.Locals) != len(f.locals) {
		return nil, fmt.Errorf("it calls itself rank %d of %d, with %d ranks on this host", h.Rank, h.World, h.Locals)
	}
	if fr.Size != int64(f.inbox.Size()) {
		return nil, fmt.Errorf("its inbox has %d bytes, this one %d", fr.Size, f.inbox.Size())
	}
	m, err := hostmem.MapUntouched(fd, fr.Size, int(fr.Color))
	if err != nil {
		return nil, err
	}
	// Of the inbox this rank uses its first page and its own section: with many ranks that's little of it.
	m.Prefault(0, pageBytes)
	m.Prefault(f.shape.section(f.local), f.shape.ringBytes())
	return f.newPeer(conn, int(h.Rank), pid, m, h), nil
}

// sameUser returns the process at the other end, which must belong to the same user.
func sameUser(conn *net.UnixConn) (pid int, err error) {
	if _, pid, err = secure.Peer(conn); err != nil {
		return 0, err
	}
	return pid, secure.SameUser(conn)
}

func (f *Fabric) newPeer(conn *net.UnixConn, rank, pid int, inbox *hostmem.Mapping, h hello) *peer {
	p := &peer{f: f, rank: rank, local: slices.Index(f.locals, rank), pid: pid, link: newLink(conn), mapping: inbox}
	p.page = (*inboxPage)(inbox.Base())
	mine, area := f.shape.ring(f.inbox.Base(), p.local)
	p.in = inRing{head: mine, area: area}
	p.acks, p.claims = &mine.acks, &mine.claims
	theirs, area := f.shape.ring(inbox.Base(), f.local)
	p.out = outRing{head: theirs, area: area}
	p.theirAcks, p.theirClaims = &theirs.acks, &theirs.claims
	p.canRead = f.opts.cma != "off" && f.mayRead(pid, h)
	return p
}

// mayRead finds out whether the kernel lets this process read the peer's memory.
func (f *Fabric) mayRead(pid int, h hello) bool {
	var word uint64
	return new(across).read(pid, unsafe.Pointer(&word), h.ProbeAddr, 8) == nil && word == h.Probe
}
