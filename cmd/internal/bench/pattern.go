package bench

import (
	"bytes"
	"fmt"

	"github.com/chorus-comms/chorus/tensor"
)

// period is the number of elements after which the values of the check repeat: a
// prime, so that blocks and cache lines don't begin alike.
const period = 251

// patternBytes is the least size of a block from which buffers are filled.
const patternBytes = 64 << 10

// reduced, as the rank of a span, stands for the result of the reduction.
const reduced = -1

// span says what a piece of a buffer holds: the n elements from at are elements
// from, from+1, ... of rank's contribution.
type span struct{ at, n, rank, from int }

// patterns fills buffers with the values of the check, and compares them.
type patterns struct {
	values
	blocks map[int][]byte // by rank: whole periods
}

func newPatterns(v values) *patterns { return &patterns{v, map[int][]byte{}} }

func (p *patterns) block(rank int) ([]byte, error) {
	if b, ok := p.blocks[rank]; ok {
		return b, nil
	}
	t, err := tensor.Empty(p.dt, period)
	if err != nil {
		return nil, err
	}
	for i := range period {
		x := 0
		if rank == reduced {
			x = p.reduced(i)
		} else {
			x = p.of(rank, i)
		}
		if err := t.SetAt(x, i); err != nil {
			return nil, err
		}
	}
	one, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	b := bytes.Repeat(one, patternBytes/len(one)+1)
	p.blocks[rank] = b
	return b, nil
}

// walk calls f with each piece of the spans' memory and the bytes that belong there.
func (p *patterns) walk(t *tensor.Tensor, spans []span, f func(have, want []byte)) error {
	if len(spans) == 0 {
		return nil
	}
	mem, err := t.Bytes()
	if err != nil {
		return err
	}
	size := p.dt.Size()
	for _, s := range spans {
		if s.at < 0 || (s.at+s.n)*size > len(mem) {
			return fmt.Errorf("bench: elements %d to %d of a buffer of %d", s.at, s.at+s.n, len(mem)/size)
		}
		b, err := p.block(s.rank)
		if err != nil {
			return err
		}
		have, want := mem[s.at*size:][:s.n*size], b[s.from%period*size:]
		for len(have) > 0 {
			n := min(len(have), len(want))
			f(have[:n], want[:n])
			have, want = have[n:], b
		}
	}
	return nil
}

// fill writes the spans of t.
func (p *patterns) fill(t *tensor.Tensor, spans []span) error {
	return p.walk(t, spans, func(have, want []byte) { copy(have, want) })
}

// errors counts the elements of the spans of t that are not what they should be.
func (p *patterns) errors(t *tensor.Tensor, spans []span) (int, error) {
	wrong, size := 0, p.dt.Size()
	err := p.walk(t, spans, func(have, want []byte) {
		if bytes.Equal(have, want) {
			return
		}
		for i := 0; i < len(have); i += size {
			if !bytes.Equal(have[i:i+size], want[i:i+size]) {
				wrong++
			}
		}
	})
	return wrong, err
}
