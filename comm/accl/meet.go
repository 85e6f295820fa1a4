package accl

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/chorus-comms/chorus/accl/engine"
	"github.com/chorus-comms/chorus/accl/links"
	"github.com/chorus-comms/chorus/accl/wire"
	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/fabric"
	_ "github.com/chorus-comms/chorus/fabric/hybrid" // "auto", and with it "shm" and "tcp"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

// A joinedNetwork is the network on which this rank's engine reaches the others.
type joinedNetwork struct {
	network engine.Network
	attach  func(e *engine.Engine, lost func(peer uint32, cause error))
	leave   func(cause error)
}

// networks are those of worlds of this process, by the name that rank 0 gives them.
var networks struct {
	mu    sync.Mutex
	named map[string]*shared
}

// shared is a network and how many ranks are in it.
type shared struct {
	*engine.Local
	ranks int
}

// process differs between processes.
var process = rand.Text()

// meet finds the network of all ranks: that of this process, if all are in it, else links of a fabric.
func meet(ctx context.Context, c *backend.Config, o options) (joinedNetwork, error) {
	cfg, err := config.Load(nil)
	if err != nil {
		return joinedNetwork{}, err
	}
	policy, err := secure.Load(cfg)
	if err != nil {
		return joinedNetwork{}, err
	}
	all, err := c.Exchange(ctx, []byte(process+" "+rand.Text()))
	if err != nil {
		return joinedNetwork{}, err
	}
	together := o.network == "" || o.network == packets
	for _, other := range all {
		name, _, _ := strings.Cut(string(other), " ")
		together = together && name == process
	}
	if together {
		m := local(uint32(c.Rank), string(all[0]))
		if o.network == packets {
			m.network = wire.Through(m.network, o.protocol)
		}
		return m, nil
	}
	if o.network == packets {
		return joinedNetwork{}, fmt.Errorf("accl.network=%s is for ranks of one process", packets)
	}
	host := cfg.HostID
	if host == "" {
		if host, err = bootstrap.HostID(); err != nil {
			return joinedNetwork{}, err
		}
	}
	sealed, round := store.NewSealed(policy.Secret, c.Store), 0
	exchange := func(ctx context.Context, payload []byte) ([][]byte, error) {
		if c.Size == 1 {
			return [][]byte{payload}, nil
		}
		round++
		return bootstrap.Exchange(ctx, store.NewPrefix(fmt.Sprint("meet/", round), sealed), c.Rank, c.Size, payload)
	}
	fab, err := fabric.Open(ctx, cmp.Or(o.network, cfg.Fabric), fabric.Config{Rank: c.Rank, Size: c.Size,
		Exchange: exchange, HostID: host, Rendezvous: c.MasterAddr, Security: policy, Timeout: c.Timeout,
		Defaults: cfg.FabricOptions()})
	if err != nil {
		return joinedNetwork{}, err
	}
	net := links.New(fab)
	if err := net.Share(ctx); err != nil {
		return joinedNetwork{}, errors.Join(err, net.Close(ctx))
	}
	return joinedNetwork{net, net.Serve, func(error) { net.Close(context.Background()) }}, nil
}

// local returns the network of a world whose ranks are all in this process.
func local(session uint32, name string) joinedNetwork {
	networks.mu.Lock()
	defer networks.mu.Unlock()
	n := networks.named[name]
	if n == nil {
		if networks.named == nil {
			networks.named = map[string]*shared{}
		}
		n = &shared{Local: engine.NewNetwork()}
		networks.named[name] = n
	}
	n.ranks++
	return joinedNetwork{n.Port(session), func(e *engine.Engine, _ func(uint32, error)) { n.Attach(session, e) },
		func(cause error) {
			n.Detach(session, cause)
			networks.mu.Lock()
			defer networks.mu.Unlock()
			if n.ranks--; n.ranks == 0 {
				delete(networks.named, name)
			}
		}}
}
