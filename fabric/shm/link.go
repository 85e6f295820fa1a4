package shm

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/fabric"
)

// link is the socket to a peer. Sending never blocks: data that the socket doesn't take at once is
// queued, and a goroutine runs until the queue is empty. Data that the socket takes reaches the
// peer, even if this process dies right after send returns.
type link struct {
	conn *net.UnixConn

	mu      sync.Mutex
	queue   []packet
	writing bool
	drained *sync.Cond // queue became empty
	err     error      // why nothing is sent any more
}

type packet struct {
	b  []byte
	fd int // to be passed along and then closed; -1 for none
}

// maxQueue bounds the packets for a peer that doesn't read them.
const maxQueue = 4096

func newLink(conn *net.UnixConn) *link {
	l := &link{conn: conn}
	l.drained = sync.NewCond(&l.mu)
	return l
}

// send queues a packet, and fd, which stays the caller's. Only a packet that has to wait needs a descriptor of its own.
func (l *link) send(b []byte, fd int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.err
	if err == nil && len(l.queue) >= maxQueue {
		err = fmt.Errorf("shm: the peer has left %d control messages unread", maxQueue)
	}
	if err != nil {
		return err
	}
	if !l.writing {
		if err := writeNow(l.conn, b, fd); err != unix.EAGAIN {
			l.err = err // who reads from the peer learns what has become of it
			return nil
		}
	}
	if fd >= 0 {
		if fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return fmt.Errorf("shm: passing a descriptor on: %w", err)
		}
	}
	if !l.writing {
		l.writing = true
		go l.write()
	}
	l.queue = append(l.queue, packet{b, fd})
	return nil
}

func (l *link) write() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) > 0 && l.err == nil {
		p := l.queue[0]
		l.queue = slices.Delete(l.queue, 0, 1)
		l.mu.Unlock()
		err := writePacket(l.conn, p.b, p.fd)
		closeFD(p.fd)
		l.mu.Lock()
		if err != nil && l.err == nil {
			l.err = err
		}
	}
	for _, p := range l.queue {
		closeFD(p.fd)
	}
	l.queue = nil
	l.writing = false
	l.drained.Broadcast()
}

// abandon ends the link because the peer can't be trusted or is gone. Its reader
// then reports the reason. It's called once or more; the first reason counts.
func (l *link) abandon(err error) {
	l.mu.Lock()
	if l.err == nil {
		l.err = err
	}
	l.mu.Unlock()
	l.conn.SetDeadline(time.Unix(1, 0)) // wakes the reader, which closes
}

func (l *link) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// close waits until the queue is sent or the deadline has come, and closes the socket.
func (l *link) close(deadline time.Time) error {
	l.conn.SetWriteDeadline(deadline)
	l.mu.Lock()
	for l.writing {
		l.drained.Wait()
	}
	if l.err == nil {
		l.err = fabric.ErrClosed
	}
	l.mu.Unlock()
	return l.conn.Close()
}

func closeFD(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}

func writePacket(conn *net.UnixConn, b []byte, fd int) error {
	_, _, err := conn.WriteMsgUnix(b, rights(fd), nil)
	return err
}

// writeNow is writePacket if the socket takes the packet at once, and EAGAIN if it doesn't.
func writeNow(conn *net.UnixConn, b []byte, fd int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := raw.Write(func(s uintptr) bool {
		for {
			if sent = unix.Sendmsg(int(s), b, rights(fd), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL); sent != unix.EINTR {
				return true
			}
		}
	}); err != nil {
		return err
	}
	return sent
}

// rights passes a descriptor along, unless it's -1.
func rights(fd int) []byte {
	if fd < 0 {
		return nil
	}
	return unix.UnixRights(fd)
}

// readPacket returns the next packet, which is valid until buf is used again, and
// its descriptor or -1. The descriptor is the caller's. With errStarved the packet has come, but not its descriptor.
func readPacket(conn *net.UnixConn, buf, oob []byte) (f frame, fd int, err error) {
	n, on, flags, _, err := conn.ReadMsgUnix(buf, oob)
	if err != nil {
		return frame{}, -1, err
	}
	fds, err := descriptors(oob[:on])
	if err == nil && flags&unix.MSG_CTRUNC != 0 && len(fds) == 0 {
		if f, err = decodeFrame(buf[:n], 1); err == nil {
			err = errStarved
		}
		return f, -1, err
	}
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errors.New("a packet that is too long")
	}
	if err == nil {
		f, err = decodeFrame(buf[:n], len(fds))
	}
	if err != nil {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return frame{}, -1, &protocolError{err}
	}
	if len(fds) == 1 {
		return f, fds[0], nil
	}
	return f, -1, nil
}

// errStarved says that a peer's descriptor did not get through, for want of a free one here.
var errStarved = fmt.Errorf("this process can't take a descriptor: %w", unix.EMFILE)

// protocolError reports a peer that violates the protocol.
type protocolError struct{ err error }

func (e *protocolError) Error() string { return "it sent " + e.err.Error() }
func (e *protocolError) Unwrap() error { return e.err }

// descriptors returns those that came along, all of them, even if there's an error.
// ReadMsgUnix has made them close-on-exec.
func descriptors(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var fds []int
	for i := range messages {
		got, e := unix.ParseUnixRights(&messages[i])
		if e != nil {
			err = e
		}
		fds = append(fds, got...)
	}
	return fds, err
}

// read serves a peer's packets until it leaves or dies.
func (f *Fabric) read(p *peer) {
	defer f.workers.Done()
	defer p.link.conn.Close()
	buf, oob := make([]byte, maxPacket), make([]byte, 128)
	for resets := 0; ; {
		fr, fd, err := readPacket(p.link.conn, buf, oob)
		if errors.Is(err, unix.ECONNRESET) && resets == 0 {
			resets++ // the peer closed with packets of ours unread; its last ones still stand
			continue
		}
		if err == errStarved {
			err = nil // the user of the descriptor finds that it isn't there
		}
		if err == nil && fr.Kind == frameGoodbye {
			f.peerLeft(p)
			return
		}
		if err != nil {
			if f.Closed() {
				return
			}
			if why := p.link.reason(); why != nil {
				err = why
			} else if errors.Is(err, net.ErrClosed) {
				err = fabric.ErrClosed
			} else if nonsense := (*protocolError)(nil); !errors.As(err, &nonsense) {
				err = fmt.Errorf("its process has died (%w)", err)
			}
			f.peerDied(p, err)
			return
		}
		if !f.serve(p, &fr, fd) {
			closeFD(fd)
		}
	}
}

// serve handles one packet. The descriptor is still the caller's unless it was kept.
func (f *Fabric) serve(p *peer, fr *frame, fd int) (kept bool) {
	switch fr.Kind {
	case frameControl:
		f.Match.Control(p.rank, slices.Clone(fr.payload))
	case frameWant:
		p.give(fr.ID)
	case frameHave:
		var err error
		if fd < 0 {
			err = errStarved
		}
		p.maps.answer(fr.ID, fd, fr.Size, int(fr.Color), err)
		f.kick()
	case frameNone:
		err := errors.New("its owner has no such segment")
		if len(fr.payload) > 0 {
			err = &fabric.UnableError{Peer: p.rank, Reason: string(fr.payload)}
		}
		p.maps.answer(fr.ID, -1, 0, 0, err)
		f.kick()
	case frameEnded:
		p.maps.retire(fr.ID)
	case frameOffer, frameRefuse:
		f.offers.put(p.rank, fr, fd)
		return true
	default:
		p.failLink(fmt.Errorf("it sent a packet of kind %d out of order", fr.Kind))
	}
	return false
}

// peerDied handles the death of a peer, or a violation of the protocol by it.
func (f *Fabric) peerDied(p *peer, err error) {
	perr := &fabric.PeerError{Peer: p.rank, Err: err}
	f.endPeer(p, perr)
	f.Match.Lost(p.rank, err)
}

// peerLeft handles a peer's goodbye. Messages that it has sent before still count.
func (f *Fabric) peerLeft(p *peer) {
	f.endPeer(p, &fabric.PeerError{Peer: p.rank, Err: fabric.ErrLeft})
	f.Match.Left(p.rank)
}

// endPeer receives what the peer has sent, and fails everything that waits for it.
func (f *Fabric) endPeer(p *peer, err error) {
	p.link.abandon(err)
	f.acquire()
	if !f.down {
		f.drain(p)
		p.collect(p.acks.Load()) // what it has read before was sent, though this rank has not looked since
		p.fail(err)
		f.failPulls(p, err)
		f.pull()
	}
	f.unlock()
	p.maps.fail(err)
	f.offers.fail(p.rank, err)
}
