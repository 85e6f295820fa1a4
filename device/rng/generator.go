package rng

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
)

// DefaultSeed is the seed of a generator that was given none (c10::detail's default_rng_seed_val).
const DefaultSeed = 67280421310721

// Generator is the random number generator of one device: a [*CPU] or a [*CUDA]. Its methods fail only for a [*CUDA]
// that is being captured, whose seed and state belong to the graph then.
type Generator interface {
	// Seed starts over from a seed and forgets what was drawn ahead. PyTorch maps a negative seed to 2⁶⁴ plus it, and so
	// does the conversion uint64(seed).
	Seed(seed uint64) error

	// InitialSeed returns the last seed.
	InitialSeed() uint64

	// State returns the state in the layout of torch.Generator.get_state: 5056 bytes for a CPU, 16 for CUDA.
	State() ([]byte, error)

	// SetState restores what State returned, here or in PyTorch. A state that can't be one is an [ErrInvalidArgument], and
	// changes nothing.
	SetState(state []byte) error

	sealed() // the distributions know the generators
}

// ErrInvalidArgument is the kind, for errors.Is, of every error of this package.
var ErrInvalidArgument = errors.New("invalid argument")

func invalid(format string, args ...any) error {
	return fmt.Errorf("rng: %w: %s", ErrInvalidArgument, fmt.Sprintf(format, args...))
}

// SeedRandomly seeds a generator from the operating system's entropy and returns the seed. Like PyTorch's, it has 53
// bits, so that a float64 holds it.
func SeedRandomly(g Generator) (seed uint64, err error) {
	var b [8]byte
	rand.Read(b[:]) // never fails
	seed = binary.LittleEndian.Uint64(b[:]) >> 11
	return seed, g.Seed(seed)
}

// Fork remembers the states of generators and returns the function that puts them back, as torch.random.fork_rng does
// for a block of code.
func Fork(gs ...Generator) (restore func() error, err error) {
	states := make([][]byte, len(gs))
	for i, g := range gs {
		if states[i], err = g.State(); err != nil {
			return nil, err
		}
	}
	return func() error {
		var errs []error
		for i, g := range gs {
			errs = append(errs, g.SetState(states[i]))
		}
		return errors.Join(errs...)
	}, nil
}
