package launch

import (
	"fmt"
	"net"
	"strconv"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

// meeting is where the ranks of this node find the store of an attempt.
type meeting struct {
	addr   string       // MASTER_ADDR
	port   int          // MASTER_PORT
	direct string       // CHORUS_STORE_ADDR: host:port of the store itself, for who has the secret; empty: addr and port
	relay  *store.Relay // at addr and port; nil: what is there is the store
}

// meeting begins to relay to the store of an attempt where PyTorch's clients, which can't prove anything, couldn't use
// it otherwise: the job proves its connections, and the store may be on another host.
func (j *Job) meeting(addr string, port int) (*meeting, error) {
	if j.Nodes <= 1 || j.security.Plain != config.PlainUser || !j.security.Authenticates() || secure.Loopback(addr) {
		return &meeting{addr: addr, port: port}, nil
	}
	direct := net.JoinHostPort(addr, strconv.Itoa(port))
	relay, err := store.NewRelay(direct, store.RelayOptions{Security: j.security, OnRefused: j.mention})
	if err != nil {
		return nil, fmt.Errorf("cannot relay to the job's store: %w", err)
	}
	at := relay.Addr()
	return &meeting{addr: at.IP.String(), port: at.Port, direct: direct, relay: relay}, nil
}

func (m *meeting) close() {
	if m.relay != nil {
		m.relay.Close()
	}
}

// mention tells of a client that was refused.
func (j *Job) mention(e error) { fmt.Fprintf(j.Stderr, "chorus: %v\n", e) }
