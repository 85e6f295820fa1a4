package fabrictest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// A random program is a list of messages in rounds, the same on all ranks. Each
// rank posts a round's sends and receives in an order of its own, and waits for
// a round only after it has posted some later ones. No rank waits for a round
// that another one has not been able to post, so the program ends even if
// nothing is buffered.

type planned struct {
	round, from, to int
	key             fabric.Key
	size            int
	any             bool // received from AnySource
}

const (
	programRounds = 12
	programSlack  = 3
)

func plan(size int, seed uint64) []planned {
	rng := rand.New(rand.NewPCG(seed, 1))
	var all []planned
	for round := range programRounds {
		for range 3 + rng.IntN(6*size) {
			p := planned{round: round, from: rng.IntN(size), to: rng.IntN(size)}
			class := fabric.Class(rng.IntN(3))
			p.key = fabric.Key{Comm: uint32(1 + rng.IntN(2)), Class: class, Tag: uint64(rng.IntN(3))}
			if rng.IntN(5) == 0 { // of its own, as it could take what others wait for
				p.any = true
				p.key.Comm, p.key.Tag = 3, uint64(len(all))
			}
			switch rng.IntN(8) {
			case 0:
			case 1:
				p.size = 60_000 + rng.IntN(10_000)
			case 2:
				p.size = rng.IntN(600_000)
			default:
				p.size = rng.IntN(5000)
			}
			all = append(all, p)
		}
	}
	return all
}

// Program runs this rank's part of a random program, which sends and receives
// messages of all kinds and checks every byte. Every rank of the world must call
// it with the same seed.
func Program(f fabric.Fabric, seed uint64) error {
	r := &rank{Messenger: transport.Extend(f), bare: f, w: newWaiter()}
	return guard(func() { r.program(seed) })
}

type step struct {
	id   int
	recv bool
	m    *fabric.Msg
	buf  []byte
}

func (r *rank) program(seed uint64) {
	all := plan(r.Size(), seed)
	rng := rand.New(rand.NewPCG(seed, uint64(100+r.Rank())))
	var posted [programRounds][]step
	for round := range programRounds + programSlack {
		if round < programRounds {
			posted[round] = r.steps(all, round, rng)
			for i := range posted[round] {
				r.post(&posted[round][i], all)
			}
		}
		if done := round - programSlack; done >= 0 {
			for _, s := range posted[done] {
				r.finish(s, all[s.id])
			}
		}
	}
}

// steps returns this rank's sends and receives of a round in a random order, in
// which messages of one stream keep theirs.
func (r *rank) steps(all []planned, round int, rng *rand.Rand) []step {
	type stream struct {
		recv bool
		peer int
		key  fabric.Key
	}
	var steps []step
	streams := map[stream][]int{}
	name := func(s step) stream {
		if p := all[s.id]; s.recv {
			return stream{true, p.from, p.key}
		} else {
			return stream{false, p.to, p.key}
		}
	}
	add := func(s step) {
		steps = append(steps, s)
		streams[name(s)] = append(streams[name(s)], s.id)
	}
	for id, p := range all {
		if p.round != round {
			continue
		}
		if p.from == r.Rank() {
			add(step{id: id})
		}
		if p.to == r.Rank() {
			add(step{id: id, recv: true})
		}
	}
	rng.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
	for i := range steps {
		n := name(steps[i])
		steps[i].id, streams[n] = streams[n][0], streams[n][1:]
	}
	return steps
}

func (r *rank) post(s *step, all []planned) {
	p := all[s.id]
	desc := fabric.Desc{byte(s.id), byte(s.id >> 8)}
	if !s.recv {
		s.buf = pattern(s.id, p.size)
		s.m = r.message(p.to, p.key, s.buf)
		s.m.Desc = desc
		r.Send(s.m)
		return
	}
	peer := p.from
	if p.any {
		peer = fabric.AnySource
	}
	s.buf = make([]byte, p.size+s.id%3)
	s.m = r.message(peer, p.key, s.buf)
	s.m.Desc = desc
	r.Recv(s.m)
}

func (r *rank) finish(s step, p planned) {
	if err := r.end(s.m); err != nil {
		fail("message %d (%d bytes from rank %d to %d): %w", s.id, p.size, p.from, p.to, err)
	}
	if s.recv {
		expect(s.m, p.size, p.from)
		verify(s.buf[:p.size], s.id)
		if s.m.Sent != s.m.Desc {
			fail("message %d came with description %v", s.id, s.m.Sent)
		}
	}
}

func testPrograms(t *testing.T, s *suite) {
	programs := 6
	if testing.Short() || testutil.Short() {
		programs = 2
	}
	for i := range programs {
		size := 1 + i%4
		each(t, s.world(t, size), func(r *rank) {
			for j := range 3 {
				seed := uint64(1000*i + j)
				if err := Program(r.bare, seed); err != nil {
					must(errors.Join(fmt.Errorf("program %d of %d ranks", seed, size), err))
				}
			}
		})
	}
}
