package launch

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/observe"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

// member is what a launcher tells the others about itself.
type member struct {
	Host  string
	Pid   int
	Ranks int
	Role  string
	Nonce string // in containers host and pid may be the same
}

func (m member) String() string { return fmt.Sprintf("%s, pid %d", m.Host, m.Pid) }

// singleNode is the peers of a job with one node: none.
type singleNode struct {
	job    *Config
	world  []member
	store  *store.TCPServer
	events chan *Failure
}

func newSingleNode(j *Config, host string) *singleNode {
	return &singleNode{job: j, world: []member{j.member(host)}, events: make(chan *Failure, 1)}
}

func (p *singleNode) begin(_ context.Context, attempt int) (*start, error) {
	p.close() // that of the attempt before
	addr := p.job.MasterAddr
	setDefault(&addr, "127.0.0.1")
	var err error
	if p.store, err = p.job.serve(addr, p.job.MasterPort); err != nil {
		return nil, fmt.Errorf("launch: cannot serve the job's store: %w", err)
	}
	return &start{attempt: attempt, restarts: attempt, world: p.world, addr: addr, port: p.store.Port()}, nil
}

func (p *singleNode) again(s *start, f *Failure) bool { return p.job.again(s, f) }

func (p *singleNode) news() <-chan *Failure      { return p.events }
func (p *singleNode) finished(int)               { p.events <- nil }
func (p *singleNode) failed(f *Failure) *Failure { return f }

func (p *singleNode) stopped(_ int, f *Failure, records []*observe.Dump) (string, bool) {
	if !f.explainable() {
		return "", false
	}
	return explain(records), true
}

func (p *singleNode) close() {
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
	bind, _, _ := localAddr(ctx, host)
	return net.JoinHostPort(bind, strconv.Itoa(port))
}

// localAddr reports whether host is this machine, and the address to listen at for clients that know it by that name;
// "" is all addresses. A name may mean another address elsewhere: many systems give their own name to a loopback
// address, and behind an address translation or a service the name leads to none of our addresses. So only localhost
// and addresses that are certain are narrowed down. With an error the name means nothing yet.
func localAddr(ctx context.Context, host string) (bind string, local bool, err error) {
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
