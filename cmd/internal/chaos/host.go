package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/store"
)

// rendezvous is where the ranks of a program meet: a store (the campaign's own for real processes) and a prefix there
// that is unique to the program.
type rendezvous struct {
	store store.Store
	name  string
}

// hosting adds a step to the program: the culprit serves a store, at which all ranks, or all others, make a
// communicator. It's to be killed at one of the store's requests, or after a time.
func (m *maker) hosting() {
	p := &m.p
	f := &p.Fault
	members := m.Perm(p.Size)
	if p.Size > 2 && m.IntN(2) == 0 {
		members = append(members[:indexOf(members, f.Rank)], members[indexOf(members, f.Rank)+1:]...)
	}
	to := len(p.Comms)
	p.Comms = append(p.Comms, group{members})
	p.Steps = append(p.Steps[:f.Step:f.Step], append([]step{{Do: found, To: []int{to}}}, p.Steps[f.Step:]...)...)
	f.Calls = 0
	if m.IntN(3) > 0 {
		f.Calls = 1 + m.IntN(30*len(members)) // about as many as there are
	}
}

// found makes the communicator of a step at the culprit's store.
func (r *rank) found(s *step) error {
	to, f := s.To[0], r.p.Fault
	g := r.p.Comms[to]
	at := store.NewPrefix(r.in.rendezvous.name+"/host", r.in.rendezvous.store)
	ctx, cancel := context.WithTimeout(context.Background(), r.p.Patient)
	defer cancel()
	var st store.Store
	if r.in.culprit() {
		server, err := r.in.serve()
		if err != nil {
			return err
		}
		r.leave = append(r.leave, server.Close)
		if err := at.Set(ctx, "address", []byte(server.Addr().String())); err != nil {
			return err
		}
		if f.Calls == 0 {
			time.AfterFunc(10*f.Delay, r.in.die)
		}
		st = server.Local()
	} else {
		address, err := at.Get(ctx, "address")
		if err != nil {
			return err
		}
		tcp, err := bootstrap.Reach(ctx, bootstrap.Address{TCP: string(address)}, bootstrap.Options{Timeout: r.p.Patient})
		if err != nil {
			// It has no communicator to say so.
			return &comm.PeerLostError{Where: comm.Where{Comm: "hosted"}, Peer: indexOf(g.Members, f.Rank), Cause: err.Error()}
		}
		defer tcp.Close()
		st = tcp
	}
	if !g.has(r.rank) {
		return nil
	}
	c, err := comm.New(ctx, comm.WithName("hosted"), comm.WithStore(st), comm.WithStoreHost(indexOf(g.Members, f.Rank)),
		comm.WithRank(indexOf(g.Members, r.rank), len(g.Members)), comm.WithFabric(r.p.Fabric), comm.WithHints(r.hints),
		comm.WithTimeout(r.p.timeout(to)), comm.WithAbortOnError(false))
	if err != nil {
		return err
	}
	r.comms[to] = c
	return c.Barrier(ctx)
}

// serve begins to serve a store, and kills the process at the fault's request.
func (in *injector) serve() (*store.TCPServer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	counted := &countedListener{Listener: l, in: in}
	server, err := store.Serve(counted, store.ServerOptions{})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return server, nil
}

// die kills the process, unless the rank has ended.
func (in *injector) die() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.over {
		in.fire()
		in.strike(Kill)
	}
}

// A countedListener kills its process when so many pieces have been read from its connections.
type countedListener struct {
	net.Listener
	in   *injector
	read atomic.Int64
}

// Accept implements net.Listener.
func (l *countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, fmt.Errorf("counted: %w", err)
	}
	return countedConn{c, l}, nil
}

type countedConn struct {
	net.Conn
	l *countedListener
}

// Read implements net.Conn.
func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.l.read.Add(1) == int64(c.l.in.p.Fault.Calls) {
		c.l.in.die()
	}
	return n, err
}
