package myfabric

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

// Name is the name under which the fabric is registered.
const Name = "unix"

func init() { transport.Register(Name, listen, func() fabric.Options { return nil }) }

// endpoint is a rank that takes calls, but has no links yet.
type endpoint struct {
	c  fabric.Config
	ln net.Listener
}

func listen(ctx context.Context, c fabric.Config) (transport.Endpoint, error) {
	if err := (fabric.Options{}).Set(Name, c.Options); err != nil {
		return nil, err
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "unix", "@chorus-"+rand.Text())
	if err != nil {
		return nil, fmt.Errorf("unix: %w", err)
	}
	return &endpoint{c, ln}, nil
}

// Card implements transport.Endpoint.
func (e *endpoint) Card() []byte { return []byte(e.ln.Addr().String()) }

// Close implements transport.Endpoint.
func (e *endpoint) Close() error { return e.ln.Close() }

// Join implements transport.Endpoint: it connects this rank with every other one that has a card, and with itself. The
// higher rank dials.
func (e *endpoint) Join(ctx context.Context, cards [][]byte, m *transport.Matcher) (fabric.Fabric, error) {
	accepted, dialed := make([]net.Conn, len(cards)), make([]net.Conn, len(cards))
	var acceptErr, dialErr error
	var wg sync.WaitGroup
	wg.Go(func() { acceptErr = accept(ctx, e.ln, cards, accepted, e.c.Rank) })
	wg.Go(func() {
		if dialErr = dial(ctx, cards, dialed, e.c.Rank); dialErr != nil {
			e.ln.Close() // ends accept
		}
	})
	wg.Wait()
	if err := cmp.Or(dialErr, acceptErr); err != nil {
		for _, conn := range append(accepted, dialed...) {
			if conn != nil {
				conn.Close()
			}
		}
		return nil, fmt.Errorf("unix: %w", err)
	}
	return start(&Fabric{Base: transport.NewBase(Name, e.c.Rank, e.c.Size, m, 0)}, accepted, dialed), nil
}

// dial connects to the ranks up to this one, its own included.
func dial(ctx context.Context, cards [][]byte, conns []net.Conn, rank int) error {
	for p := range rank + 1 {
		if cards[p] == nil {
			continue
		}
		c, err := new(net.Dialer).DialContext(ctx, "unix", string(cards[p]))
		if err != nil {
			return fmt.Errorf("rank %d, which must be on this host: %w", p, err)
		}
		conns[p] = c
		if _, err := c.Write(binary.LittleEndian.AppendUint32(nil, uint32(rank))); err != nil {
			return fmt.Errorf("rank %d: %w", p, err)
		}
	}
	return nil
}

// accept takes the connections of the ranks from this one up.
func accept(ctx context.Context, ln net.Listener, cards [][]byte, conns []net.Conn, rank int) error {
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	missing := func(p int) bool { return cards[p] != nil && conns[p] == nil }
	for p := rank; p < len(conns); p++ {
		for missing(p) {
			if err := acceptOne(ctx, ln, missing, conns, rank); err != nil {
				return fmt.Errorf("rank %d did not connect: %w", p, errors.Join(err, context.Cause(ctx)))
			}
		}
	}
	return nil
}

// acceptOne takes one connection, which may be of an unknown process.
func acceptOne(ctx context.Context, ln net.Listener, missing func(int) bool, conns []net.Conn, rank int) error {
	c, err := ln.Accept()
	if err != nil {
		return err
	}
	var hello [4]byte
	deadline, _ := ctx.Deadline()
	c.SetReadDeadline(deadline)
	if !sameUser(c) {
		return c.Close()
	}
	_, err = io.ReadFull(c, hello[:])
	p := int(binary.LittleEndian.Uint32(hello[:]))
	if err != nil || p < rank || p >= len(conns) || !missing(p) {
		return c.Close()
	}
	c.SetReadDeadline(time.Time{})
	conns[p] = c
	return nil
}

// sameUser asks the kernel for the user at the other end.
func sameUser(c net.Conn) bool {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return false
	}
	var cred *syscall.Ucred
	raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	return err == nil && cred != nil && int(cred.Uid) == os.Getuid()
}
