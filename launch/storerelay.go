package launch

import (
	"fmt"
	"net"
	"strconv"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

// storeRelay is where the ranks of this node find the store of an attempt.
type storeRelay struct {
	addr   string       // MASTER_ADDR
	port   int          // MASTER_PORT
	direct string       // CHORUS_STORE_ADDR: the store itself, for clients with the secret; empty: addr and port
	relay  *store.Relay // at addr and port; nil: the store itself is there
}

// storeRelay begins to relay to the store of an attempt where PyTorch's clients couldn't use it otherwise. They can't
// authenticate, while the job authenticates its connections, and the store may be on another host.
func (j *Job) relayStore(addr string, port int) (*storeRelay, error) {
	if j.Nodes <= 1 || j.security.Plain != config.PlainUser || !j.security.Authenticates() || secure.Loopback(addr) {
		return &storeRelay{addr: addr, port: port}, nil
	}
	direct := net.JoinHostPort(addr, strconv.Itoa(port))
	relay, err := store.NewRelay(direct, store.RelayOptions{Security: j.security, OnRefused: j.logRefused})
	if err != nil {
		return nil, fmt.Errorf("cannot relay to the job's store: %w", err)
	}
	at := relay.Addr()
	return &storeRelay{addr: at.IP.String(), port: at.Port, direct: direct, relay: relay}, nil
}

func (m *storeRelay) close() {
	if m.relay != nil {
		m.relay.Close()
	}
}

// logRefused prints that a client was refused, and why.
func (j *Job) logRefused(e error) { fmt.Fprintf(j.Stderr, "chorus: %v\n", e) }
