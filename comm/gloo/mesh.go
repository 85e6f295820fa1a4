package gloo

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

// mesh is one rank's pairs with all other ranks of a group. A message's tag is its slot.
type mesh struct {
	rank      int
	pairs     []*pair // by rank; its own once it sends itself something
	listener  net.Listener
	running   sync.WaitGroup
	joined    chan *pair  // that have a connection
	allChorus bool        // all ranks are of Chorus
	start     time.Time   // when this rank began to connect
	tls       *tls.Config // nil: connections aren't encrypted

	mu         sync.Mutex
	closed     bool
	refusedErr error                    // of a rank that has connected
	order      uint64                   // of the sendReady that came
	anySource  map[uint64][]*fabric.Msg // receives from any source that wait, by slot
	now        uint64                   // the slot of the collective under way
	other      *otherCollectiveError    // a rank that is in another one instead
}

// An otherCollectiveError reports a rank that is in a different collective under the number of this
// rank's.
type otherCollectiveError struct {
	peer  int
	there uint64 // its slot
}

func (e *otherCollectiveError) Error() string {
	return fmt.Sprintf("rank %d is in %s", e.peer, slotName(e.there))
}

func newMesh(rank, size int) *mesh {
	m := &mesh{rank: rank, pairs: make([]*pair, size), anySource: map[uint64][]*fabric.Msg{},
		joined: make(chan *pair, size), start: time.Now()}
	for r := range m.pairs {
		m.pairs[r] = &pair{m: m, peer: r, states: map[uint64]*slotState{}, wake: make(chan struct{}, 1)}
	}
	return m
}

// connect connects the ranks of a group, who find each other in its part of the store.
func connect(ctx context.Context, st store.Store, rank, size int, host string, over *tls.Config) (_ *mesh, err error) {
	m := newMesh(rank, size)
	m.tls = over
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	m.listener = l
	defer func() {
		if err != nil {
			m.close(ctx)
		}
	}()
	name, _ := os.Hostname()
	mine := record{host: name, addr: address{at: l.Addr().(*net.TCPAddr).AddrPort(), seq: -1}}
	for r := range size {
		mine.ids = append(mine.ids, int64(r))
	}
	m.running.Add(1)
	go m.accept()
	records, err := m.exchange(ctx, st, mine.append(nil))
	if err != nil {
		return nil, err
	}
	await := map[*pair]bool{}
	failed := make(chan error, size)
	for r, p := range m.pairs {
		if r == rank {
			continue
		}
		theirs, err := parseRecord(records[r], size)
		if err == nil {
			err = alike(mine.addr, theirs.addr)
		}
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
		switch {
		case mine.addr.dials(theirs.addr):
			await[p] = true
			hello := binary.LittleEndian.AppendUint64(nil, uint64(theirs.numbered(rank)))
			go func() { failed <- p.dial(ctx, theirs.addr, hello) }()
		case theirs.ids != nil: // else it may connect no sooner than it needs to
			await[p] = true
		}
	}
	return m, m.complete(ctx, await, failed)
}

// complete waits until the pairs have their connections; those that this rank makes may have failed.
func (m *mesh) complete(ctx context.Context, await map[*pair]bool, failed <-chan error) error {
	for len(await) > 0 {
		select {
		case p := <-m.joined:
			delete(await, p)
		case err := <-failed:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			var missing []int
			for r, p := range m.pairs {
				if await[p] {
					missing = append(missing, r)
				}
			}
			return m.absent(missing, ctx.Err())
		}
	}
	return nil
}

// absent is the error of ranks that haven't come.
func (m *mesh) absent(missing []int, err error) error {
	m.mu.Lock()
	err = errors.Join(err, m.refusedErr)
	m.mu.Unlock()
	return &bootstrap.MissingRanksError{Missing: missing, Reporter: m.rank, Size: len(m.pairs),
		Waited: time.Since(m.start), Err: err}
}

// exchange sets this rank's record in the store, and returns the records of all.
func (m *mesh) exchange(ctx context.Context, st store.Store, mine []byte) (all [][]byte, err error) {
	size := len(m.pairs)
	keys, marks := make([]string, size), make([]string, size) // what ranks of Chorus set beside
	for r := range size {
		keys[r], marks[r] = strconv.Itoa(r), "chorus/"+strconv.Itoa(r)
	}
	if err := st.Set(ctx, marks[m.rank], nil); err != nil {
		return nil, err
	}
	if err := st.Set(ctx, keys[m.rank], mine); err != nil {
		return nil, err
	}
	if err := st.Wait(ctx, keys...); err != nil {
		if late, ok := errors.AsType[*store.TimeoutError](err); ok {
			return nil, m.absent(numbers(late.Missing), err)
		}
		return nil, err
	}
	if m.allChorus, err = st.Check(ctx, marks...); err != nil {
		return nil, err
	}
	all = make([][]byte, size)
	for r, k := range keys {
		if all[r], err = st.Get(ctx, k); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// alike is an error if two ranks listen at addresses of different families.
func alike(mine, theirs address) error {
	if theirs.at.Addr().Is4() == mine.at.Addr().Unmap().Is4() {
		return nil
	}
	return fmt.Errorf("it listens at %v, which is no address of the family of %v: GLOO_SOCKET_IFNAME chooses the "+
		"interface", theirs.at, mine.at)
}

// numbers are the ranks whose keys a store names, with a prefix or without.
func numbers(keys []string) (ranks []int) {
	for _, k := range keys {
		i := len(k)
		for i > 0 && '0' <= k[i-1] && k[i-1] <= '9' {
			i--
		}
		if r, err := strconv.Atoi(k[i:]); err == nil {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// dial connects to a peer and sends it this rank's number.
func (p *pair) dial(ctx context.Context, to address, hello []byte) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", to.at.String())
	if err == nil && len(hello) > 0 {
		_, err = conn.Write(hello)
	}
	if err == nil {
		conn, err = p.m.sealed(ctx, conn)
	}
	if err != nil {
		return fmt.Errorf("connecting to rank %d at %v: %w", p.peer, to.at, err)
	}
	p.attach(conn)
	return nil
}

// accept takes the connections to this rank, and closes those that don't send a known rank in time.
func (m *mesh) accept() {
	defer m.running.Done()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var limiter secure.AcceptLimiter
	for {
		limiter.Wait(ctx)
		conn, err := m.listener.Accept()
		if err != nil {
			return
		}
		pending := limiter.Add(conn)
		go func() {
			var who [8]byte
			conn.SetReadDeadline(time.Now().Add(helloTime))
			_, err := io.ReadFull(conn, who[:])
			r := binary.LittleEndian.Uint64(who[:])
			known := err == nil && r < uint64(len(m.pairs)) && int(r) != m.rank
			if !pending.Done(known) || !known {
				conn.Close()
				return
			}
			late, cancel := context.WithTimeout(ctx, helloTime)
			defer cancel()
			over, err := m.sealed(late, conn)
			if err != nil {
				conn.Close()
				m.refused(int(r), err)
				return
			}
			over.SetReadDeadline(time.Time{})
			m.pairs[r].attach(over)
		}()
	}
}

// refused notes why a rank's call was.
func (m *mesh) refused(rank int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refusedErr = fmt.Errorf("the connection of rank %d failed: %w", rank, err)
}

// helloTime is how long a connecting rank may take to send its number, which PyTorch does at once.
const helloTime = 10 * time.Second

// pair returns the pair with a rank. A rank's own is a pipe.
func (m *mesh) pair(peer int) *pair {
	p := m.pairs[peer]
	if peer == m.rank {
		m.mu.Lock()
		there := p.conn != nil || m.closed
		m.mu.Unlock()
		if !there {
			in, out := net.Pipe()
			p.attach(loop{out, in})
		}
	}
	return p
}

// loop is a connection with oneself: what is written to one end of a pipe is read from the other.
type loop struct {
	net.Conn
	in net.Conn
}

func (l loop) Read(b []byte) (int, error)        { return l.in.Read(b) }
func (l loop) SetReadDeadline(t time.Time) error { return l.in.SetReadDeadline(t) }
func (l loop) Close() error                      { return errors.Join(l.in.Close(), l.Conn.Close()) }

// Send posts a send.
func (m *mesh) Send(msg *fabric.Msg) { m.post(msg, msg.Peer, (*pair).send) }

// Recv posts a receive.
func (m *mesh) Recv(msg *fabric.Msg) {
	if msg.Peer != fabric.AnySource {
		m.post(msg, msg.Peer, (*pair).recv)
		return
	}
	m.mu.Lock()
	slot := msg.Key.Tag
	var from *pair // whose sendReady came first, of those without a recvReady
	var first uint64
	for _, p := range m.pairs {
		l := p.states[slot]
		if l == nil {
			continue
		}
		if len(l.early) > 0 {
			from = p
			break
		}
		if len(l.unrequested) > 0 && (from == nil || l.unrequested[0] < first) {
			from, first = p, l.unrequested[0]
		}
	}
	if from == nil {
		m.anySource[slot] = append(m.anySource[slot], msg)
		m.endAnySource()
	}
	m.mu.Unlock()
	if from != nil {
		m.post(msg, from.peer, (*pair).recv)
	}
}

// post hands a message to its pair.
func (m *mesh) post(msg *fabric.Msg, peer int, to func(*pair, *fabric.Msg)) {
	p := m.pair(peer)
	m.mu.Lock()
	if p.lost == nil {
		to(p, msg)
	} else {
		why := &fabric.PeerError{Peer: peer, Err: p.lost}
		if msg.Complete(0, peer, why); msg.Key.Tag == m.now {
			m.failCollective(peer, why)
		}
	}
	m.mu.Unlock()
	p.flush()
}

// Wait waits for a message.
func (m *mesh) Wait(msg *fabric.Msg, w *fabric.Waiter) error {
	if err := w.Block(msg.Done); err != nil {
		return err
	}
	return msg.Err
}

// Cancel withdraws a message. A send that the other is ready for goes its way.
func (m *mesh) Cancel(msg *fabric.Msg) {
	m.mu.Lock()
	slot := msg.Key.Tag
	waits := m.anySource[slot]
	found := take(&waits, msg)
	m.setAnySource(slot, waits)
	for _, p := range m.pairs {
		if l := p.states[slot]; l != nil && !found {
			found = take(&l.recvs, msg) || take(&l.sends, msg)
		}
		if p.reading == msg {
			p.withdrawn = true
			p.conn.SetReadDeadline(time.Unix(1, 0))
		}
		for _, f := range p.sending {
			if p.writing && f.msg == msg {
				p.conn.SetWriteDeadline(time.Unix(1, 0))
			}
		}
		for i, f := range p.out {
			if f.msg == msg { // the other is ready for it: it goes its way from memory of its own
				b := bytes.Clone(msg.Bytes())
				p.out[i].msg = &fabric.Msg{Buf: unsafe.Pointer(unsafe.SliceData(b)), Len: len(b)}
				msg.Complete(msg.Len, msg.Peer, nil)
			}
		}
	}
	if found && !msg.Done() {
		msg.Complete(0, msg.Peer, fabric.ErrCanceled)
	}
	m.mu.Unlock()
	transport.AwaitDone(msg, 0)
}

// setAnySource sets the receives from any source that wait under a slot.
func (m *mesh) setAnySource(slot uint64, waits []*fabric.Msg) {
	if len(waits) == 0 {
		delete(m.anySource, slot)
	} else {
		m.anySource[slot] = waits
	}
}

// popAnySource takes the first receive from any source that waits under a slot; nil if there is
// none.
func (m *mesh) popAnySource(slot uint64) *fabric.Msg {
	waits := m.anySource[slot]
	if len(waits) == 0 {
		return nil
	}
	msg := pop(&waits)
	m.setAnySource(slot, waits)
	return msg
}

// endAnySource ends the receives from any source when no other rank is left.
func (m *mesh) endAnySource() {
	var last *pair
	for r, p := range m.pairs {
		switch {
		case r == m.rank && len(m.pairs) > 1:
		case p.lost == nil:
			return
		case last == nil || p.since.After(last.since):
			last = p
		}
	}
	for slot, waits := range m.anySource {
		for _, msg := range waits {
			msg.Complete(0, last.peer, &fabric.PeerError{Peer: last.peer, Err: last.lost})
		}
		delete(m.anySource, slot)
	}
}

// begin says which collective this rank is in.
func (m *mesh) begin(slot uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = slot
	for _, p := range m.pairs {
		for there, l := range p.states {
			if l.seen {
				m.arrived(p, there)
			}
		}
	}
}

// end forgets the collective that this rank was in.
func (m *mesh) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pairs {
		delete(p.states, m.now)
	}
	m.now = 0
}

// arrived notes that a peer is in an operation. If it has the number of the one under way but is another one, nothing
// that this rank waits for comes.
func (m *mesh) arrived(p *pair, slot uint64) {
	if m.now == 0 || !collective(slot) || tagOf(slot) != tagOf(m.now) || slot == m.now || m.other != nil {
		return
	}
	m.other = &otherCollectiveError{p.peer, slot}
	m.failCollective(p.peer, m.other)
}

// failCollective fails all messages of the collective under way, which can't succeed any more because of a peer. The
// lock is held.
func (m *mesh) failCollective(peer int, why error) {
	for _, q := range m.pairs {
		l := q.states[m.now]
		if l == nil || m.now == 0 {
			continue
		}
		for _, msg := range append(l.recvs, l.sends...) {
			msg.Complete(0, peer, why)
		}
		l.recvs, l.sends = nil, nil
	}
}

// attendance says which ranks have come to the collective under way, for which ones this rank still waits, and of which
// it doesn't know.
func (m *mesh) attendance() (a backend.Attendance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for r, p := range m.pairs {
		l := p.states[m.now]
		switch {
		case r == m.rank || l != nil && l.seen:
			a.Arrived = append(a.Arrived, r)
		case l != nil && len(l.recvs)+len(l.sends) > 0:
			a.Missing = append(a.Missing, r)
		default:
			a.Unknown = append(a.Unknown, r)
		}
	}
	return a
}

// losses are the pairs that are no more.
func (m *mesh) losses() (all []loss) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pairs {
		if p.lost != nil {
			all = append(all, loss{p.peer, p.since, p.lost})
		}
	}
	return all
}

// kill closes all pairs.
func (m *mesh) kill(why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	for _, p := range m.pairs {
		p.fail(why)
	}
}

// close ends the mesh, when what was to be written is.
func (m *mesh) close(ctx context.Context) {
	if m.listener != nil {
		m.listener.Close()
	}
	m.drain(ctx)
	m.kill(fabric.ErrClosed)
	m.running.Wait()
}

// drain waits until everything is written.
func (m *mesh) drain(ctx context.Context) {
	for end := time.Now().Add(drainTime); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		left := false
		m.mu.Lock()
		for _, p := range m.pairs {
			left = left || p.lost == nil && p.conn != nil && (p.writing || len(p.head)+len(p.out) > 0)
		}
		m.mu.Unlock()
		if !left {
			return
		}
	}
}

// drainTime bounds how long a rank that leaves waits for a peer that reads nothing.
const drainTime = time.Second
