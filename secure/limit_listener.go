package secure

import (
	"context"
	"net"
)

// LimitListener returns a listener whose connections need not authenticate, as those of a public page. They are bounded
// as an [AcceptLimiter] bounds unauthenticated ones. Closing it closes l.
func LimitListener(l net.Listener) net.Listener {
	ctx, stop := context.WithCancel(context.Background())
	return &limitListener{Listener: l, ctx: ctx, stop: stop}
}

type limitListener struct {
	net.Listener
	limiter AcceptLimiter
	ctx     context.Context
	stop    context.CancelFunc
}

func (l *limitListener) Accept() (net.Conn, error) {
	l.limiter.Wait(l.ctx)
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &limitedConn{c, l.limiter.Add(c)}, nil
}

func (l *limitListener) Close() error {
	l.stop()
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	pending *PendingConn
}

func (c *limitedConn) Close() error {
	c.pending.Done(false)
	return c.Conn.Close()
}
