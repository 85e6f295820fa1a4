package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/secure"
)

// Either rank may connect a pipe, when it first has something to send on it. If
// both do at once, the lower rank's connection counts: it turns the other's away,
// and the higher rank, which accepts, gives its own up.

const (
	dialAttempts = 4
	dialPause    = 50 * time.Millisecond // before the second attempt; doubled each time
	// refusals is how many attempts a rank is refused before it's taken to be gone: it listened before it told its
	// addresses, and stops when it closes or dies. In the pause between the two, a connection that it made before may
	// arrive.
	refusals = 2
)

var (
	errTie     = errors.New("the peer dials, too")
	errRefused = errors.New("the peer refused the connection")
)

// connect starts to connect the pipe, unless that has happened. The caller holds
// the lock, and the link has not ended.
func (pp *pipe) connect() {
	if pp.state != idle {
		return
	}
	pp.state = dialing
	pp.p.f.others.Go(func() {
		if err := pp.dial(); err != nil {
			pp.abandon(fmt.Errorf("connecting: %w", err))
		}
	})
}

// abandon gives up a pipe that could not be connected.
func (pp *pipe) abandon(err error) {
	pp.p.fail(err)
	pp.finish()
}

// dial connects the pipe, or waits until the peer has.
func (pp *pipe) dial() error {
	p := pp.p
	ctx, cancel := context.WithTimeout(p.f.ctx, p.f.timeout)
	defer cancel()
	pause := dialPause
	for attempt := 1; ; attempt++ {
		err := pp.attempt(ctx)
		if err == nil {
			return nil
		}
		if errors.Is(err, errTie) {
			attempt-- // the peer is there
		}
		p.mu.Lock()
		done := pp.state != dialing
		p.mu.Unlock()
		switch {
		case done:
			return nil
		case attempt == dialAttempts || attempt >= refusals && allRefused(err) || ctx.Err() != nil || errors.As(err,
			new(*fabric.UnableError)):
			if errors.Is(err, unix.ECONNREFUSED) {
				err = &closingError{err}
			}
			return err
		case fabric.Exhausted(err):
			err = fmt.Errorf("connecting: %w", err)
			p.failAfter(err, func() { p.reportUnable(ctx, err) })
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		case <-pp.quit:
		}
		pause = min(2*pause, time.Second)
	}
}

// closingError is fabric.ErrClosing, in the words of the system.
type closingError struct{ error }

func (e *closingError) Unwrap() []error { return []error{fabric.ErrClosing, e.error} }

// allRefused reports whether every address that dial has tried refused the connection.
func allRefused(err error) bool {
	all, ok := err.(interface{ Unwrap() []error })
	return ok && !slices.ContainsFunc(all.Unwrap(), func(err error) bool { return !errors.Is(err, unix.ECONNREFUSED) })
}

// attempt tries once to connect the pipe. It gets all descriptors for the connection before the peer relies on it.
func (pp *pipe) attempt(ctx context.Context) error {
	f := pp.p.f
	nc, err := f.dial(ctx, pp.p)
	if err != nil {
		return err
	}
	end, err := f.claim(nc)
	if err != nil {
		nc.Close()
		return err
	}
	conn, err := pp.p.greet(nc, uint32(pp.index))
	if err != nil {
		nc.Close()
		end.drop()
		return err
	}
	pp.install(nc, conn, end)
	return nil
}

// reportUnable tells the peer that this rank can't connect to it and why, so that the peer's error names the right
// rank. Other goroutines may hold the spare descriptor first, and give it back soon.
func (p *peer) reportUnable(ctx context.Context, why error) {
	ctx, cancel := context.WithTimeout(ctx, spareLimit)
	defer cancel()
	for {
		var err error
		p.f.spare.Lend(func() {
			var nc net.Conn
			if nc, err = p.f.dial(ctx, p); err == nil {
				_, err = p.greet(nc, unable(why))
				nc.Close()
			}
		})
		if !fabric.Exhausted(err) {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}

// spareLimit bounds what a rank that has no descriptors left does on its spare one, which others may need, too.
const spareLimit = time.Second

// greet says hello on a connection that this rank has made, and returns the connection within it, which is encrypted if
// there is TLS.
func (p *peer) greet(nc net.Conn, index uint32) (net.Conn, error) {
	f := p.f
	h := hello{from: uint32(f.rank), to: uint32(p.rank), size: uint32(f.size), index: index}
	nc.SetDeadline(time.Now().Add(min(helloLimit, f.timeout)))
	// A fabric that closes still says goodbye on a connection that the peer may
	// have taken.
	defer context.AfterFunc(f.ctx, func() { nc.SetDeadline(time.Now().Add(time.Second)) })()
	conn, err := f.security.TLS.Client(context.Background(), nc)
	if err != nil {
		return nil, err
	}
	if err := f.key.Initiate(conn, h.encode()); err != nil {
		return nil, f.security.TLS.Explain(err)
	}
	var a [1]byte
	if _, err := io.ReadFull(conn, a[:]); err != nil {
		return nil, fmt.Errorf("no answer to hello: %w", err)
	}
	switch answer(a[0]) {
	case welcome:
		return conn, nil
	case tie:
		return nil, errTie
	case wanting:
		var number [1]byte
		if _, err := io.ReadFull(conn, number[:]); err != nil {
			return nil, fmt.Errorf("no answer to hello: %w", err)
		}
		err := &fabric.UnableError{Peer: p.rank, Reason: fmt.Sprintf("taking a connection of rank %d: %v", f.rank,
			unix.Errno(number[0]))}
		p.fail(err) // before the peer, which waits for that, ends the other connections
		return nil, err
	}
	return nil, errRefused
}

// accept takes connections from a listener.
func (f *Fabric) accept(l net.Listener) {
	for {
		f.limiter.Wait(f.ctx)
		nc, err := l.Accept()
		if err != nil {
			if f.Closed() {
				return
			}
			if fabric.Exhausted(err) && sys.AcceptPending(l) {
				f.acceptOnSpare(l, err)
			}
			select {
			case <-f.ctx.Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		pending := f.limiter.Add(nc)
		f.others.Go(func() { f.admit(nc.(*net.TCPConn), pending) })
	}
}

// acceptOnSpare accepts one connection, for which there's no descriptor but the spare one, and tells
// the peer so.
func (f *Fabric) acceptOnSpare(l net.Listener, why error) {
	f.spare.Lend(func() {
		if d, ok := l.(interface{ SetDeadline(time.Time) error }); ok {
			d.SetDeadline(time.Now().Add(10 * time.Millisecond)) // it's there, unless its caller has gone
			defer d.SetDeadline(time.Time{})
		}
		nc, err := l.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		pending := f.limiter.Add(nc)
		nc.SetDeadline(time.Now().Add(min(spareLimit, f.timeout)))
		conn, h, err := f.authenticate(nc)
		if pending.Done(err == nil) && err == nil {
			f.peers.To(int(h.from)).refuseUnable(conn, h, why)
		}
	})
}

// refuseUnable ends the link because this rank can't take a connection, once the peer that made it knows why. A
// connection that isn't needed is refused as usual.
func (p *peer) refuseUnable(conn net.Conn, h hello, why error) {
	_, neither := h.unable() // can the peer
	if !neither {
		p.mu.Lock()
		reply, ended := p.pipes[h.index].answer(), p.err != nil
		p.mu.Unlock()
		if reply != welcome && !ended {
			conn.Write([]byte{byte(reply)})
			return
		}
	}
	p.failAfter(fmt.Errorf("taking a connection: %w", why), func() {
		if neither {
			return
		}
		conn.SetDeadline(time.Now().Add(min(spareLimit, p.f.timeout)))
		conn.Write([]byte{byte(wanting), byte(unable(why))})
		conn.Read(make([]byte, 1)) // it hangs up
	})
}

// admit reads a hello. An unauthenticated connection is closed without an answer.
func (f *Fabric) admit(nc *net.TCPConn, pending *secure.PendingConn) {
	nc.SetDeadline(time.Now().Add(min(helloLimit, f.timeout)))
	defer context.AfterFunc(f.ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })()
	conn, h, err := f.authenticate(nc)
	if !pending.Done(err == nil) || err != nil {
		nc.Close()
		if errors.Is(err, secure.ErrCertificate) { // the other end gets an error; its rank isn't known here
			f.refused.Do(func() {
				slog.Default().Warn(fmt.Sprintf("chorus: rank %d: a connection of %v was refused: %v", f.rank, nc.RemoteAddr(), err))
			})
		}
		return
	}
	p := f.peers.To(int(h.from))
	if why, ok := h.unable(); ok {
		p.fail(&fabric.UnableError{Peer: p.rank, Reason: fmt.Sprintf("connecting to rank %d: %v", f.rank, why)})
		conn.Write([]byte{byte(refused)}) // the link has ended at this end, and so may the other
		nc.Close()
		return
	}
	end, err := f.claim(nc)
	if err != nil {
		p.refuseUnable(conn, h, err)
		nc.Close()
		return
	}
	pp := p.pipes[h.index]
	p.mu.Lock()
	reply := pp.answer()
	if reply == welcome {
		pp.state = accepting
	}
	p.mu.Unlock()
	_, err = conn.Write([]byte{byte(reply)})
	switch {
	case reply != welcome:
		nc.Close()
		end.drop()
	case err != nil:
		nc.Close()
		end.drop()
		pp.abandon(fmt.Errorf("accepting a connection: %w", err))
	default:
		pp.install(nc, conn, end)
	}
}

// answer is the reply to a peer that has connected this pipe. The caller holds the lock.
func (pp *pipe) answer() answer {
	switch {
	case pp.p.err != nil || pp.state == up || pp.state == accepting || pp.state == closed:
		return refused
	case pp.state == dialing && pp.p.f.rank < pp.p.rank:
		return tie
	}
	return welcome
}

// authenticate authenticates a new connection, and reads its hello.
func (f *Fabric) authenticate(nc net.Conn) (conn net.Conn, h hello, err error) {
	if conn, err = f.security.TLS.Server(context.Background(), nc); err != nil {
		return nil, hello{}, err
	}
	var b [helloBytes]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return nil, hello{}, f.security.TLS.Explain(err)
	}
	if err := f.key.Respond(conn, b[:]); err != nil {
		return nil, hello{}, err
	}
	h, err = f.identify(b[:])
	return conn, h, err
}

// identify checks that a hello is for one of this rank's pipes, or tells why there is to be none.
func (f *Fabric) identify(b []byte) (h hello, err error) {
	if err := h.decode(b); err != nil {
		return hello{}, err
	}
	if h.to != uint32(f.rank) || h.size != uint32(f.size) || h.from >= h.size || !f.reaches(int(h.from)) {
		return hello{}, fmt.Errorf("hello from rank %d of %d to rank %d", h.from, h.size, h.to)
	}
	if _, unable := h.unable(); !unable && h.index > uint32(f.o.connections) {
		return hello{}, fmt.Errorf("hello for connection %d of %d", h.index, f.o.connections+1)
	}
	return h, nil
}

// install brings the pipe up on a connection that both sides have agreed on, what is within it, and what was claimed
// for it.
func (pp *pipe) install(nc *net.TCPConn, conn net.Conn, end pipeEnd) {
	p := pp.p
	nc.SetDeadline(time.Time{})
	nc.SetNoDelay(true)
	if n := p.f.o.buffer; n > 0 {
		nc.SetReadBuffer(n)
		nc.SetWriteBuffer(n)
	}
	if p.near {
		sys.DisablePacing(nc)
	}
	if end.inner == nil {
		nc.Close() // the pipe has it under another descriptor
	} else if err := p.f.tunnels.connect(conn, end.inner); err != nil {
		unix.Close(end.fd)
		pp.abandon(lost(pp.index, err))
		return
	}
	fd := end.fd
	p.mu.Lock()
	if pp.state != dialing && pp.state != accepting {
		p.mu.Unlock()
		unix.Close(fd) // the fabric has closed meanwhile, or the peer's connection came first
		return
	}
	pp.fd, pp.state, pp.in = fd, up, newReader(pp)
	pp.poller = p.f.pollers[pp.index%len(p.f.pollers)]
	p.heard.Store(p.f.ticks.Load())
	p.f.links.Add(1)
	pp.watch()
	p.mu.Unlock()
	pp.write(portion)
}

// A pipeEnd is the descriptor of a pipe. Either it is the connection's own, taken from the runtime, which would wake
// a thread for all that comes over it. Or it's one end of a tunnel's socket pair, whose other end is inner.
type pipeEnd struct {
	fd    int
	inner *net.UnixConn
}

// claim takes the descriptor that a pipe over nc needs.
func (f *Fabric) claim(nc *net.TCPConn) (end pipeEnd, err error) {
	if f.security.TLS != nil {
		end.inner, end.fd, err = pair()
		return end, err
	}
	raw, err := nc.SyscallConn()
	if err != nil {
		return pipeEnd{}, err
	}
	ctlErr := raw.Control(func(own uintptr) { end.fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
	if ctlErr != nil {
		return pipeEnd{}, ctlErr
	}
	return end, os.NewSyscallError("fcntl", err)
}

// drop gives back what was claimed for a pipe that doesn't come up.
func (e pipeEnd) drop() {
	unix.Close(e.fd)
	if e.inner != nil {
		e.inner.Close()
	}
}
