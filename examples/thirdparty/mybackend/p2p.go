package mybackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/tensor"
)

// mail pairs receives with letters, each in order.
type mail struct {
	mu     sync.Mutex
	posted []*transfer
	waits  []*message
}

// transfer is a posted receive.
type transfer struct {
	from, tag int
	posted    time.Time
	got       chan *message // of capacity 1
}

func (t *transfer) matches(m *message) bool {
	return t.tag == m.Tag && (t.from == backend.AnySource || t.from == m.From)
}

func (b *mail) arrive(m *message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.IndexFunc(b.posted, func(t *transfer) bool { return t.matches(m) }); i >= 0 {
		b.posted[i].got <- m
		b.posted = slices.Delete(b.posted, i, i+1)
		return
	}
	b.waits = append(b.waits, m)
}

func (b *mail) post(t *transfer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.IndexFunc(b.waits, t.matches); i >= 0 {
		t.got <- b.waits[i]
		b.waits = slices.Delete(b.waits, i, i+1)
		return
	}
	b.posted = append(b.posted, t)
}

// withdraw takes a receive back, unless it has its letter already.
func (b *mail) withdraw(t *transfer) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.posted, t)
	if i < 0 {
		return false
	}
	b.posted = slices.Delete(b.posted, i, i+1)
	return true
}

func describeSide(kind backend.Kind, t *tensor.Tensor) string {
	return fmt.Sprintf("%v(%v[%d])", kind, t.DType(), t.NumEl())
}

// post sends a letter, or gets ready to receive one. A letter is on its way when post returns.
func (g *group) post(op *backend.Op) error {
	if err := g.cause(g.where(op)); err != nil {
		return err
	}
	if op.Kind == backend.Recv {
		t := &transfer{from: op.Peer, tag: op.Tag, posted: time.Now(), got: make(chan *message, 1)}
		op.State = t
		g.mail.post(t)
		return nil
	}
	err := g.job.link.send(&message{Kind: letter, Comm: g.id, To: op.Peer, Tag: op.Tag, Desc: describeSide(op.Kind, op.In), Data: bytesOf(op.In)})
	if err != nil {
		return g.fail(g.where(op), &failure{Is: isLost, Rank: g.hubRank(), Text: err.Error()})
	}
	return nil
}

// Wait implements backend.Backend.
func (g *group) Wait(op *backend.Op) error {
	t, ok := op.State.(*transfer)
	if !ok {
		return nil // a send
	}
	timer := time.NewTimer(time.Until(t.posted.Add(op.Timeout)))
	defer timer.Stop()
	var err error
	select {
	case m := <-t.got:
		return g.accept(op, m)
	case <-g.abort.Done():
		err = g.cause(g.where(op))
	case <-op.Ctx.Done():
		err = fmt.Errorf("%v: %w", g.where(op), context.Cause(op.Ctx))
	case <-timer.C:
		e := &backend.TimeoutError{Where: g.where(op), Attendance: backend.Attendance{Elapsed: time.Since(t.posted)}}
		if op.Peer != backend.AnySource {
			e.Missing = []int{op.Peer}
		}
		err = e
	}
	if !g.mail.withdraw(t) && !errors.Is(err, backend.ErrAborted) {
		return g.accept(op, <-t.got) // it came at the last moment
	}
	return err
}

// accept hands a letter over, if it's what the receiver expects.
func (g *group) accept(op *backend.Op, m *message) error {
	op.From = m.From
	want := describeSide(backend.Send, op.Out)
	if m.Desc != want || len(m.Data) != op.Out.NBytes() {
		return &backend.MismatchError{Where: g.where(op), RankA: m.From, OpA: m.Desc, RankB: g.rank, OpB: describeSide(backend.Recv, op.Out)}
	}
	copy(bytesOf(op.Out), m.Data)
	return nil
}
