package source

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/text"
)

// Family is the one of all texts.
const Family text.Family = 50

func init() { text.Register(Family, "source", generate) }

// Kernel is a text with one function.
type Kernel struct {
	source  string
	name    string
	threads uint16 // of a block on a GPU
	work    int    // elements that a thread goes through for a unit, if it's known
}

// MaxText is how many bytes a text has at most.
const MaxText = 1 << 20

// MaxArguments is how many pointers and integers a kernel has at most. With 8 bytes each they are 4 KiB, which CUDA and
// HIP take. Of OpenCL's devices some have room for 1 KiB: see [loader.Loader.Takes].
const MaxArguments = 512

var (
	entry = regexp.MustCompile(`\bKERNEL\s+void\s+(\w+)\s*\(`)
	// Lines of a text that say how much work it has.
	row  = regexp.MustCompile(`(?m)^#define ROW_OF_BLOCK (\d+)$`)
	unit = regexp.MustCompile(`(?m)^#define ROW_OF_THREAD (\d+)$`)
)

// New is the kernel of a text. Its function is the one after KERNEL, with pointers first and then integers of 64 bits.
// A line "#define ROW_OF_BLOCK 100" says that a block's unit is a row of 100 elements, and "#define ROW_OF_THREAD 100" that
// a thread's is.
func New(source string) (Kernel, error) {
	if len(source) > MaxText {
		return Kernel{}, fmt.Errorf("kernel: a text of %d bytes has more than %d", len(source), MaxText)
	}
	name, err := nameOf(source)
	k := Kernel{source, name, threads, said(unit, source)}
	if n := said(row, source); n > 0 {
		for k.threads > fewest && n <= int(k.threads/2) {
			k.threads /= 2
		}
		k.work = n / int(k.threads)
	}
	return k, err
}

// said is a number in a text, or 0.
func said(line *regexp.Regexp, source string) int {
	if m := line.FindStringSubmatch(source); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			return n
		}
	}
	return 0
}

func nameOf(source string) (string, error) {
	found := entry.FindAllStringSubmatch(source, 2)
	if len(found) != 1 {
		return "", fmt.Errorf("kernel: a text has one function \"KERNEL void name(\", and this one has %s: %.60q",
			map[bool]string{true: "none", false: "several"}[len(found) == 0], source)
	}
	return found[0][1], nil
}

// Name is that of its function.
func (k Kernel) Name() string { return k.name }

// Units say how a kernel's work is divided. Its text has a loop over them for any number of blocks and threads.
type Units uint8

const (
	Elements Units = iota // each thread has one at a time
	Rows                  // each block
)

// Blocks and their threads on a GPU. On a processor the loader chooses them.
const (
	threads    = 256
	fewest     = 32
	mostBlocks = 1 << 22 // more have loops; HIP takes less than 2^32 threads
)

// Call is a run for n units.
func (k Kernel) Call(n int, units Units, pointers []device.Ptr, integers []int64) (*loader.Call, error) {
	switch {
	case k.source == "":
		return nil, fmt.Errorf("kernel: no text")
	case n < 0 || units > Rows:
		return nil, fmt.Errorf("kernel: %s with %d units of kind %d", k.name, n, units)
	case len(pointers)+len(integers) > MaxArguments:
		return nil, fmt.Errorf("kernel: %s has %d arguments, more than %d", k.name, len(pointers)+len(integers), MaxArguments)
	}
	blocks := n
	if units == Elements {
		blocks = (n-1)/int(k.threads) + 1
	}
	c := &loader.Call{Grid: device.Dim{X: min(blocks, mostBlocks), Y: 1, Z: 1},
		Block: device.Dim{X: int(k.threads), Y: 1, Z: 1}, Shape: loader.AnyGrid, Work: k.work}
	c.Spec = text.Spec{Family: Family, Op: k.source, Block: k.threads}
	for _, p := range pointers {
		c.Args.Pointer(p)
	}
	for _, i := range integers {
		c.Args.Int64(i)
	}
	return c, nil
}

// generate writes the functions that a text names before it.
func generate(s text.Spec) (text.Source, error) {
	name, err := nameOf(s.Op)
	if err != nil {
		return text.Source{}, err
	}
	functions, err := functionsOf(s.Op, s.Vector)
	if err != nil {
		return text.Source{}, err
	}
	return text.Source{Entry: name, F64: wide.MatchString(s.Op), Atomic64: wideAtomics.MatchString(s.Op),
		Body: fmt.Sprintf("#define THREADS_OF_BLOCK %d\n%s%s", s.Block, functions, s.Op)}, nil
}

var (
	wide        = regexp.MustCompile(`f64\b|f64_`)
	wideAtomics = regexp.MustCompile(`\batomic_add_[if]64\(`)
)
