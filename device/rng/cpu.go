package rng

import (
	"encoding/binary"
	"math"
	"runtime"
	"sync"
)

// Build says with which build of PyTorch a CPU generator agrees where builds differ: in whether a product and a sum are
// fused, and in the elementary functions under [Normal] for 16 and more elements.
type Build uint8

const (
	AVX2     Build = iota // x86-64 with AVX2 or AVX-512: fused, vectorized Cephes functions in float32
	Baseline              // x86-64 without, or ATEN_CPU_CAPABILITY=default: not fused, the C library
	ARM64                 // fused, the C library
)

// HostBuild returns the build that PyTorch uses on processors of this program's architecture, where that has AVX2 if it
// is an x86.
func HostBuild() Build {
	if runtime.GOARCH == "arm64" {
		return ARM64
	}
	return AVX2
}

// CPU is a generator by the rules of PyTorch's CPU kernels: mt19937, and the second number of each Box-Muller pair kept
// for the next call.
type CPU struct {
	build Build

	mu     sync.Mutex
	engine mt19937

	// PyTorch keeps one cached normal for each precision. No CPU kernel uses the float one, but states carry it.
	cached    float64
	hasCached bool
	cached32  float32
	has32     bool
}

// NewCPU returns a generator that agrees with [HostBuild].
func NewCPU(seed uint64) *CPU { return NewCPUFor(seed, HostBuild()) }

// NewCPUFor returns a generator that agrees with the given build.
func NewCPUFor(seed uint64, b Build) *CPU {
	g := &CPU{build: b}
	g.engine.init(seed)
	return g
}

// Clone returns a generator in the same state.
func (g *CPU) Clone() *CPU {
	g.mu.Lock()
	defer g.mu.Unlock()
	return &CPU{build: g.build, engine: g.engine, cached: g.cached, hasCached: g.hasCached, cached32: g.cached32,
		has32: g.has32}
}

func (*CPU) sealed() {}

// Seed starts over. The error is always nil.
func (g *CPU) Seed(seed uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.engine.init(seed)
	g.hasCached, g.has32 = false, false
	return nil
}

// InitialSeed returns the last seed.
func (g *CPU) InitialSeed() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.engine.seed
}

// Uint32 draws one word.
func (g *CPU) Uint32() uint32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.engine.uint32()
}

// Uint64 draws two words, the first of which is the upper one.
func (g *CPU) Uint64() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.engine.uint64()
}

// Skip leaves out n words. It takes about a nanosecond a word: mt19937 has no offset to set.
func (g *CPU) Skip(n uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.engine.skip(n)
}

// The layout of CPUGeneratorImplState in ATen/CPUGeneratorImpl.cpp, little endian. State words are widened to 64 bits.
// Old states have no float sample, so that they are 8 bytes shorter; PyTorch still accepts them, and so does SetState.
const (
	stateSeed   = 0
	stateLeft   = 8
	stateSeeded = 12
	stateNext   = 16
	stateWords  = 24
	stateX      = stateWords + 8*mtWords // u1 of the pair in the old layout
	stateY      = stateX + 8             // the cached sample; in the old layout unused
	stateRho    = stateY + 8             // the radius in the old layout
	stateValid  = stateRho + 8
	stateFloat  = stateValid + 8
	stateFloatV = stateFloat + 4
	stateSize   = stateFloat + 8
	legacySize  = stateFloat
)

// State returns 5056 bytes. The error is always nil.
func (g *CPU) State() ([]byte, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := make([]byte, stateSize)
	le := binary.LittleEndian
	le.PutUint64(b[stateSeed:], g.engine.seed)
	le.PutUint32(b[stateLeft:], uint32(g.engine.left))
	le.PutUint32(b[stateSeeded:], 1)
	le.PutUint64(b[stateNext:], uint64(g.engine.next))
	for i, w := range g.engine.state {
		le.PutUint64(b[stateWords+8*i:], uint64(w))
	}
	if g.hasCached {
		le.PutUint64(b[stateY:], math.Float64bits(g.cached))
		le.PutUint32(b[stateValid:], 1)
	}
	if g.has32 {
		le.PutUint32(b[stateFloat:], math.Float32bits(g.cached32))
		b[stateFloatV] = 1
	}
	return b, nil
}

// SetState accepts 5056 bytes, or the 5048 of old versions.
func (g *CPU) SetState(b []byte) error {
	if len(b) != stateSize && len(b) != legacySize {
		return invalid("a CPU state has %d bytes, or %d in its old form, not %d", stateSize, legacySize, len(b))
	}
	le := binary.LittleEndian
	m := mt19937{seed: le.Uint64(b[stateSeed:]), left: int32(le.Uint32(b[stateLeft:])), next: le.Uint32(b[stateNext:])}
	if seeded := le.Uint32(b[stateSeeded:]); seeded == 0 || m.left <= 0 || m.left > mtWords ||
		le.Uint64(b[stateNext:]) > mtWords {
		return invalid("not a state of mt19937: seeded %d, %d words left, next is %d", seeded, m.left,
			le.Uint64(b[stateNext:]))
	}
	if m.next+uint32(m.left)-1 > mtWords {
		return invalid("not a state of mt19937: %d words left after word %d of %d", m.left-1, m.next, mtWords)
	}
	for i := range m.state {
		m.state[i] = uint32(le.Uint64(b[stateWords+8*i:]))
	}
	has := le.Uint32(b[stateValid:]) != 0
	float := func(at int) float64 { return math.Float64frombits(le.Uint64(b[at:])) }
	g.mu.Lock()
	defer g.mu.Unlock()
	g.engine, g.cached, g.hasCached, g.cached32, g.has32 = m, float(stateY), has, 0, false
	if len(b) == legacySize {
		g.cached = float(stateRho) * math.Sin(2*math.Pi*float(stateX))
		return nil
	}
	g.cached32, g.has32 = math.Float32frombits(le.Uint32(b[stateFloat:])), b[stateFloatV] != 0
	return nil
}
