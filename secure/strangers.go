package secure

import (
	"context"
	"net"
)

// Strangers returns a listener whose connections have nothing to prove, as those of a public page, and are bounded as a
// [Gate] bounds strangers. Closing it closes l.
func Strangers(l net.Listener) net.Listener {
	ctx, stop := context.WithCancel(context.Background())
	return &strangers{Listener: l, ctx: ctx, stop: stop}
}

type strangers struct {
	net.Listener
	gate Gate
	ctx  context.Context
	stop context.CancelFunc
}

func (l *strangers) Accept() (net.Conn, error) {
	l.gate.Wait(l.ctx)
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &stranger{c, l.gate.Enter(c)}, nil
}

func (l *strangers) Close() error {
	l.stop()
	return l.Listener.Close()
}

type stranger struct {
	net.Conn
	guest *Guest
}

func (c *stranger) Close() error {
	c.guest.Leave(false)
	return c.Conn.Close()
}
