package zmtp

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Rep answers questions: a socket REP that listens. Its peers' connections don't wait for each other but for their
// answers, of which one is made at a time.
type Rep struct {
	listener
	ready  chan struct{} // closed by Serve
	once   sync.Once
	answer func([]byte) []byte
	one    sync.Mutex
}

// ListenRep begins to listen at an address, which is host:port. Questions wait for Serve.
func ListenRep(addr string, o Options) (*Rep, error) {
	r := &Rep{ready: make(chan struct{})}
	if err := r.listen(addr, rep, o, r.converse); err != nil {
		return nil, err
	}
	return r, nil
}

// Serve has questions answered by a function, which is called once at a time, until the socket is closed. The frames of
// a question are given as one. Call it once.
func (r *Rep) Serve(answer func(question []byte) []byte) {
	r.once.Do(func() {
		r.answer = answer
		close(r.ready)
	})
	<-r.ctx.Done()
}

// Close ends the socket and returns when no answer is being made any more.
func (r *Rep) Close() error {
	err := r.close()
	r.tasks.Wait()
	return err
}

// converse answers one connection's questions.
func (r *Rep) converse(c *conn) error {
	for {
		m, err := c.read()
		if err != nil {
			return err
		}
		envelope := delimiter(m.frames)
		if m.command || envelope == 0 {
			return broken("a question without an empty frame before it")
		}
		question := m.frames[envelope]
		if len(m.frames) != envelope+1 {
			question = bytes.Join(m.frames[envelope:], nil)
		}
		select {
		case <-r.ready:
		case <-r.ctx.Done():
			return ErrClosed
		}
		r.one.Lock()
		a := r.answer(question)
		r.one.Unlock()
		if err := c.write(encode(append(m.frames[:envelope:envelope], a)...)); err != nil {
			return err
		}
	}
}

// delimiter returns where a question begins behind its envelope, which ends with an empty frame; 0 if there is none.
func delimiter(frames [][]byte) int {
	for i, f := range frames[:len(frames)-1] {
		if len(f) == 0 {
			return i + 1
		}
	}
	return 0
}

// Req asks questions: a socket REQ with one connection, for one goroutine at a time.
type Req struct{ c *conn }

// DialReq connects to a REP at an address, host:port, which may come to listen later, until ctx ends.
func DialReq(ctx context.Context, addr string, o Options) (*Req, error) {
	c, err := dial(ctx, addr, req, o)
	if err != nil {
		return nil, err
	}
	return &Req{c}, nil
}

// Do asks a question and returns the answer, for which it waits so long at most. After an error no more can be asked.
func (r *Req) Do(question []byte, limit time.Duration) ([]byte, error) {
	if err := r.c.write(encode(nil, question)); err != nil {
		return nil, err
	}
	r.c.SetReadDeadline(time.Now().Add(limit))
	m, err := r.c.read()
	if err != nil {
		return nil, err
	}
	if m.command || len(m.frames) < 2 || len(m.frames[0]) > 0 {
		return nil, broken("an answer without an empty frame before it")
	}
	if len(m.frames) == 2 {
		return m.frames[1], nil
	}
	return bytes.Join(m.frames[1:], nil), nil
}

// Close ends the socket. A Do under way ends with net.ErrClosed.
func (r *Req) Close() error {
	if err := r.c.Conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
