package myfabric

import (
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
)

// Name is the name under which the fabric is registered.
const Name = "unix"

func init() { fabric.Register(Name, open) }

// open connects this rank with every other one, and with itself. The higher rank dials.
func open(ctx context.Context, c fabric.Config) (fabric.Fabric, error) {
	for name := range c.Options {
		return nil, fmt.Errorf("unix: unknown option %q; there are none", name)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	ln, err := new(net.ListenConfig).Listen(ctx, "unix", "@chorus-"+rand.Text())
	if err != nil {
		return nil, fmt.Errorf("unix: %w", err)
	}
	defer ln.Close()
	names := [][]byte{[]byte(ln.Addr().String())}
	if c.Size > 1 {
		if names, err = c.Exchange(ctx, names[0]); err != nil {
			return nil, fmt.Errorf("unix: finding the other ranks: %w", err)
		}
		if len(names) != c.Size {
			return nil, fmt.Errorf("unix: %d of %d ranks exchanged addresses", len(names), c.Size)
		}
	}
	accepted, dialed := make([]net.Conn, c.Size), make([]net.Conn, c.Size)
	var acceptErr, dialErr error
	var wg sync.WaitGroup
	wg.Go(func() { acceptErr = accept(ctx, ln, accepted, c.Rank) })
	wg.Go(func() {
		if dialErr = dial(ctx, names, dialed, c.Rank); dialErr != nil {
			ln.Close() // ends accept
		}
	})
	wg.Wait()
	err = dialErr
	if err == nil {
		err = acceptErr
	}
	if err != nil {
		for _, conn := range append(accepted, dialed...) {
			if conn != nil {
				conn.Close()
			}
		}
		return nil, fmt.Errorf("unix: %w", err)
	}
	return start(c.Rank, accepted, dialed), nil
}

// dial connects to the ranks up to this one, its own included.
func dial(ctx context.Context, names [][]byte, conns []net.Conn, rank int) error {
	for p := range rank + 1 {
		c, err := new(net.Dialer).DialContext(ctx, "unix", string(names[p]))
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
func accept(ctx context.Context, ln net.Listener, conns []net.Conn, rank int) error {
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	for missing := len(conns) - rank; missing > 0; {
		c, err := ln.Accept()
		if err != nil {
			for p := rank; p < len(conns); p++ {
				if conns[p] == nil {
					return fmt.Errorf("rank %d did not connect: %w", p, errors.Join(err, context.Cause(ctx)))
				}
			}
		}
		var hello [4]byte
		deadline, _ := ctx.Deadline()
		c.SetReadDeadline(deadline)
		if !sameUser(c) {
			c.Close()
			continue
		}
		if _, err := io.ReadFull(c, hello[:]); err != nil {
			c.Close()
			continue
		}
		p := int(binary.LittleEndian.Uint32(hello[:]))
		if p < rank || p >= len(conns) || conns[p] != nil {
			c.Close()
			continue
		}
		c.SetReadDeadline(time.Time{})
		conns[p] = c
		missing--
	}
	return nil
}

// sameUser asks the kernel who is at the other end.
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
