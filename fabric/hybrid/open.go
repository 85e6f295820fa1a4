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
	"github.com/chorus-comms/chorus/fabric/shm"
)

// card is what a rank tells all others before there are links.
type card struct {
	Host    string
	Offer   []byte // of its shm.Endpoint
	Failure string // why it has none
	Demand  bool   // memory must be shared
	Invalid string // a mistake that no other path heals
}

// joinTime bounds how long the ranks of a host take to join once they know each other.
const joinTime = time.Minute

// Open joins this rank to the others.
func Open(ctx context.Context, c fabric.Config) (*Fabric, error) {
	if c.Timeout == 0 {
		c.Timeout = fabric.DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	o := &opening{c: c, f: &Fabric{rank: c.Rank, size: c.Size, match: fabric.NewMatcher(c.Size)}}
	if err := o.openNear(ctx); err != nil {
		return nil, err
	}
	if err := o.openFar(ctx); err != nil {
		if o.f.near != nil {
			o.f.near.Close(ctx)
		}
		return nil, err
	}
	return o.f, nil
}

// opening is a fabric on its way.
type opening struct {
	c         fabric.Config
	f         *Fabric
	share     string // auto, on, off
	near, far map[string]string
	cards     []card
}

// split tells the options of the parts apart, and checks them.
func (o *opening) split() error {
	o.share, o.near, o.far = "auto", map[string]string{}, map[string]string{}
	for name, v := range o.c.Options {
		switch {
		case name == "shm":
			if !slices.Contains([]string{"auto", "on", "off"}, v) {
				return fmt.Errorf("hybrid: option shm is %q; it can be auto, on or off", v)
			}
			o.share = v
		case slices.Contains(shm.OptionNames(), name):
			o.near[name] = v
		default:
			o.far[name] = v
		}
	}
	return errors.Join(shm.CheckOptions(o.near), checkFar(o.far))
}

// openNear joins the ranks of this host, if all ranks of the job can do so on theirs.
func (o *opening) openNear(ctx context.Context) error {
	invalid := o.split()
	c := o.c
	c.Options = o.near
	mine := card{Host: c.HostID, Demand: o.share == "on"}
	if invalid != nil {
		mine.Invalid = invalid.Error()
	}
	var end *shm.Endpoint
	err := errors.New("option shm is off")
	if o.share != "off" && invalid == nil {
		if end, err = shm.Listen(c); err == nil {
			defer end.Close()
			mine.Offer = end.Offer()
		}
	}
	if fabric.Exhausted(err) {
		return err // without descriptors nothing else works, either
	}
	if err != nil {
		mine.Failure = err.Error()
	}
	if err := o.exchangeCards(ctx, mine); err != nil {
		return errors.Join(invalid, err)
	}
	for r, k := range o.cards {
		if r != c.Rank && k.Invalid != "" {
			invalid = errors.Join(invalid, fmt.Errorf("rank %d: %s", r, k.Invalid))
		}
	}
	if invalid != nil {
		return invalid
	}
	f := o.f
	f.hosts = number(o.cards)
	for r, h := range f.hosts {
		if h == f.hosts[f.rank] {
			f.locals = append(f.locals, r)
		}
	}
	if c.Size > 1 && slices.Max(f.hosts) == c.Size-1 {
		return nil // each rank has its host to itself
	}
	failures := make([]string, c.Size)
	for r, k := range o.cards {
		if c.Size == 1 || o.shares(r) {
			failures[r] = k.Failure
		}
	}
	if o.reject(failures) {
		return o.fallBack()
	}
	var joined error
	if len(f.locals) > 1 || c.Size == 1 {
		offers := make([][]byte, c.Size)
		for r, k := range o.cards {
			offers[r] = k.Offer
		}
		// All are there, so it takes moments. Time must be left to tell if it fails.
		ctx, cancel := context.WithTimeout(ctx, min(joinTime, c.Timeout/2))
		f.near, joined = end.Join(ctx, f.locals, offers, f.match)
		cancel()
	}
	if fabric.Exhausted(joined) {
		return joined // at once: the others hear of it by way of who opens the fabric, and wait no longer
	}
	// What one of them couldn't open, none keeps.
	failures, xerr := o.exchangeFailures(ctx, joined)
	if xerr == nil && !o.reject(failures) {
		return nil
	}
	if f.near != nil {
		// The matcher goes with the fabric that is closed.
		f.near.Close(ctx)
		f.near, f.match = nil, fabric.NewMatcher(c.Size)
	}
	if xerr != nil {
		return xerr
	}
	return o.fallBack()
}

// shares reports whether other ranks are on a rank's host.
func (o *opening) shares(rank int) bool {
	for r, h := range o.f.hosts {
		if r != rank && h == o.f.hosts[rank] {
			return true
		}
	}
	return false
}

// reject notes which ranks can't share memory, and reports whether there are any.
func (o *opening) reject(failures []string) bool {
	var all []string
	for r, why := range failures {
		if why != "" {
			all = append(all, fmt.Sprintf("rank %d: %s", r, why))
		}
	}
	o.f.why = strings.Join(all, "; ")
	return len(all) > 0
}

// fallBack leaves everything to the far fabric.
func (o *opening) fallBack() error {
	for r, k := range o.cards {
		if k.Demand {
			return fmt.Errorf("hybrid: option shm is on at rank %d, but: %s", r, o.f.why)
		}
	}
	f := o.f
	f.locals = []int{f.rank}
	for r := range f.hosts {
		f.hosts[r] = r
	}
	return nil
}

func (o *opening) openFar(ctx context.Context) error {
	f := o.f
	if f.near != nil && len(f.locals) == f.size {
		return nil
	}
	c := o.c
	c.Options = maps.Clone(o.far)
	far, err := openFar(ctx, c, f.match)
	if err != nil {
		return err
	}
	f.far = far
	return nil
}

func (o *opening) exchangeCards(ctx context.Context, mine card) error {
	all, err := o.exchange(ctx, mine)
	if err != nil {
		return err
	}
	o.cards = make([]card, len(all))
	for r, b := range all {
		if err := json.Unmarshal(b, &o.cards[r]); err != nil {
			return fmt.Errorf("hybrid: the card of rank %d: %w", r, err)
		}
	}
	return nil
}

func (o *opening) exchangeFailures(ctx context.Context, mine error) ([]string, error) {
	text := ""
	if mine != nil {
		text = mine.Error()
	}
	all, err := o.exchange(ctx, text)
	if err != nil {
		return nil, err
	}
	failures := make([]string, len(all))
	for r, b := range all {
		if err := json.Unmarshal(b, &failures[r]); err != nil {
			return nil, fmt.Errorf("hybrid: the report of rank %d: %w", r, err)
		}
	}
	return failures, nil
}

func (o *opening) exchange(ctx context.Context, mine any) ([][]byte, error) {
	payload, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	if o.c.Size == 1 {
		return [][]byte{payload}, nil
	}
	all, err := o.c.Exchange(ctx, payload)
	if err != nil {
		return nil, fmt.Errorf("hybrid: exchange of addresses: %w", err)
	}
	if len(all) != o.c.Size {
		return nil, fmt.Errorf("hybrid: the exchange returned %d cards for %d ranks", len(all), o.c.Size)
	}
	return all, nil
}

// number numbers the hosts in the order of their lowest ranks.
func number(cards []card) []int {
	hosts := make([]int, len(cards))
	var seen []string
	for r, k := range cards {
		h := slices.Index(seen, k.Host)
		if h < 0 {
			h = len(seen)
			seen = append(seen, k.Host)
		}
		hosts[r] = h
	}
	return hosts
}
