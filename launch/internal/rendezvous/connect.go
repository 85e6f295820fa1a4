package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/chorus-comms/chorus/launch/internal/process"
	"github.com/chorus-comms/chorus/store"
)

// How long a launcher without a number dials before it asks again whether the endpoint is on its own host: the name may
// come to mean another address, as that of a pod does. The time doubles with each try.
const (
	firstDial = time.Second
	lastDial  = 30 * time.Second
)

// askAgain is how long a launcher waits before it asks again what the endpoint's name means.
const askAgain = 100 * time.Millisecond

// connect serves the rendezvous if that's this launcher's part, and connects to it otherwise. Node 0 serves; where
// nodes were given no numbers, the first launcher on the host of the endpoint does. Until that host is known, and while
// it doesn't answer, the launcher asks again which it is.
func (rv *rendezvous) connect(ctx context.Context) error {
	j := rv.job
	host, portText, _ := net.SplitHostPort(j.Endpoint)
	port, _ := strconv.Atoi(portText)
	var last error // why it isn't connected yet
	for patience := firstDial; ; patience = min(2*patience, lastDial) {
		serves, known := j.NodeRank == 0, true
		if j.NodeRank == AnyNodeRank {
			_, here, err := LocalAddr(ctx, host)
			serves, known = here, err == nil
			if err != nil && (last == nil || ctx.Err() == nil) {
				last = err
			}
		}
		if serves {
			err := rv.serveAt(host, port)
			if err == nil || j.NodeRank == 0 || !errors.Is(err, syscall.EADDRINUSE) {
				return err
			}
		}
		switch {
		case !known:
			patience = firstDial
			process.Sleep(ctx, askAgain)
		case j.NodeRank == AnyNodeRank && !serves:
			last = rv.dial(ctx, patience)
		default:
			last = rv.dial(ctx, j.JoinTimeout)
		}
		timeout := (*store.TimeoutError)(nil)
		switch {
		case rv.base != nil:
			return nil
		case errors.Is(ctx.Err(), context.Canceled):
			return fmt.Errorf("launch: cannot reach the launcher of node 0 at %s: %w", j.Endpoint, context.Cause(ctx))
		case ctx.Err() != nil:
			if failed := (*store.DialError)(nil); errors.As(last, &failed) {
				last = failed.Err
			}
			return fmt.Errorf("launch: cannot reach the launcher of node 0, which serves the rendezvous at %s, within %s: %w",
				j.Endpoint, j.JoinTimeout, last)
		case known && !errors.As(last, &timeout):
			return fmt.Errorf("launch: cannot reach the launcher of node 0, which serves the rendezvous at %s: %w", j.Endpoint,
				last)
		}
	}
}

// serveAt serves the rendezvous.
func (rv *rendezvous) serveAt(host string, port int) error {
	j := rv.job
	server, err := store.ListenTCP(bindAddr(host, port), store.ServerOptions{Security: launchersOnly(j.Security),
		OnRefused: j.OnRefused})
	if err != nil {
		return fmt.Errorf("launch: cannot serve the rendezvous: %w", err)
	}
	rv.server, rv.first = server, true
	rv.store = store.NewPrefix(rv.prefix(), server.Local())
	rv.terms = &terms{store: server.Local()}
	rv.endpoint = net.JoinHostPort(host, strconv.Itoa(server.Port()))
	if j.Serving != nil {
		j.Serving(rv.endpoint)
	}
	return rv.terms.offer(served{RunID: j.RunID, Host: rv.host})
}

// dial connects to the rendezvous, for some time at most.
func (rv *rendezvous) dial(ctx context.Context, patience time.Duration) error {
	j := rv.job
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client, err := store.DialTCP(ctx, j.Endpoint, store.TCPOptions{Reconnect: reconnectTime, Security: j.Security,
		Name: j.called()})
	if err != nil {
		return err
	}
	rv.base = client
	rv.store = store.NewPrefix(rv.prefix(), client)
	rv.terms = &terms{store: client}
	return nil
}
