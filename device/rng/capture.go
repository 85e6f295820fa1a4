package rng

import "sync/atomic"

// Draw is a part of a CUDA generator's sequence that belongs to one kernel: reserved when the kernel is launched, used
// when it runs.
//
//	d, err := g.Reserve(gpu.Increment(len(dst), 4, false))
//	stream.Launch(func() error { return rng.Uniform(d.Generator(), dst, 0, 1) })
//
// In a graph, each replay runs the kernel with new numbers.
type Draw struct {
	gpu     GPU
	seed    uint64
	offset  uint64   // from the capture's base if there is one
	capture *Capture // nil outside graphs
}

// Reserve takes the next words numbers of every subsequence, rounded up to a multiple of 4.
func (g *CUDA) Reserve(words uint64) Draw {
	words = (words + 3) &^ 3
	g.mu.Lock()
	defer g.mu.Unlock()
	d := Draw{gpu: g.gpu, seed: g.seed, offset: g.offset, capture: g.capture}
	if g.capture != nil {
		d.offset = g.capture.words
		g.capture.words += words
	} else {
		g.offset += words
	}
	return d
}

// Generator returns a generator that stands where the draw begins.
func (d Draw) Generator() *CUDA {
	seed, offset := d.seed, d.offset
	if d.capture != nil {
		at := d.capture.at.Load()
		seed, offset = at.seed, at.offset+offset
	}
	return &CUDA{gpu: d.gpu, seed: seed, offset: offset}
}

// Captured reports whether the draw belongs to a graph. Then it begins at an offset from where the graph's replay
// begins: [Capture.Advance] says where that is.
func (d Draw) Captured() (offset uint64, is bool) {
	if d.capture == nil {
		return 0, false
	}
	return d.offset, true
}

// Capture is what a graph remembers of a generator.
type Capture struct {
	generator *CUDA
	words     uint64 // of one replay
	at        atomic.Pointer[position]
}

type position struct{ seed, offset uint64 }

// BeginCapture makes draws belong to a graph until EndCapture. Until then the seed, the offset and the state can be
// neither read nor set. Filling slices at once isn't possible either, since the numbers of a graph are known only at
// its replay: use [CUDA.Reserve].
func (g *CUDA) BeginCapture() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.capture != nil {
		return invalid("BeginCapture while the generator is captured")
	}
	g.capture = &Capture{generator: g}
	g.capture.at.Store(&position{seed: g.seed})
	return nil
}

// Captured reports whether draws belong to a graph now.
func (g *CUDA) Captured() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.capture != nil
}

// EndCapture ends what BeginCapture began.
func (g *CUDA) EndCapture() (*Capture, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.capture == nil {
		return nil, invalid("EndCapture without BeginCapture")
	}
	c := g.capture
	g.capture = nil
	return c, nil
}

// Words returns by how much one replay moves the generator's offset.
func (c *Capture) Words() uint64 { return c.words }

// Replay must be called before each replay of the graph: its draws start at the generator's present seed and offset,
// and the generator moves on behind them. Replays whose kernels may overlap need captures of their own.
func (c *Capture) Replay() error {
	begin, _, _, err := c.Advance()
	if err == nil {
		begin()
	}
	return err
}

// Advance is Replay for a graph that is enqueued. It takes the numbers of one run from the generator now, which begin
// at a seed and an offset. The run's kernels get them when begin is called, which must be when the run before is over
// and this one begins.
func (c *Capture) Advance() (begin func(), seed, offset uint64, err error) {
	g := c.generator
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.capture != nil {
		return nil, 0, 0, invalid("Replay while the generator is captured")
	}
	at := &position{seed: g.seed, offset: g.offset}
	g.offset += c.words
	return func() { c.at.Store(at) }, at.seed, at.offset, nil
}
