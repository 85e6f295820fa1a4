package plan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// value is a symbol: a formula over the inputs of all ranks, applied to the
// elements at (position + shift) of each of them. The zero value is undefined.
type value struct {
	node  int32
	shift int
}

// leaf is the formula that is the input of rank r itself.
func leaf(r int) int32 { return int32(r) + 1 }

// values holds formulas. Equal formulas have equal numbers: two operands commute,
// for all reductions do so to the bit, but three or more are one step of
// their own, because half types round once at its end.
type values struct {
	n      int
	known  map[string]int32
	nodes  []node
	key    []byte
	sorted []int32
}

type node struct {
	ranks []uint64 // set of the inputs in it
	final bool
	args  []int32 // nil: an input
}

func newValues(n int) *values {
	v := &values{n: n, known: map[string]int32{}, nodes: make([]node, n+1)}
	words := (n + 63) / 64
	sets := make([]uint64, (n+1)*words)
	for i := range v.nodes {
		v.nodes[i].ranks = sets[i*words : (i+1)*words : (i+1)*words]
		if i > 0 {
			v.nodes[i].ranks[(i-1)/64] |= 1 << ((i - 1) % 64)
		}
	}
	return v
}

var (
	errUndefined = errors.New("it reduces memory that nothing has been written to")
	errRefold    = errors.New("it reduces an element that was final")
	errMixed     = errors.New("it reduces different elements into one")
)

// fold returns the formula that combines args in order.
func (v *values) fold(args []value, final bool) (value, error) {
	v.sorted = v.sorted[:0]
	for _, a := range args {
		switch {
		case a.node == 0:
			return value{}, errUndefined
		case v.nodes[a.node].final:
			return value{}, errRefold
		case a.shift != args[0].shift:
			return value{}, errMixed
		}
		v.sorted = append(v.sorted, a.node)
	}
	if len(v.sorted) == 2 && v.sorted[0] > v.sorted[1] {
		slices.Reverse(v.sorted)
	}
	v.key = v.key[:0]
	if final {
		v.key = append(v.key, 'f')
	}
	for _, a := range v.sorted {
		v.key = binary.LittleEndian.AppendUint32(v.key, uint32(a))
	}
	id, ok := v.known[string(v.key)]
	if !ok {
		set := make([]uint64, len(v.nodes[0].ranks))
		for _, a := range v.sorted {
			for w, bits := range v.nodes[a].ranks {
				if both := set[w] & bits; both != 0 {
					return value{}, fmt.Errorf("it counts rank %d twice", w*64+lowest(both))
				}
				set[w] |= bits
			}
		}
		id = int32(len(v.nodes))
		v.nodes = append(v.nodes, node{ranks: set, final: final, args: slices.Clone(v.sorted)})
		v.known[string(v.key)] = id
	}
	return value{id, args[0].shift}, nil
}
