package transport

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/chorus-comms/chorus/fabric"
)

// Endpoint is a rank that can be reached by the others, but has not joined them yet.
type Endpoint interface {
	// Card is what another rank must know in order to reach this one.
	Card() []byte
	// Join links this rank with those whose cards it gets, by rank, its own among them; those that have none are
	// reached by another fabric, which has the same Matcher. Then a message from any source, for which that other
	// fabric waits, may be completed by this one, and the other way round.
	Join(ctx context.Context, cards [][]byte, m *Matcher) (fabric.Fabric, error)
	// Close gives back what Join has not taken over. It's called once Join has returned, or was not called.
	Close() error
}

// Listen makes an Endpoint.
type Listen func(ctx context.Context, c fabric.Config) (Endpoint, error)

var endpoints sync.Map // Listen, by the fabric's name

// Register makes a fabric available under a name, in one piece and as a part of others, such as hybrid. options returns
// its settings.
func Register(name string, listen Listen, options func() fabric.Options) {
	endpoints.Store(name, listen)
	fabric.Register(name, fabric.Driver{Options: options, Open: func(ctx context.Context, c fabric.Config) (fabric.Fabric,
		error) {
		return Open(ctx, name, c, listen, NewMatcher(c.Size))
	}})
}

// Part returns how an endpoint of a registered fabric is made, which can then be joined with those of another one, and
// its settings.
func Part(name string) (Listen, fabric.Options, error) {
	d, err := fabric.Lookup(name)
	if err != nil {
		return nil, nil, err
	}
	listen, ok := endpoints.Load(name)
	if !ok {
		return nil, nil, &fabric.ConfigError{Err: fmt.Errorf("fabric %q can't be a part of another one", name)}
	}
	if d.Options == nil {
		return listen.(Listen), nil, nil
	}
	return listen.(Listen), d.Options(), nil
}

// A message is a rank's data for all others before there are links.
type message struct {
	Fabric  string
	Failure string `json:",omitempty"` // why the rank can't take part
	Card    []byte `json:",omitempty"`
}

// Open makes an endpoint, exchanges cards with the other ranks, and joins them. If one of them has failed by then, all
// do.
func Open(ctx context.Context, name string, c fabric.Config, listen Listen, m *Matcher) (fabric.Fabric, error) {
	c.Timeout = cmp.Or(c.Timeout, fabric.DefaultTimeout)
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	mine := message{Fabric: name}
	e, err := listen(ctx, c)
	if err != nil {
		mine.Failure = err.Error() // so that the others needn't wait for a timeout
	} else {
		defer e.Close()
		mine.Card = e.Card()
	}
	cards, xerr := exchange(ctx, c, mine)
	if err = cmp.Or(err, xerr); err != nil {
		return nil, err
	}
	return e.Join(ctx, cards, m)
}

// exchange returns the cards of all ranks.
func exchange(ctx context.Context, c fabric.Config, mine message) ([][]byte, error) {
	payload, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	all := [][]byte{payload}
	if c.Size > 1 {
		if all, err = c.Exchange(ctx, payload); err != nil {
			return nil, fmt.Errorf("%s: exchange of addresses: %w", mine.Fabric, err)
		}
	}
	if len(all) != c.Size {
		return nil, fmt.Errorf("%s: the exchange returned %d cards for %d ranks", mine.Fabric, len(all), c.Size)
	}
	cards := make([][]byte, c.Size)
	var failures []error
	for r, b := range all {
		var theirs message
		switch err := json.Unmarshal(b, &theirs); {
		case err != nil || theirs.Fabric != mine.Fabric:
			return nil, fmt.Errorf("%s: rank %d opened another fabric", mine.Fabric, r)
		case theirs.Failure != "":
			failures = append(failures, fmt.Errorf("%s: %w", mine.Fabric, &fabric.UnableError{Peer: r, Reason: theirs.Failure}))
		}
		if cards[r] = theirs.Card; cards[r] == nil {
			cards[r] = []byte{}
		}
	}
	return cards, errors.Join(failures...)
}
