package rendezvous

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/launch/internal/process"
	"github.com/chorus-comms/chorus/observe"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

// Member is what a launcher tells the others about itself.
type Member struct {
	Host  string
	Pid   int
	Ranks int
	Role  string
	Nonce string // in containers host and pid may be the same
}

func (m Member) String() string { return fmt.Sprintf("%s, pid %d", m.Host, m.Pid) }

// SingleNode is the peers of a job with one node: none.
type SingleNode struct {
	job    *Config
	world  []Member
	store  *store.TCPServer
	events chan *process.Failure
}

// NewSingleNode is of a job on the host that is named so.
func NewSingleNode(j *Config, host string) *SingleNode {
	return &SingleNode{job: j, world: []Member{j.member(host)}, events: make(chan *process.Failure, 1)}
}

// Begin implements [Peers].
func (p *SingleNode) Begin(_ context.Context, attempt int) (*Start, error) {
	p.Close() // that of the attempt before
	addr := cmp.Or(p.job.MasterAddr, "127.0.0.1")
	var err error
	if p.store, err = p.job.serve(addr, p.job.MasterPort); err != nil {
		return nil, fmt.Errorf("launch: cannot serve the job's store: %w", err)
	}
	return &Start{Attempt: attempt, Restarts: attempt, World: p.world, Addr: addr, Port: p.store.Port()}, nil
}

// Again implements [Peers].
func (p *SingleNode) Again(s *Start, f *process.Failure) bool { return p.job.again(s, f) }

// News implements [Peers].
func (p *SingleNode) News() <-chan *process.Failure              { return p.events }
func (p *SingleNode) Finished(int)                               { p.events <- nil }
func (p *SingleNode) Failed(f *process.Failure) *process.Failure { return f }

// Stopped implements [Peers].
func (p *SingleNode) Stopped(_ int, f *process.Failure, records []*observe.Dump) (string, bool) {
	if !f.Explainable() {
		return "", false
	}
	return explain(records), true
}

// Close implements [Peers].
func (p *SingleNode) Close() {
	if p.store != nil {
		p.store.Close()
	}
}

// launchersOnly is the policy of a store that PyTorch's clients never use.
func launchersOnly(p secure.Policy) secure.Policy {
	if p.Authenticates() {
		p.Plain = config.PlainNone
	}
	return p
}

// lookupTime bounds a question to the resolver where nothing else does.
const lookupTime = 10 * time.Second

func bindAddr(host string, port int) string {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
	defer cancel()
	bind, _, _ := LocalAddr(ctx, host)
	return net.JoinHostPort(bind, strconv.Itoa(port))
}

// LocalAddr reports whether host is this machine, and the address to listen at for clients that know it by that name;
// "" is all addresses. A name may mean another address elsewhere: many systems give their own name to a loopback
// address, and behind an address translation or a service the name leads to none of our addresses. So only localhost
// and addresses that are certain are narrowed down. With an error the name means nothing yet.
func LocalAddr(ctx context.Context, host string) (bind string, local bool, err error) {
	if host == "localhost" {
		return "127.0.0.1", true, nil
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return host, true, nil
	}
	addrs, err := net.DefaultResolver.LookupIP(ctx, "ip", host)
	if err != nil {
		return "", false, err
	}
	own, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if a.IsLoopback() {
			return "", true, nil
		}
		for _, o := range own {
			if n, ok := o.(*net.IPNet); ok && n.IP.Equal(a) {
				return a.String(), true, nil
			}
		}
	}
	return "", false, nil
}
