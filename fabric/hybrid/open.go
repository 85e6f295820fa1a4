package hybrid

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

// Name is the name under which the fabric is registered.
const Name = "auto"

func init() {
	fabric.Register(Name, fabric.Driver{
		Open: func(ctx context.Context, c fabric.Config) (fabric.Fabric, error) {
			return transport.Open(ctx, Name, c, listen, transport.NewMatcher(c.Size))
		},
	})
}

// A card is a rank's data for all others before there are links.
type card struct {
	Host    string
	Near    string            // the name of the near fabric
	Offer   []byte            // the card of its near endpoint
	Failure string            // why it has none
	Demand  bool              // there must be one
	Far     []string          // the fabrics that it can use between hosts, the best first
	Lacks   map[string]string // why it can't use those that it would prefer, by name
}

// joinTime bounds how long the ranks of a host take to join once they know each other.
const joinTime = time.Minute

// endpoint is a rank that has not joined the others yet.
type endpoint struct {
	c     fabric.Config
	f     *Fabric
	mine  card
	cards []card
	near  transport.Endpoint // nil if there is none
	far   []route            // the best first
}

// listen prepares a rank for its near fabric. The far one is opened if it's needed.
func listen(ctx context.Context, c fabric.Config) (transport.Endpoint, error) {
	nearName, farName := "auto", "auto"
	own := fabric.Options{
		"near": func(v string) error { nearName = v; return nil },
		"far":  func(v string) error { farName = strings.ToLower(v); return nil },
	}
	own.Set(Name, own.Of(c)) // any name will do so far
	off, demand := nearName == "off", nearName != "auto" && nearName != "off"
	if !demand {
		nearName = "shm"
	}
	listenNear, near, err := transport.Part(nearName)
	if err != nil {
		return nil, err
	}
	far, err := routes(farName, c)
	if err != nil {
		return nil, err
	}
	e := &endpoint{c: c, far: far.usable}
	e.mine = card{Host: c.HostID, Near: nearName, Demand: demand, Far: far.names(), Lacks: far.lacks}
	e.f = &Fabric{rank: c.Rank, names: [2]string{nearName}}
	c.Options, c.Defaults = near.Of(c), nil
	bad := unknown(e.c.Options, append(far.known, own, near)...)
	if err := errors.Join(near.Set(nearName, c.Options), bad); err != nil {
		return nil, err
	}
	err = errors.New("option near is off")
	if !off {
		e.near, err = listenNear(ctx, c)
	}
	switch {
	case fabric.Exhausted(err):
		return nil, err // without descriptors nothing else works, either
	case err != nil:
		e.near, e.mine.Failure = nil, err.Error()
	default:
		e.mine.Offer = e.near.Card()
	}
	return e, nil
}

// unknown complains of options that no fabric has.
func unknown(given map[string]string, known ...fabric.Options) error {
	all, rest := fabric.Options{}, maps.Clone(given)
	for _, o := range known {
		maps.Copy(all, o)
	}
	maps.DeleteFunc(rest, func(name, _ string) bool { return all[name] != nil })
	return all.Set(Name, rest)
}

// Card implements transport.Endpoint.
func (e *endpoint) Card() []byte {
	b, err := json.Marshal(e.mine)
	if err != nil {
		panic(err) // it's made of texts, bytes and a truth value
	}
	return b
}

// Close implements transport.Endpoint.
func (e *endpoint) Close() error {
	if e.near == nil {
		return nil
	}
	return e.near.Close()
}

// Join implements transport.Endpoint. With a fall-back the fabric has another Matcher, so it can't itself be a part of
// another one.
func (e *endpoint) Join(ctx context.Context, cards [][]byte, m *transport.Matcher) (fabric.Fabric, error) {
	f := e.f
	f.Base = transport.NewBase("hybrid", e.c.Rank, e.c.Size, m, 0)
	e.cards = make([]card, len(cards))
	names := make([]string, len(cards))
	for r, b := range cards {
		if err := json.Unmarshal(b, &e.cards[r]); err != nil {
			return nil, fmt.Errorf("hybrid: the card of rank %d: %w", r, err)
		}
		names[r] = e.cards[r].Host
	}
	f.hosts = transport.Hosts(names)
	for r, h := range f.hosts {
		if h == f.hosts[f.rank] {
			f.locals = append(f.locals, r)
		}
	}
	if err := e.joinNear(ctx); err != nil {
		return nil, err
	}
	if err := e.joinFar(ctx); err != nil {
		if f.near != nil {
			f.near.Close(ctx)
		}
		return nil, err
	}
	return f, nil
}

// joinNear joins the ranks of this host, if all ranks of the job can do so on theirs.
func (e *endpoint) joinNear(ctx context.Context) error {
	f, c := e.f, e.c
	if c.Size > 1 && slices.Max(f.hosts) == c.Size-1 {
		return nil // each rank has its host to itself
	}
	failures := make([]string, c.Size)
	for r := range e.cards {
		failures[r] = e.unfit(r)
	}
	if e.reject(failures) {
		return e.fallBack()
	}
	var joined error
	if len(f.locals) > 1 || c.Size == 1 {
		offers := make([][]byte, c.Size)
		for _, r := range f.locals {
			if offers[r] = e.cards[r].Offer; offers[r] == nil {
				offers[r] = []byte{}
			}
		}
		// All are there, so it takes moments. Time must be left to tell if it fails.
		ctx, cancel := context.WithTimeout(ctx, min(joinTime, c.Timeout/2))
		near, err := e.near.Join(ctx, offers, f.Match)
		cancel()
		if joined = err; err == nil {
			f.near = transport.Extend(near)
			f.sharer, _ = near.(fabric.Sharer)
			f.placer, _ = near.(fabric.Placer)
		}
	}
	if fabric.Exhausted(joined) {
		return joined // at once: the opener of the fabric reports it to the others, which then stop waiting
	}
	// A fabric that one of them couldn't open is kept by none.
	failures, err := e.exchangeReports(ctx, joined)
	if err == nil && !e.reject(failures) {
		return nil
	}
	if f.near != nil {
		f.near.Close(ctx)
		f.near, f.sharer, f.placer = nil, nil, nil
		// The other one went with the fabric that is closed.
		f.Base = transport.NewBase("hybrid", c.Rank, c.Size, transport.NewMatcher(c.Size), 0)
	}
	if err != nil {
		return err
	}
	return e.fallBack()
}

// unfit says why a rank can't join others of its host. It's "" if there's no reason, or no other rank
// to join.
func (e *endpoint) unfit(rank int) string {
	own := e.cards[rank]
	for r, k := range e.cards {
		if r == rank && len(e.cards) > 1 || k.Host != own.Host {
			continue
		}
		if own.Failure != "" {
			return own.Failure
		}
		if k.Near != own.Near {
			return fmt.Sprintf("its near fabric is %q, and %q at rank %d", own.Near, k.Near, r)
		}
	}
	return ""
}

// reject notes which ranks can't take part, and reports whether there are any.
func (e *endpoint) reject(failures []string) bool {
	var all []string
	for r, why := range failures {
		if why != "" {
			all = append(all, fmt.Sprintf("rank %d: %s", r, why))
		}
	}
	e.f.why = strings.Join(all, "; ")
	return len(all) > 0
}

// fallBack leaves everything to the far fabric.
func (e *endpoint) fallBack() error {
	f := e.f
	for r, k := range e.cards {
		if k.Demand {
			return fmt.Errorf("hybrid: option near is %s at rank %d, but: %s", k.Near, r, f.why)
		}
	}
	f.locals = []int{f.rank}
	for r := range f.hosts {
		f.hosts[r] = r
	}
	return nil
}

// A report says how a rank's join of its near fabric has ended.
type report struct {
	Failure string // why it couldn't
	Apart   bool   // the fabric shares no memory
}

// exchangeReports tells the other ranks how this one's join of the near fabric has ended, and returns the failure of
// each.
func (e *endpoint) exchangeReports(ctx context.Context, joined error) ([]string, error) {
	f, failures := e.f, make([]string, e.c.Size)
	mine := report{Apart: f.near != nil && f.sharer == nil}
	if joined != nil {
		mine.Failure = joined.Error()
	}
	payload, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	all := [][]byte{payload}
	if e.c.Size > 1 {
		if all, err = e.c.Exchange(ctx, payload); err != nil {
			return nil, fmt.Errorf("hybrid: exchange of reports: %w", err)
		}
	}
	if len(all) != e.c.Size {
		return nil, fmt.Errorf("hybrid: the exchange returned %d reports for %d ranks", len(all), e.c.Size)
	}
	for r, b := range all {
		var theirs report
		if err := json.Unmarshal(b, &theirs); err != nil {
			return nil, fmt.Errorf("hybrid: the report of rank %d: %w", r, err)
		}
		failures[r], f.apart = theirs.Failure, f.apart || theirs.Apart
	}
	return failures, nil
}
