package rendezvous

import (
	"crypto/rand"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/launch/internal/process"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

// Config is what launchers need to know of their job to meet. The fields are those of launch.Job.
type Config struct {
	RanksPerNode          int
	Nodes, MinNodes       int
	NodeRank              int
	Endpoint, Store       string
	Serving               func(endpoint string)
	JoinTimeout, LastCall time.Duration
	LostAfter             time.Duration // of the launcher that serves, once they have met
	RunID, Role           string
	MasterAddr            string
	MasterPort            int
	MaxRestarts           int
	Grace, Monitor        time.Duration

	Security  secure.Policy // of the launchers' stores
	OnRefused func(error)   // called with why a store has refused a client
}

// AnyNodeRank asks for a node rank by order of arrival.
const AnyNodeRank = -1

// Elastic reports whether the job's nodes may change.
func (j *Config) Elastic() bool { return j.MinNodes > 0 && j.MinNodes < j.Nodes }

// Check refuses what launchers can't meet by.
func (j *Config) Check() error {
	switch {
	case j.Store != "" && !j.Elastic():
		return process.BadArgument("the nodes of a job meet in a store (%s) only if they may change", j.Store)
	case j.Store != "":
		return j.checkStore()
	case j.Nodes > 1:
		return j.checkEndpoint()
	}
	return nil
}

func (j *Config) checkEndpoint() error {
	host, port, err := net.SplitHostPort(j.Endpoint)
	n, perr := strconv.Atoi(port)
	anyPort := n == 0 && j.NodeRank == 0 && j.Serving != nil
	if err != nil || perr != nil || host == "" || n < 1 && !anyPort || n > 65535 {
		return process.BadArgument("%d nodes need a rendezvous endpoint such as node0:29400, not %q", j.Nodes, j.Endpoint)
	}
	if err := j.Security.Check(host); err != nil {
		return fmt.Errorf("launch: %d nodes meet at %s: %w", j.Nodes, j.Endpoint, err)
	}
	if j.NodeRank != AnyNodeRank && (j.NodeRank < 0 || j.NodeRank >= j.Nodes) {
		return process.BadArgument("node rank %d: %d nodes have ranks 0 to %d", j.NodeRank, j.Nodes, j.Nodes-1)
	}
	return nil
}

// checkStore is of an elastic job whose launchers meet in a store of the user's.
func (j *Config) checkStore() error {
	switch {
	case j.Endpoint != "":
		return process.BadArgument("the nodes meet at the endpoint %s or in the store %s: give one of them", j.Endpoint, j.Store)
	case j.RunID == "":
		return process.BadArgument("a job whose nodes meet in the store %s needs a name of its own: that store may have others",
			j.Store)
	}
	if err := j.Security.Check(j.storeSide()); err != nil {
		return fmt.Errorf("launch: the nodes meet in the store %s, and one of them serves that of the ranks: %w", j.Store,
			err)
	}
	return nil
}

// storeSide is this host's address for the other nodes of a job whose launchers meet in a store.
func (j *Config) storeSide() string {
	if j.MasterAddr != "" {
		return j.MasterAddr
	}
	if u, err := url.Parse(j.Store); err == nil && u.Host != "" {
		first, _, _ := strings.Cut(u.Host, ",")
		if host, _, err := net.SplitHostPort(first); err == nil {
			first = host
		}
		if ip, err := bootstrap.LocalAddrFor(first); err == nil {
			return ip.String()
		}
	}
	own, err := os.Hostname()
	if err != nil {
		return "127.0.0.1"
	}
	return own
}

// member describes this launcher.
func (j *Config) member(host string) Member {
	return Member{Host: host, Pid: os.Getpid(), Ranks: j.RanksPerNode, Role: j.Role, Nonce: rand.Text()}
}

// called is what this launcher calls itself before it has joined.
func (j *Config) called() string {
	host, _ := os.Hostname()
	if j.NodeRank == AnyNodeRank {
		return fmt.Sprintf("a launcher on %s, pid %d", host, os.Getpid())
	}
	return fmt.Sprintf("the launcher of node %d on %s, pid %d", j.NodeRank, host, os.Getpid())
}

// beats is the interval of heartbeats.
func (j *Config) beats() time.Duration { return max(j.LostAfter/10, time.Millisecond) }

// again reports whether MaxRestarts permits another attempt after a failure.
func (j *Config) again(s *Start, f *process.Failure) bool {
	return f.Restartable() && s.Restarts < j.MaxRestarts
}

// serve serves the store of the ranks, for clients that know this machine as host.
func (j *Config) serve(host string, port int) (*store.TCPServer, error) {
	if err := j.Security.Check(host); err != nil {
		return nil, err
	}
	return store.ListenTCP(bindAddr(host, port), store.ServerOptions{Security: j.Security, OnRefused: j.OnRefused})
}
