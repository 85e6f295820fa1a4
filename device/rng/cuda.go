package rng

import (
	"encoding/binary"
	"math"
	"sync"
)

// GPU is what the numbers of a CUDA generator depend on besides its state: PyTorch launches at most as many blocks of
// threads as the GPU runs at once, and each thread draws from its own subsequence. The zero GPU has no limit; up to 256
// elements for each block of the limit, all GPUs give the same.
type GPU struct {
	Multiprocessors          int
	ThreadsPerMultiprocessor int
}

var (
	A100 = GPU{108, 2048}
	H100 = GPU{132, 2048}
	H200 = GPU{132, 2048}
)

// CUDA is a generator by the rules of PyTorch's CUDA kernels. Its seed is Philox's key. All threads of a launch start
// from its offset, which is always a multiple of 4.
type CUDA struct {
	gpu GPU

	mu      sync.Mutex
	seed    uint64
	offset  uint64
	capture *Capture // not nil while capturing
}

// NewCUDA returns a generator of the given GPU with offset 0.
func NewCUDA(seed uint64, gpu GPU) *CUDA { return &CUDA{seed: seed, gpu: gpu} }

func (*CUDA) sealed() {}

// Clone returns a generator in the same state, which isn't captured.
func (g *CUDA) Clone() *CUDA {
	g.mu.Lock()
	defer g.mu.Unlock()
	return &CUDA{gpu: g.gpu, seed: g.seed, offset: g.offset}
}

func (g *CUDA) set(seed, offset uint64, what string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.capture != nil {
		return invalid("%s while the generator is captured", what)
	}
	g.seed, g.offset = seed, offset
	return nil
}

func (g *CUDA) get(what string) (seed, offset uint64, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.capture != nil {
		return 0, 0, invalid("%s while the generator is captured", what)
	}
	return g.seed, g.offset, nil
}

// Seed sets the seed, and the offset to 0.
func (g *CUDA) Seed(seed uint64) error { return g.set(seed, 0, "Seed") }

// InitialSeed returns the seed.
func (g *CUDA) InitialSeed() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seed
}

// Offset returns how many words of each subsequence are used up.
func (g *CUDA) Offset() (uint64, error) {
	_, offset, err := g.get("Offset")
	return offset, err
}

// SetOffset goes to an offset, which must be a multiple of 4.
func (g *CUDA) SetOffset(offset uint64) error { return g.Set(g.InitialSeed(), offset) }

// Set sets the seed, and an offset, which must be a multiple of 4. If it's refused, both stay.
func (g *CUDA) Set(seed, offset uint64) error {
	if offset%4 != 0 {
		return invalid("offset must be a multiple of 4, not %d", offset)
	}
	return g.set(seed, offset, "Set")
}

// State returns 16 bytes, the seed and the offset in little endian.
func (g *CUDA) State() ([]byte, error) {
	seed, offset, err := g.get("State")
	if err != nil {
		return nil, err
	}
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, seed), offset), nil
}

// SetState accepts 16 bytes, or 8, which are a seed with offset 0.
func (g *CUDA) SetState(b []byte) error {
	var offset uint64
	switch len(b) {
	case 8:
	case 16:
		offset = binary.LittleEndian.Uint64(b[8:])
	default:
		return invalid("a CUDA state has 16 bytes, or 8, not %d", len(b))
	}
	return g.Set(binary.LittleEndian.Uint64(b), offset)
}

// threads in a block, and numbers that the largest cuRAND call draws (block_size_bound and
// max_generator_offsets_per_curand_call in ATen/native/cuda/DistributionTemplates.h).
const (
	blockThreads = 256
	perCall      = 4
)

// Threads returns the number of threads of a launch that fills n elements.
func (p GPU) Threads(n int) int {
	blocks := (n + blockThreads - 1) / blockThreads
	if limit := p.Multiprocessors * (p.ThreadsPerMultiprocessor / blockThreads); limit > 0 {
		blocks = min(blocks, limit)
	}
	return blocks * blockThreads
}

// LaunchIncrement is what one launch that fills n elements adds to the offset.
func (p GPU) LaunchIncrement(n int, wide bool) uint64 {
	return (uint64(n-1)/uint64(p.Threads(n)*perBlock(wide)) + 1) * perCall
}

// Increment returns what filling n elements of the given size adds to the offset. Each of them is made from 32 random
// bits, or from 64 if wide: that is every distribution of float64, [Integers] with a range of 2²⁸ and more, and
// [Random] of int64 and float64.
//
// A tensor whose bytes can't be counted in 31 bits is filled in parts. PyTorch then draws for the whole and once more
// for each part.
func (p GPU) Increment(n, size int, wide bool) uint64 {
	var total uint64
	p.launches(n, size, wide, func(_, _ int, words uint64) { total += words })
	return total
}

// launches calls f with the extent of each launch and with what it adds to the offset.
func (p GPU) launches(n, size int, wide bool, f func(first, n int, words uint64)) {
	switch {
	case n == 0:
	case fits31(n, size):
		f(0, n, p.LaunchIncrement(n, wide))
	default:
		f(0, 0, p.LaunchIncrement(n, wide))
		p.parts(0, n, size, wide, f)
	}
}

// parts halves what is too large, as TensorIterator's SplitUntil32Bit does.
func (p GPU) parts(first, n, size int, wide bool, f func(first, n int, words uint64)) {
	if fits31(n, size) {
		f(first, n, p.LaunchIncrement(n, wide))
		return
	}
	p.parts(first, n/2, size, wide, f)
	p.parts(first+n/2, n-n/2, size, wide, f)
}

// perBlock is how many elements come from one block of Philox.
func perBlock(wide bool) int {
	if wide {
		return 2
	}
	return 4
}

func fits31(n, size int) bool { return n <= math.MaxInt32 && (n-1)*size+1 <= math.MaxInt32 }

var errCaptured = invalid("numbers drawn at once while the generator is captured; use Reserve")

// draw calls f with the blocks that fill n elements of the given size. A block has the numbers of 4 elements, or 2 if
// wide: element first, and those that follow at distance step, below n.
func (g *CUDA) draw(n, size int, wide bool, f func(block [4]uint32, first, step, n int)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.capture != nil {
		return errCaptured
	}
	unroll := perBlock(wide)
	g.gpu.launches(n, size, wide, func(first, part int, words uint64) {
		threads := g.gpu.Threads(part)
		end := first + part
		for k := 0; k*threads*unroll < part; k++ {
			base := first + k*threads*unroll
			for t := 0; t < threads && base+t < end; t++ {
				f(philoxAt(g.seed, uint64(t), g.offset/4, uint64(k)), base+t, threads, end)
			}
		}
		g.offset += words
	})
	return nil
}
