package tcp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/netip"
	"runtime"
	"slices"

	"github.com/chorus-comms/chorus/fabric"
)

func init() {
	fabric.Register("tcp", func(ctx context.Context, c fabric.Config) (fabric.Fabric, error) {
		f, err := Open(ctx, c, nil)
		if err != nil {
			return nil, err
		}
		return f, nil
	})
}

// record is what a rank tells all others before there are links.
type record struct {
	Fabric      string // "tcp"
	Version     int
	Failure     string `json:",omitempty"` // why the rank can't take part
	Host        string
	Addrs       []netip.AddrPort
	Token       []byte // rank 0's, with the job's secret if there is one, makes the key of the links
	TLS         bool
	Connections int
	Window      int
}

// Open joins this rank to the others. Messages are matched by match, which the
// fabric shares with another one then; nil means one of its own. Close closes it.
func Open(ctx context.Context, c fabric.Config, match *fabric.Matcher) (*Fabric, error) {
	if c.Timeout == 0 {
		c.Timeout = fabric.DefaultTimeout
	}
	if match == nil {
		match = fabric.NewMatcher(c.Size)
	}
	f := newFabric(c, match)
	mine := record{Fabric: "tcp", Version: version, Host: c.HostID, Token: make([]byte, tokenBytes), TLS: c.Security.TLS != nil}
	rand.Read(mine.Token)
	var err error
	if f.o, err = parseOptions(c.Options); err == nil && c.Size > 1 {
		f.listeners, err = listen(f.o, c.Rendezvous)
	}
	if err == nil {
		err = f.equip() // before the others are told that this rank is there
	}
	mine.Connections, mine.Window = f.o.connections, f.o.window
	mine.Addrs = published(f.listeners, f.o.advertise)
	if err == nil && mine.TLS && !c.Security.Authenticates() {
		err = c.Security.Check("") // says what is missing
	}
	if err != nil {
		mine.Failure = err.Error() // so that the others needn't wait for a timeout
	}
	records := []record{mine}
	if c.Size > 1 {
		var xerr error
		if records, xerr = exchange(ctx, c, mine); err == nil {
			err = xerr
		}
	}
	if err == nil {
		err = f.join(records)
	}
	if err != nil {
		f.closeListeners()
		f.closeKeepers()
		f.spare.Close()
		return nil, err
	}
	f.start()
	return f, nil
}

func exchange(ctx context.Context, c fabric.Config, mine record) ([]record, error) {
	payload, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	all, err := c.Exchange(ctx, payload)
	if err != nil {
		return nil, fmt.Errorf("tcp: exchange of addresses: %w", err)
	}
	if len(all) != c.Size {
		return nil, fmt.Errorf("tcp: the exchange returned %d records for %d ranks", len(all), c.Size)
	}
	records := make([]record, c.Size)
	for r, b := range all {
		k := &records[r]
		switch err := json.Unmarshal(b, k); {
		case err != nil || k.Fabric != "tcp":
			return nil, fmt.Errorf("tcp: rank %d opened another fabric", r)
		case k.Failure != "":
			return nil, fmt.Errorf("tcp: %w", &fabric.UnableError{Peer: r, Reason: k.Failure})
		case k.Version != version || len(k.Token) != tokenBytes:
			return nil, fmt.Errorf("tcp: rank %d speaks protocol version %d; rank %d speaks %d", r, k.Version, c.Rank, version)
		case k.TLS != mine.TLS:
			return nil, fmt.Errorf("tcp: TLS is on at one of the ranks %d and %d, and off at the other", r, c.Rank)
		case k.Connections != mine.Connections:
			return nil, fmt.Errorf("tcp: option connections is %d at rank %d and %d at rank %d", k.Connections, r, mine.Connections, c.Rank)
		case k.Window < 0 || len(k.Addrs) == 0:
			return nil, fmt.Errorf("tcp: the record of rank %d has window %d and %d addresses", r, k.Window, len(k.Addrs))
		}
	}
	return records, nil
}

// join makes the peers from what they told.
func (f *Fabric) join(records []record) error {
	f.key = f.security.Secret.Derive("tcp link", records[0].Token)
	var ids []string
	sameHost, onHost := true, 0
	for r, k := range records {
		h := slices.Index(ids, k.Host)
		if h < 0 {
			h = len(ids)
			ids = append(ids, k.Host)
		}
		f.hosts[r] = h
		if k.Host == records[f.rank].Host {
			onHost++
		} else {
			sameHost = false
		}
	}
	f.staff(onHost)
	for r, k := range records {
		if r == f.rank {
			continue
		}
		// The loopback address first within a host, last between hosts: there it
		// only serves ranks that pretend to be on several.
		near := k.Host == records[f.rank].Host
		addrs := slices.Clone(k.Addrs)
		slices.SortStableFunc(addrs, func(a, b netip.AddrPort) int {
			if x, y := a.Addr().IsLoopback(), b.Addr().IsLoopback(); x == y {
				return 0
			} else if x == near {
				return -1
			}
			return 1
		})
		f.peers[r] = newPeer(f, r, addrs, k.Window)
	}
	if sameHost && len(f.listeners) > 1 {
		// Nobody needs to come in from the network.
		for _, l := range f.listeners[1:] {
			l.Close()
		}
		f.listeners = f.listeners[:1]
	}
	return nil
}

// equip takes the descriptors that this rank needs for itself: of as many keepers as there may be, and a spare one.
func (f *Fabric) equip() error {
	n := 1
	if runtime.NumCPU() > 1 {
		n = f.o.connections
	}
	for range n {
		k, err := newKeeper(f)
		if err != nil {
			return fmt.Errorf("tcp: watching connections: %w", err)
		}
		f.keepers = append(f.keepers, k)
	}
	if f.size == 1 {
		return nil
	}
	if err := f.spare.Keep(); err != nil {
		return fmt.Errorf("tcp: %w", err)
	}
	return nil
}

// staff decides how connections are looked after, and so how many keepers stay: one, or with cores to spare one for each data connection.
func (f *Fabric) staff(onHost int) {
	f.patient = onHost <= f.cores
	f.spares = 2*onHost <= runtime.NumCPU()
	f.procs = int32(runtime.GOMAXPROCS(0))
	if f.spares {
		return
	}
	for len(f.keepers) > 1 {
		last := len(f.keepers) - 1
		f.keepers[last].close()
		f.keepers = f.keepers[:last]
	}
}
