package nccl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/store"
)

// controlsKey is the queue in which others leave payloads for a rank, in the store that it serves.
const controlsKey = "words"

// reachTime bounds how long a connection is tried to a rank that neither answers nor is known to be
// gone.
const reachTime = 30 * time.Second

// A controlMessage is a backend.Control on its way.
type controlMessage struct {
	From    int    `json:"f"`
	Payload []byte `json:"p"`
}

// controlLinks carry control payloads between ranks beside the library, by the stores that each serves. They outlive
// the communicator's breaking. A connection to a rank is made when there is a message for it, or to find out when the
// rank ends. A rank that waits for messages watches the lowest rank that's there, and those that it has sent messages
// to.
type controlLinks struct {
	addresses []bootstrap.Address // of the ranks' stores
	serving   sync.WaitGroup
	ctx       context.Context // ends with the communicator
	stop      context.CancelFunc

	mu     sync.Mutex
	queues map[int]chan []byte // of those that there is a line to
	list   []backend.Control
	gone   map[int]string
	news   chan struct{} // closed at the next event; nil if no call has asked for it
	reads  bool          // Controls has been called
}

// maxControls bounds what is kept until it's read, and what waits for a rank that doesn't answer.
const maxControls = 1024

func (m *controlLinks) begin(addresses []bootstrap.Address) {
	m.addresses = addresses
	m.queues, m.gone = map[int]chan []byte{}, map[int]string{}
	m.ctx, m.stop = context.WithCancel(context.Background())
}

// end lets go of all lines.
func (m *controlLinks) end() {
	if m.stop != nil {
		m.stop()
		m.serving.Wait()
	}
}

// event wakes the readers. The caller holds the lock.
func (m *controlLinks) event() {
	if m.news != nil {
		close(m.news)
		m.news = nil
	}
}

// link returns the queue of payloads for a rank; the first call makes it. The caller holds the lock.
func (m *controlLinks) link(rank int) chan []byte {
	q := m.queues[rank]
	if q == nil && m.ctx.Err() == nil {
		q = make(chan []byte, maxControls)
		m.queues[rank] = q
		m.serving.Go(func() {
			err := m.serve(rank, q)
			if m.ctx.Err() != nil {
				return
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			m.gone[rank] = err.Error()
			m.event()
		})
	}
	return q
}

// serve sends a rank the payloads of its queue until the rank is gone.
func (m *controlLinks) serve(rank int, q chan []byte) error {
	ctx, cancel := context.WithTimeout(m.ctx, reachTime)
	defer cancel()
	st, err := bootstrap.Reach(ctx, m.addresses[rank], bootstrap.Options{})
	if err != nil {
		return err
	}
	defer st.Close()
	ended := make(chan error, 1)
	m.serving.Go(func() {
		_, err := await(m.ctx, st, "never set") // so that the connection's end is noticed
		ended <- err
	})
	for {
		select {
		case <-m.ctx.Done():
			return m.ctx.Err()
		case err := <-ended:
			return err
		case text := <-q:
			ctx, cancel := context.WithTimeout(m.ctx, reachTime)
			err := store.QueuePush(ctx, st, controlsKey, text)
			cancel()
			if err != nil {
				return err
			}
		}
	}
}

// await waits for a key for as long as ctx lasts.
func await(ctx context.Context, st store.Store, key string) ([]byte, error) {
	for {
		b, err := st.Get(ctx, key)
		if _, timedOut := errors.AsType[*store.TimeoutError](err); !timedOut || ctx.Err() != nil {
			return b, err
		}
	}
}

// read takes the payloads that others leave in a store, of a communicator of n ranks.
func (m *controlLinks) read(st store.Store, n int) {
	for {
		text, err := store.QueuePop(m.ctx, st, controlsKey)
		if _, timedOut := errors.AsType[*store.TimeoutError](err); timedOut && m.ctx.Err() == nil {
			continue
		}
		if err != nil {
			return
		}
		var w controlMessage
		if json.Unmarshal(text, &w) != nil || w.From < 0 || w.From >= n || len(w.Payload) > backend.MaxControl {
			continue
		}
		m.mu.Lock()
		if len(m.list) < maxControls {
			m.list = append(m.list, backend.Control(w))
		}
		m.event()
		m.mu.Unlock()
	}
}

// SendControl implements backend.Messenger.
func (r *rank) SendControl(to int, payload []byte) error {
	if to < 0 || to >= r.size || to == r.rank || len(payload) > backend.MaxControl {
		return fmt.Errorf("a word of %d bytes to rank %d", len(payload), to)
	}
	text, err := json.Marshal(controlMessage{r.rank, payload})
	if err != nil {
		return err
	}
	m := &r.controls
	m.mu.Lock()
	defer m.mu.Unlock()
	if why, gone := m.gone[to]; gone {
		return fmt.Errorf("rank %d is gone: %s", to, why)
	}
	select {
	case m.link(to) <- text:
		return nil
	default:
		return fmt.Errorf("rank %d takes no words", to)
	}
}

// Controls implements backend.Messenger.
func (r *rank) Controls() ([]backend.Control, <-chan struct{}) {
	m := &r.controls
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.reads && r.hosted != nil && m.ctx.Err() == nil {
		m.reads = true
		m.serving.Go(func() { m.read(r.hosted.Local(), r.size) })
	}
	for q := range r.size { // the lowest that's there, if that's another one
		if _, gone := m.gone[q]; !gone {
			if q != r.rank {
				m.link(q)
			}
			break
		}
	}
	list := m.list
	m.list = nil
	if m.news == nil {
		m.news = make(chan struct{})
	}
	return list, m.news
}

// Closed implements backend.Messenger: the library doesn't tell.
func (r *rank) Closed() []int { return nil }

// Gone implements backend.Messenger.
func (r *rank) Gone() map[int]string {
	r.controls.mu.Lock()
	defer r.controls.mu.Unlock()
	gone := maps.Clone(r.controls.gone)
	if lost, ok := errors.AsType[*backend.PeerLostError](r.Cause()); ok && lost.Peer >= 0 && lost.Peer != r.rank {
		if gone == nil {
			gone = map[int]string{}
		}
		gone[lost.Peer] = lost.Cause
	}
	return gone
}

// Refused implements backend.Messenger.
func (r *rank) Refused(op string, why error) {
	r.record.Lock()
	next := r.record.seq + 1
	r.record.Unlock()
	r.record.refusal.Set(next, op, why)
}

// SetDoing implements backend.Messenger.
func (r *rank) SetDoing(doing func() string) {
	r.record.Lock()
	defer r.record.Unlock()
	r.record.doing = doing
}
