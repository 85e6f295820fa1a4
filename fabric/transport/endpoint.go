package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/internal/wire"
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

// A ListenError is that of Open if some rank couldn't make its endpoint. All ranks get one, and none has joined.
type ListenError struct {
	Err   error                 // this rank's own failure, or else those of the ranks
	Ranks []*fabric.UnableError // all that have failed, in ascending order
}

func (e *ListenError) Error() string { return e.Err.Error() }
func (e *ListenError) Unwrap() error { return e.Err }

// A message is a rank's data for all others before there are links.
type message struct {
	fabric  string
	failure string // why the rank can't take part
	card    []byte
}

func (m *message) encode() []byte {
	return append(wire.AppendField(wire.AppendField(nil, m.fabric), m.failure), m.card...)
}

// Open makes an endpoint, exchanges cards with the other ranks, and joins them. If one of them has failed by then, all
// do, with a [*ListenError].
func Open(ctx context.Context, name string, c fabric.Config, listen Listen, m *Matcher) (fabric.Fabric, error) {
	c.Timeout = cmp.Or(c.Timeout, fabric.DefaultTimeout)
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	mine := message{fabric: name}
	e, err := listen(ctx, c)
	if err != nil {
		mine.failure = err.Error() // so that the others needn't wait for a timeout
	} else {
		defer e.Close()
		mine.card = e.Card()
	}
	cards, failed, xerr := exchange(ctx, c, mine)
	if xerr == nil && len(failed) > 0 {
		if err == nil {
			err = unable(name, failed)
		}
		err = &ListenError{err, failed}
	}
	if err = cmp.Or(err, xerr); err != nil {
		return nil, err
	}
	return e.Join(ctx, cards, m)
}

// unable joins the failures of ranks.
func unable(name string, ranks []*fabric.UnableError) error {
	all := make([]error, len(ranks))
	for i, r := range ranks {
		all[i] = fmt.Errorf("%s: %w", name, r)
	}
	return errors.Join(all...)
}

// exchange returns the cards of all ranks, and why some have none.
func exchange(ctx context.Context, c fabric.Config, mine message) (cards [][]byte, failed []*fabric.UnableError,
	err error) {
	all := [][]byte{mine.encode()}
	if c.Size > 1 {
		if all, err = c.Exchange(ctx, all[0]); err != nil {
			return nil, nil, fmt.Errorf("%s: exchange of addresses: %w", mine.fabric, err)
		}
	}
	if len(all) != c.Size {
		return nil, nil, fmt.Errorf("%s: the exchange returned %d cards for %d ranks", mine.fabric, len(all), c.Size)
	}
	cards = make([][]byte, c.Size)
	for r, b := range all {
		theirs := wire.ReadFields(b)
		name, failure := theirs.Bytes(), theirs.Bytes()
		if cards[r] = theirs.Rest(); cards[r] == nil || string(name) != mine.fabric {
			return nil, nil, fmt.Errorf("%s: rank %d opened another fabric", mine.fabric, r)
		}
		if len(failure) > 0 {
			failed = append(failed, &fabric.UnableError{Peer: r, Reason: string(failure)})
		}
	}
	return cards, failed, nil
}
