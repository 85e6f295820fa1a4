package loader

import (
	"context"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/gemm"
	"github.com/chorus-comms/chorus/kernel/library"
)

// Tuner chooses for products of matrices between the library and kernels by measuring, as PyTorch's TunableOp does.
// The zero value is off. Its methods may be called from any goroutine.
type Tuner struct {
	on atomic.Bool // asked for at each product

	mu      sync.Mutex
	setting Tuning
	results map[[2]string]tuned // by operator and parameters
}

// Tuning is how a Tuner works.
type Tuning struct {
	Enabled    bool // what has been found is used
	Tune       bool // what hasn't is measured
	Duration   time.Duration
	Iterations int // of a measurement at most; with 0 for one of them the other counts
}

// tuned is what was found, or read from a file.
type tuned struct {
	solution string
	millis   float64
	side     int // of the kernel's tiles; 0: no kernel's
}

// Tuned is the Tuner of this process's loaders.
var Tuned Tuner

// Solutions by their names in files.
const (
	solutionDefault = "Default"     // what is done without tuning
	solutionKernel  = "Gemm_Chorus" // the kernel, with the side of its tiles behind if that isn't gemm.Side
)

// SolutionOfTiles is the kernel's with tiles of a side, "Gemm_Chorus_32" for example.
func SolutionOfTiles(side int) string {
	if side == gemm.Side {
		return solutionKernel
	}
	return fmt.Sprintf("%s_%d", solutionKernel, side)
}

// solutionOf is the library's, "Gemm_cuBLAS" for example.
func solutionOf(library string) string {
	name, _, _ := strings.Cut(library, " ")
	return "Gemm_" + name
}

// Set changes how it works.
func (t *Tuner) Set(s Tuning) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.setting = s
	t.on.Store(s.Enabled)
}

// Add adds a result as a line of a file: operator, parameters, solution and, if it's there, milliseconds. Results of
// the same operator and parameters that are there already stay.
func (t *Tuner) Add(line string) error {
	fields := strings.Split(strings.TrimSpace(line), ",")
	if len(fields) < 3 || len(fields) > 4 || fields[0] == "" || fields[1] == "" || fields[2] == "" {
		return fmt.Errorf("kernel: a result %q, which isn't operator,parameters,solution,time", line)
	}
	var x tuned
	x.solution = fields[2]
	if len(fields) == 4 {
		var err error
		if x.millis, err = strconv.ParseFloat(fields[3], 64); err != nil {
			return fmt.Errorf("kernel: the time of result %q: %w", line, err)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add([2]string{fields[0], fields[1]}, x)
	return nil
}

func (t *Tuner) add(key [2]string, x tuned) {
	if t.results == nil {
		t.results = map[[2]string]tuned{}
	}
	for _, side := range gemm.Sides {
		if x.solution == SolutionOfTiles(side) {
			x.side = side
		}
	}
	if _, there := t.results[key]; !there {
		t.results[key] = x
	}
}

// Results are the lines of a file, sorted.
func (t *Tuner) Results() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := make([]string, 0, len(t.results))
	for key, x := range t.results {
		lines = append(lines, fmt.Sprintf("%s,%s,%s,%v", key[0], key[1], x.solution, x.millis))
	}
	sort.Strings(lines)
	return lines
}

// tuneTypes are PyTorch's names of types.
var tuneTypes = map[dtype.DType]string{dtype.Float32: "float", dtype.Float64: "double", dtype.Float16: "Half",
	dtype.BFloat16: "BFloat16", dtype.Complex64: "c10::complex<float>", dtype.Complex128: "c10::complex<double>"}

// TuningKey is a product's operator and parameters, as PyTorch writes them: of columns, so that it's the transposed
// product.
func TuningKey(p *device.GEMM) [2]string {
	trans := func(m *device.Matrix) string {
		if m.Transposed {
			return "t"
		}
		return "n"
	}
	ab := trans(&p.B) + trans(&p.A)
	kind, batch := "GemmTunableOp", ""
	if p.Count > 1 {
		kind, batch = "GemmStridedBatchedTunableOp", fmt.Sprintf("B_%d_", p.Count)
	}
	return [2]string{fmt.Sprintf("%s_%s_%s", kind, tuneTypes[p.Type], strings.ToUpper(ab)),
		fmt.Sprintf("%s_%d_%d_%d_%sld_%d_%d_%d", ab, p.Columns, p.Rows, p.Depth, batch, p.B.Pitch, p.A.Pitch, p.Out.Pitch)}
}

// On reports whether it chooses at all.
func (t *Tuner) On() bool { return t.on.Load() }

// Forget takes all results out.
func (t *Tuner) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.results = nil
}

// tuned is the side of the tiles of a tuned product that is the kernel's; 0 for what is done without tuning. On a
// processor the kernel has one form.
func (l *Loader) tuned(s *device.Stream, c *Call) (side int) {
	t := &Tuned
	if !t.On() || tuneTypes[c.Library.GEMM.Type] == "" || c.Library.Kind != library.GEMM && l.panels(c) {
		return 0
	}
	key := TuningKey(&c.Library.GEMM)
	t.mu.Lock()
	x, found := t.results[key]
	setting := t.setting
	t.mu.Unlock()
	if !found && setting.Tune && !s.Capturing() {
		var err error
		if x, err = l.measure(s, c, setting); err != nil {
			return 0 // the default, whose errors are the caller's
		}
		t.mu.Lock()
		t.add(key, x)
		x = t.results[key]
		t.mu.Unlock()
	}
	if x.side > 0 && !gemm.Fit(x.side, c.Spec) { // of a file
		return 0
	}
	return x.side
}

// measure runs a product by the library, and by the kernel with each side of tiles, to memory of its own. It waits for
// the stream, and returns the fastest one.
func (l *Loader) measure(s *device.Stream, c *Call, t Tuning) (best tuned, err error) {
	p := c.Library.GEMM
	n := p.Out.Elements(p.Rows, p.Columns, p.Count) * p.Type.Size()
	memory, err := l.dev.Alloc(n, s)
	if err != nil {
		return best, err
	}
	defer func() {
		if e := l.dev.Dealloc(memory); err == nil {
			err = e
		}
	}()
	if err := s.Copy(memory, p.Out.Ptr, n); err != nil {
		return best, err
	}
	own := *c
	own.Args = c.Args.With(p.Out.Ptr, memory)
	p.Out.Ptr = memory
	type candidate struct {
		name string
		run  func() error
	}
	var all []candidate
	if name := l.GEMMLibrary(); c.Library.Kind == library.GEMM && name != "" {
		all = append(all, candidate{solutionOf(name), func() error { return s.GEMM(&p) }})
	}
	for _, side := range gemm.Sides {
		if side == gemm.Side || gemm.Fit(side, c.Spec) && !l.panels(c) {
			all = append(all, candidate{SolutionOfTiles(side), func() error { return l.launch(s, &own, side) }})
		}
	}
	for _, x := range all {
		millis, err := timed(s, x.run, t)
		if err != nil && s.Synchronize(context.Background()) != nil {
			return best, err // the device's
		}
		if err == nil && (best.solution == "" || millis < best.millis) {
			best = tuned{solution: x.name, millis: millis}
		}
	}
	if best.solution == "" {
		best.solution = solutionDefault
	}
	return best, nil
}

// timed is how many milliseconds a run takes, of as many as the tuning allows.
func timed(s *device.Stream, run func() error, t Tuning) (float64, error) {
	ctx := context.Background()
	once := func(n int) (time.Duration, error) {
		begin := time.Now()
		for range n {
			if err := run(); err != nil {
				return 0, err
			}
		}
		return time.Since(begin), s.Synchronize(ctx)
	}
	if _, err := once(1); err != nil { // which compiles
		return 0, err
	}
	begin := time.Now()
	if _, err := once(1); err != nil {
		return 0, err
	}
	n, each := t.Iterations, max(time.Since(begin), time.Microsecond)
	if t.Duration > 0 {
		if fit := int(t.Duration / each); n <= 0 || fit < n {
			n = fit
		}
	}
	n = max(n, 1)
	begin = time.Now()
	if _, err := once(n); err != nil {
		return 0, err
	}
	return float64(time.Since(begin).Nanoseconds()) / 1e6 / float64(n), nil
}
