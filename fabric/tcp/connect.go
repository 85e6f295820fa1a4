package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/secure"
)

// Either rank may connect a pipe, when it first has something to send on it. If
// both do at once, the lower rank's connection counts: it turns the other's away,
// and the higher rank, which accepts, gives its own up.

const (
	dialAttempts = 4
	dialPause    = 50 * time.Millisecond // before the second attempt; doubled each time
	// refusals is how many attempts a rank is refused before it's taken to be gone: it listened before it told its addresses, and
	// stops when it closes or dies. In the pause between the two, a connection that it made before may arrive.
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
	pp.over()
}

// dial connects the pipe, or waits until the peer has.
func (pp *pipe) dial() error {
	p := pp.p
	ctx, cancel := context.WithTimeout(p.f.ctx, p.f.timeout)
	defer cancel()
	pause := dialPause
	for attempt := 1; ; attempt++ {
		nc, err := p.f.dial(ctx, p)
		if err == nil {
			var conn net.Conn
			if conn, err = pp.greet(nc); err == nil {
				pp.install(nc, conn)
				return nil
			}
			nc.Close()
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
		case attempt == dialAttempts || attempt >= refusals && nobodyListens(err) || ctx.Err() != nil:
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

// nobodyListens reports whether every address that dial has tried refused the connection.
func nobodyListens(err error) bool {
	all, ok := err.(interface{ Unwrap() []error })
	return ok && !slices.ContainsFunc(all.Unwrap(), func(err error) bool { return !errors.Is(err, unix.ECONNREFUSED) })
}

// greet says hello on a connection that this rank has made, and returns the connection within it, which is encrypted if there is TLS.
func (pp *pipe) greet(nc net.Conn) (net.Conn, error) {
	f := pp.p.f
	h := hello{from: uint32(f.rank), to: uint32(pp.p.rank), size: uint32(f.size), index: uint32(pp.index)}
	nc.SetDeadline(time.Now().Add(min(helloLimit, f.timeout)))
	// A fabric that closes still says goodbye on a connection that the peer may
	// have taken.
	defer context.AfterFunc(f.ctx, func() { nc.SetDeadline(time.Now().Add(time.Second)) })()
	conn, err := f.security.TLS.Client(context.Background(), nc)
	if err != nil {
		return nil, err
	}
	if err := f.key.Initiate(conn, h.encode()); err != nil {
		return nil, err
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
	}
	return nil, errRefused
}

// accept takes connections from a listener.
func (f *Fabric) accept(l net.Listener) {
	for {
		f.gate.Wait(f.ctx)
		nc, err := l.Accept()
		if err != nil {
			if f.closed.Load() {
				return
			}
			select { // out of file descriptors, perhaps
			case <-f.ctx.Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		guest := f.gate.Enter(nc)
		f.others.Go(func() { f.admit(nc.(*net.TCPConn), guest) })
	}
}

// admit reads a hello. A connection that doesn't belong here is closed without a word.
func (f *Fabric) admit(nc *net.TCPConn, guest *secure.Guest) {
	nc.SetDeadline(time.Now().Add(min(helloLimit, f.timeout)))
	defer context.AfterFunc(f.ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })()
	conn, pp, err := f.meet(nc)
	if !guest.Leave(err == nil) || err != nil {
		nc.Close()
		return
	}
	p := pp.p
	p.mu.Lock()
	reply := welcome
	switch {
	case p.err != nil || pp.state == up || pp.state == accepting || pp.state == closed:
		reply = refused
	case pp.state == dialing && f.rank < p.rank:
		reply = tie
	default:
		pp.state = accepting
	}
	p.mu.Unlock()
	_, err = conn.Write([]byte{byte(reply)})
	switch {
	case reply != welcome:
		nc.Close()
	case err != nil:
		nc.Close()
		pp.abandon(fmt.Errorf("accepting a connection: %w", err))
	default:
		pp.install(nc, conn)
	}
}

// meet has whoever has connected prove that it belongs here, and finds the pipe that it wants.
func (f *Fabric) meet(nc net.Conn) (conn net.Conn, pp *pipe, err error) {
	if conn, err = f.security.TLS.Server(context.Background(), nc); err != nil {
		return nil, nil, err
	}
	var b [helloBytes]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return nil, nil, err
	}
	if err := f.key.Respond(conn, b[:]); err != nil {
		return nil, nil, err
	}
	pp, err = f.identify(b[:])
	return conn, pp, err
}

// identify finds the pipe that a hello is for.
func (f *Fabric) identify(b []byte) (*pipe, error) {
	var h hello
	if err := h.decode(b); err != nil {
		return nil, err
	}
	if h.to != uint32(f.rank) || h.size != uint32(f.size) || h.from >= h.size || h.from == h.to {
		return nil, fmt.Errorf("hello from rank %d of %d to rank %d", h.from, h.size, h.to)
	}
	p := f.peers[h.from]
	if h.index >= uint32(len(p.pipes)) {
		return nil, fmt.Errorf("hello for connection %d of %d", h.index, len(p.pipes))
	}
	return p.pipes[h.index], nil
}

// install brings the pipe up on a connection that both sides have agreed on, and what is within it.
func (pp *pipe) install(nc *net.TCPConn, conn net.Conn) {
	p := pp.p
	nc.SetDeadline(time.Time{})
	nc.SetNoDelay(true)
	if n := p.f.o.buffer; n > 0 {
		nc.SetReadBuffer(n)
		nc.SetWriteBuffer(n)
	}
	if p.f.hosts[p.rank] == p.f.hosts[p.f.rank] {
		unpace(nc)
	}
	var fd int
	var err error
	if conn == net.Conn(nc) {
		fd, err = detach(nc)
	} else {
		fd, err = p.f.tunnels.dig(conn)
	}
	if err != nil {
		pp.abandon(lost(pp.index, err))
		return
	}
	p.mu.Lock()
	if pp.state != dialing && pp.state != accepting {
		p.mu.Unlock()
		unix.Close(fd) // the fabric has closed meanwhile, or the peer's connection came first
		return
	}
	pp.fd, pp.state = fd, up
	pp.keeper = p.f.keepers[pp.index%len(p.f.keepers)]
	p.heard.Store(p.f.ticks.Load())
	p.f.links.Add(1)
	pp.watch()
	p.mu.Unlock()
	pp.write(portion)
}

// detach takes a connection from the runtime, which would wake a thread for all that comes
// over it. It closes nc.
func detach(nc *net.TCPConn) (fd int, err error) {
	defer nc.Close()
	raw, err := nc.SyscallConn()
	if err != nil {
		return -1, err
	}
	ctlErr := raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
	if ctlErr != nil {
		return -1, ctlErr
	}
	return fd, os.NewSyscallError("fcntl", err)
}

// unpace has a connection within a host sent at full speed, if the kernel's congestion control is one that
// paces, like BBR: there's no network to spare. What isn't permitted stays as it is.
func unpace(nc *net.TCPConn) {
	raw, err := nc.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(own uintptr) {
		fd := int(own)
		if now, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil || now == "cubic" || now == "reno" {
			return
		}
		if unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic") != nil {
			unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
		}
	})
}
