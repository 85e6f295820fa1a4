package bench

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/plan"
)

// MemoryKind says what kind of memory the buffers are in.
type MemoryKind string

// The kinds of memory.
const (
	Mapped   MemoryKind = "mapped"   // from Comm.Empty: peers on this host can map it
	Ordinary MemoryKind = "ordinary" // of the Go heap
)

// Config says what to measure. Every rank passes the same. The zero value of a
// field means its default.
type Config struct {
	Operation string // see Operations; default all_reduce
	Min, Max  int    // bytes, both included; default 8 bytes and 64 MiB
	Step      int    // factor between sizes; default 4
	StepBytes int    // bytes from one size to the next, instead of a factor; 0: none
	DType     dtype.DType
	Reduction comm.Reduction // default Sum
	Root      int
	Memory    MemoryKind // default Mapped
	// InPlace and OutOfPlace choose the forms; neither means the operation's usual one.
	InPlace, OutOfPlace bool
	Refill              bool   // write the inputs anew before each round
	Algorithm           string // default: the communicator's choice
	Fabric              string // what the rows shall say; Run doesn't choose it

	Time   time.Duration // to measure each row; default 200 ms
	Warmup int           // rounds; default: a tenth of Time
	Iters  int           // rounds; default: as many as fit in Time, but a few at least
	// Rounds whose results are checked, before the measured ones and after them; default 1; or Unchecked.
	Checks int

	OnRow func(Row) // called on each rank after each row; may be nil
}

// Unchecked, as Checks, leaves the results alone.
const Unchecked = -1

const (
	defaultMin  = 8
	defaultMax  = 64 << 20
	defaultStep = 4
	defaultTime = 200 * time.Millisecond

	mostSizes = 1 << 20 // of one run
)

// Check reports what is wrong with the config for a world of so many ranks. Run
// checks it too.
func (g Config) Check(ranks int) error {
	_, err := g.fill(ranks)
	return err
}

// fill completes the config and reports what is wrong with it in a world of n ranks.
func (g *Config) fill(n int) (*operation, error) {
	if g.Operation == "" {
		g.Operation = "all_reduce"
	}
	op := lookup(g.Operation)
	if op == nil {
		return nil, fmt.Errorf("bench: no operation %q; there are %s", g.Operation, strings.Join(Operations(), ", "))
	}
	g.Operation = op.name
	if g.Min == 0 && g.Max == 0 {
		g.Min, g.Max = defaultMin, defaultMax
	}
	if g.Min == 0 {
		g.Min = min(defaultMin, g.Max)
	}
	if g.Max == 0 {
		g.Max = max(defaultMax, g.Min)
	}
	if g.Step == 0 {
		g.Step = defaultStep
	}
	if g.Checks == 0 {
		g.Checks = 1
	}
	if g.DType == dtype.Invalid {
		g.DType = dtype.Float32
	}
	if g.Reduction.Kind == 0 {
		g.Reduction = comm.Sum
	}
	if g.Memory == "" {
		g.Memory = Mapped
	}
	if g.Time == 0 {
		g.Time = defaultTime
	}
	if !g.InPlace && !g.OutOfPlace {
		g.InPlace = op.usuallyInPlace
		g.OutOfPlace = !op.usuallyInPlace
	}
	switch {
	case g.Min < 0 || g.Max < g.Min:
		return nil, fmt.Errorf("bench: sizes from %d to %d bytes", g.Min, g.Max)
	case g.Step < 2:
		return nil, fmt.Errorf("bench: a factor of %d between sizes; want at least 2", g.Step)
	case g.StepBytes < 0:
		return nil, fmt.Errorf("bench: %d bytes between sizes", g.StepBytes)
	case g.StepBytes > 0 && (g.Max-g.Min)/g.StepBytes > mostSizes:
		return nil, fmt.Errorf("bench: %d bytes between sizes make more than %d sizes", g.StepBytes, mostSizes)
	case g.Checks < Unchecked:
		return nil, fmt.Errorf("bench: %d rounds to check", g.Checks)
	case !g.DType.Valid():
		return nil, fmt.Errorf("bench: dtype %v", g.DType)
	case g.Root < 0 || g.Root >= n:
		return nil, fmt.Errorf("bench: root %d is not in a world of %d", g.Root, n)
	case g.Memory != Mapped && g.Memory != Ordinary:
		return nil, fmt.Errorf("bench: memory %q: want %s or %s", g.Memory, Mapped, Ordinary)
	case g.InPlace && !op.inPlace:
		return nil, fmt.Errorf("bench: %s has no form in place", op.name)
	case g.OutOfPlace && !op.outOfPlace:
		return nil, fmt.Errorf("bench: %s is always in place", op.name)
	case g.Time < 0 || g.Warmup < 0 || g.Iters < 0:
		return nil, errors.New("bench: negative time or number of rounds")
	case op.leastRanks > n:
		return nil, fmt.Errorf("bench: %s needs %d ranks", op.name, op.leastRanks)
	}
	if hint := g.algorithmHint(); hint != "" {
		if err := plan.CheckHint(hint); err != nil {
			return nil, fmt.Errorf("bench: algorithm: %w", err)
		}
	}
	return op, nil
}

// algorithmHint is the value of the hint "algorithm" that the operation gets; "" for none.
func (g *Config) algorithmHint() string {
	if g.Algorithm == "" || g.Operation == "send_recv" {
		return ""
	}
	return g.Operation + "=" + g.Algorithm
}

// sizes returns the numbers of bytes to measure, ascending, with the largest at the
// end whatever the step. Each is a whole number of units: elements, times ranks
// where each has a block.
func (g *Config) sizes(unit int) []int {
	var all []int
	add := func(s int) {
		size := (s + unit - 1) / unit * unit
		if len(all) == 0 || size > all[len(all)-1] {
			all = append(all, size)
		}
	}
	switch {
	case g.StepBytes > 0:
		for s := g.Min; s < g.Max; s += g.StepBytes {
			add(s)
		}
	default:
		for s := g.Min; s > 0; s *= g.Step {
			add(s)
			if s > g.Max/g.Step { // the next is too large, or beyond an int
				break
			}
		}
	}
	add(g.Max)
	return all
}

// ParseSize reads a number of bytes, such as 8, 4KiB or 256MiB.
func ParseSize(text string) (int, error) {
	n, err := config.ParseBytes(text)
	if err != nil {
		return 0, err
	}
	if n > 1<<50 {
		return 0, fmt.Errorf("a size of %s is beyond any memory", text)
	}
	return int(n), nil
}

// ParseReduction reads the name of a reduction. premul_sum multiplies by 2.
func ParseReduction(name string) (comm.Reduction, error) {
	for _, r := range reductions {
		if r.String() == name || name == "prod" && r.Kind == comm.Product.Kind {
			return r, nil
		}
	}
	return comm.Reduction{}, fmt.Errorf("no reduction %q; there are %v", name, reductions)
}

var reductions = []comm.Reduction{comm.Sum, comm.Product, comm.Min, comm.Max, comm.BAnd, comm.BOr, comm.BXor, comm.Avg,
	comm.PremulSum(premulFactor)}

const premulFactor = 2
