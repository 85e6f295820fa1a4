package fabrictest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

// Open opens the fabrics of a world's ranks, in rank order. Run closes them.
type Open func(t testing.TB, size int) []fabric.Fabric

type suite struct {
	open  Open
	kill  func(f fabric.Fabric)
	alloc func(f fabric.Fabric, size int) []byte
	large int
	skip  []string
}

// Option changes what Run does.
type Option func(*suite)

// Kill gives the suite a way to end a rank as a crash would: without a goodbye.
// Without it nothing is tested about lost peers.
func Kill(kill func(f fabric.Fabric)) Option { return func(s *suite) { s.kill = kill } }

// Alloc gives the suite memory that the ranks of one host can map. By default
// it's Go's.
func Alloc(alloc func(f fabric.Fabric, size int) []byte) Option {
	return func(s *suite) { s.alloc = alloc }
}

// Large sets the size in bytes of the largest messages; 5 MiB and a bit by default.
func Large(bytes int) Option { return func(s *suite) { s.large = bytes } }

// Skip leaves cases out, by name.
func Skip(cases ...string) Option { return func(s *suite) { s.skip = append(s.skip, cases...) } }

// Run tests a fabric.
func Run(t *testing.T, open Open, opts ...Option) {
	s := &suite{open: open, large: 5<<20 + 77, alloc: func(_ fabric.Fabric, n int) []byte { return make([]byte, n) }}
	for _, o := range opts {
		o(s)
	}
	cases := []struct {
		name string
		f    func(*testing.T, *suite)
	}{
		{"Identity", testIdentity},
		{"Sizes", testSizes},
		{"ShortMessage", testShortMessage},
		{"OrderPerKey", testOrderPerKey},
		{"KeysAreIndependent", testKeys},
		{"AnySource", testAnySource},
		{"AnySourceAndOne", testAnySourceAndOne},
		{"Self", testSelf},
		{"Flood", testFlood},
		{"Concurrent", testConcurrent},
		{"RandomPrograms", testPrograms},
		{"NoAllocations", testAllocs},
		{"Truncated", testTruncated},
		{"Mismatch", testMismatch},
		{"MismatchAnnounced", testMismatchAnnounced},
		{"WrongPeer", testWrongPeer},
		{"CancelRecv", testCancelRecv},
		{"CancelSend", testCancelSend},
		{"GiveUp", testGiveUp},
		{"Abort", testAbort},
		{"Forget", testForget},
		{"Control", testControl},
		{"ControlFromHandler", testControlFromHandler},
		{"LastWords", testLastWords},
		{"LastWordsOfAll", testLastWordsOfAll},
		{"PeerLost", testPeerLost},
		{"SilentPeerLost", testSilentPeerLost},
		{"Goodbye", testGoodbye},
		{"Close", testClose},
		{"Space", testSpace},
		{"SpaceRandom", testSpaceRandom},
		{"SpaceMismatch", testSpaceMismatch},
		{"SpaceGivesUp", testSpaceGivesUp},
		{"SpacePlaces", testSpacePlaces},
		{"SpaceLeave", testSpaceLeave},
		{"SpaceGivenUp", testSpaceGivenUp},
		{"SpaceCheckLast", testSpaceCheckLast},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if slices.Contains(s.skip, c.name) {
				t.Skip("left out by the fabric's own test")
			}
			c.f(t, s)
		})
	}
}

// patience is how long any wait of a case may take, also on a machine that has other things to do first.
const patience = 2 * time.Minute

// rank is one rank of a case: its fabric, and a waiter for its goroutine.
type rank struct {
	fabric.Messenger // around bare, if that is none
	bare             fabric.Fabric
	w                *fabric.Waiter
	events           *events
	peers            []*rank
}

// failure is what a rank's goroutine panics with to end its case.
type failure struct{ err error }

func fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

func must(err error) {
	if err != nil {
		_, file, line, _ := runtime.Caller(1)
		fail("%s:%d: %w", file, line, err)
	}
}

// world opens the fabrics of a case, with handlers that record events.
func (s *suite) world(t testing.TB, size int) []*rank {
	t.Helper()
	fabrics := s.open(t, size)
	ranks := make([]*rank, size)
	for r, f := range fabrics {
		ranks[r] = &rank{Messenger: transport.Extend(f), bare: f, w: newWaiter(), events: newEvents(), peers: ranks}
		ranks[r].Handle(ranks[r].events)
	}
	t.Cleanup(func() {
		var wg sync.WaitGroup
		for _, f := range ranks {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				if err := f.Close(ctx); err != nil {
					t.Errorf("rank %d: Close: %v", f.Rank(), err)
				}
			})
		}
		wg.Wait()
	})
	return ranks
}

func newWaiter() *fabric.Waiter {
	w := fabric.NewWaiter(fabric.NewAbort())
	w.Policy = fabric.BlockPolicy
	return w
}

// each runs body on every rank at once and reports what failed.
func each(t testing.TB, ranks []*rank, body func(r *rank)) {
	t.Helper()
	errs := make([]error, len(ranks))
	var wg sync.WaitGroup
	for i, r := range ranks {
		wg.Go(func() { errs[i] = guard(func() { body(r) }) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", ranks[i].Rank(), err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// guard turns a failure into an error.
func guard(f func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.err
		default:
			panic(p)
		}
	}()
	f()
	return nil
}

// key returns a key of the suite's communicator.
func key(class fabric.Class, tag int) fabric.Key {
	return fabric.Key{Comm: 7, Class: class, Tag: uint64(tag)}
}

func p2p(tag int) fabric.Key { return key(fabric.PointToPoint, tag) }

func (r *rank) message(peer int, k fabric.Key, buf []byte) *fabric.Msg {
	m := &fabric.Msg{Peer: peer, Key: k, Buf: unsafe.Pointer(unsafe.SliceData(buf)), Len: len(buf)}
	m.Reset(r.w)
	return m
}

// send and recv post a message; wait completes it.
func (r *rank) send(peer int, k fabric.Key, buf []byte) *fabric.Msg {
	m := r.message(peer, k, buf)
	r.Send(m)
	return m
}

func (r *rank) recv(peer int, k fabric.Key, buf []byte) *fabric.Msg {
	m := r.message(peer, k, buf)
	r.Recv(m)
	return m
}

// end waits for a message and returns its error, which must come in time.
func (r *rank) end(m *fabric.Msg) error {
	r.w.Begin(nil, patience)
	err := r.Wait(m, r.w)
	if errors.Is(err, fabric.ErrTimeout) {
		fail("message to or from rank %d, tag %d, %d bytes: nothing happened in %v", m.Peer, m.Key.Tag, m.Len, patience)
	}
	if !m.Done() {
		fail("Wait returned %v before the message was done", err)
	}
	return err
}

// wait waits for messages that must succeed.
func (r *rank) wait(ms ...*fabric.Msg) {
	for _, m := range ms {
		if err := r.end(m); err != nil {
			fail("message to or from rank %d, tag %d, %d bytes: %w", m.Peer, m.Key.Tag, m.Len, err)
		}
	}
}

// tell and hear pass an empty message, to order what the ranks do.
func (r *rank) tell(peer, tag int) { r.wait(r.send(peer, key(fabric.Internal, tag), nil)) }
func (r *rank) hear(peer, tag int) { r.wait(r.recv(peer, key(fabric.Internal, tag), nil)) }

// meet waits until all ranks are there.
func (r *rank) meet(tag int) {
	var ms []*fabric.Msg
	for _, p := range r.peers {
		if p.Rank() != r.Rank() {
			ms = append(ms, r.send(p.Rank(), key(fabric.Internal, tag), nil), r.recv(p.Rank(), key(fabric.Internal, tag), nil))
		}
	}
	r.wait(ms...)
}

// pattern returns n bytes that tell message id and position apart.
func pattern(id, n int) []byte {
	b := make([]byte, n)
	fill(b, id)
	return b
}

func fill(b []byte, id int) {
	x := uint32(id)*2654435761 + 12345
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
}

// verify checks bytes that pattern made.
func verify(b []byte, id int) {
	x := uint32(id)*2654435761 + 12345
	for i := range b {
		x = x*1664525 + 1013904223
		if b[i] != byte(x>>24) {
			fail("message %d of %d bytes differs from byte %d on", id, len(b), i)
		}
	}
}

func expect(m *fabric.Msg, n, from int) {
	if m.N != n || m.From != from {
		fail("received %d bytes from rank %d; want %d from %d", m.N, m.From, n, from)
	}
}
