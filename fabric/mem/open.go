package mem

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

func init() {
	transport.Register("mem", listen, func() fabric.Options { return new(record).options() })
}

// A record is a rank that has not joined the others yet, and its data for them. The lowest rank's settings
// count.
type record struct {
	Process string // differs between processes
	World   string // the lowest rank's is the name of the world
	Host    string
	Buffer  int
	Wait    string

	rank int
}

// options are "buffer", the size in bytes up to which messages are buffered, -1 for none; and "wait", as in package
// shm: those that block sleep at once.
func (r *record) options() fabric.Options {
	return fabric.Options{
		"buffer": fabric.Number(&r.Buffer, -1, 1<<20),
		"wait":   fabric.OneOf(&r.Wait, "auto", "spin", "yield", "block"),
	}
}

var process = rand.Text()

func listen(_ context.Context, c fabric.Config) (transport.Endpoint, error) {
	own := &record{Process: process, World: rand.Text(), Host: c.HostID, Buffer: defaultBuffer, rank: c.Rank}
	return own, own.options().Set("mem", c.Options)
}

// Card implements transport.Endpoint.
func (r *record) Card() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // it's made of texts and a number
	}
	return b
}

// Close implements transport.Endpoint: there's nothing to give back.
func (r *record) Close() error { return nil }

// opening holds the worlds that not all ranks have joined yet, by name.
var opening struct {
	sync.Mutex
	worlds map[string]*joining
}

type joining struct {
	world   *world
	missing int
	full    chan struct{} // closed when no rank is missing
}

// Join implements transport.Endpoint: it finds the ranks that are opened elsewhere in this process.
func (r *record) Join(ctx context.Context, cards [][]byte, m *transport.Matcher) (fabric.Fabric, error) {
	var first record
	s, missing := settings{hosts: make([]string, len(cards))}, 0
	for p, card := range cards {
		var theirs record
		switch {
		case card == nil:
			continue
		case json.Unmarshal(card, &theirs) != nil:
			return nil, fmt.Errorf("mem: the card of rank %d is none of this fabric", p)
		case theirs.Process != process:
			return nil, fmt.Errorf("mem: rank %d is in another process than rank %d; use shm or tcp", p, r.rank)
		case missing == 0:
			first = theirs
		}
		missing++
		s.hosts[p] = theirs.Host
	}
	s.buffer, s.wait = first.Buffer, first.Wait
	opening.Lock()
	j := opening.worlds[first.World]
	if j == nil {
		j = &joining{world: newWorld(s), missing: missing, full: make(chan struct{})}
		if opening.worlds == nil {
			opening.worlds = map[string]*joining{}
		}
		opening.worlds[first.World] = j
	}
	f := j.world.add(r.rank, m)
	if j.missing--; j.missing == 0 {
		delete(opening.worlds, first.World)
		close(j.full)
	}
	opening.Unlock()
	select {
	case <-j.full:
		return f, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("mem: waiting for the other ranks to join: %w", context.Cause(ctx))
	}
}
